//! Compiled form of a JSON Schema: one node per subschema, its keywords grouped by the type of value they apply to.
//! Nodes refer to each other by number, so that references can be cyclic.

use std::cmp::Ordering;

use serde_json::Value;

use crate::number::Number;
use crate::pattern::Pattern;

/// Index of a node in its compiled schema.
pub(crate) type Id = u32;

/// Compiled subschema of a JSON Schema.
#[derive(Debug, Default)]
pub(crate) struct Node {
    pub(crate) types: Types,
    /// Whether `type` is the only keyword of the schema that restricts values.
    pub(crate) type_only: bool,
    /// Index of the schema resource (`$id`) that the node belongs to.
    pub(crate) resource: u32,
    pub(crate) values: Option<Box<Values>>,
    pub(crate) number: Option<Box<NumberKeywords>>,
    pub(crate) text: Option<Box<StringKeywords>>,
    pub(crate) array: Option<Box<ArrayKeywords>>,
    pub(crate) object: Option<Box<ObjectKeywords>>,
    pub(crate) in_place: Vec<InPlaceApplicator>,
    pub(crate) unevaluated_items: Option<Id>,
    pub(crate) unevaluated_properties: Option<Id>,
}

impl Node {
    /// Completes a schema node after all its keywords have been added.
    pub(crate) fn finish(mut self) -> Self {
        self.type_only = self.values.is_none()
            && self.number.is_none()
            && self.text.is_none()
            && self.array.is_none()
            && self.object.is_none()
            && self.in_place.is_empty()
            && self.unevaluated_items.is_none()
            && self.unevaluated_properties.is_none();
        self
    }
}

/// JSON types that a schema allows, as a bit set. The empty set allows no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Types(u8);

const INTEGER: u8 = 4;
/// JSON Schema type names and the bits that represent them. `number` includes the bit of integers.
const NAMES: [(&str, u8); 7] = [
    ("null", 1),
    ("boolean", 2),
    ("number", INTEGER | 8),
    ("integer", INTEGER),
    ("string", 16),
    ("array", 32),
    ("object", 64),
];

impl Default for Types {
    fn default() -> Self {
        Self(0x7f)
    }
}

impl Types {
    pub(crate) const NONE: Self = Self(0);

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        NAMES.iter().find(|(type_name, _)| *type_name == name).map(|(_, bits)| Self(*bits))
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn allows(self, value: &Value) -> bool {
        let bit = match value {
            Value::Null => 1,
            Value::Bool(_) => 2,
            Value::Number(number) if number.is_i64() || number.is_u64() => INTEGER,
            Value::Number(number) if Number::from_json(number).is_integer() => INTEGER,
            Value::Number(_) => 8,
            Value::String(_) => 16,
            Value::Array(_) => 32,
            Value::Object(_) => 64,
        };
        self.0 & bit != 0
    }

    /// Returns the JSON Schema names of the allowed types. `integer` is omitted if `number` is allowed.
    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
        let has_bits = move |bits: u8| self.0 & bits == bits;
        NAMES
            .into_iter()
            .filter(move |(name, bits)| has_bits(*bits) && !(*name == "integer" && has_bits(INTEGER | 8)))
            .map(|(name, _)| name)
    }
}

/// Values that the keywords `const` and `enum` of a schema allow.
#[derive(Debug, Default)]
pub(crate) struct Values {
    pub(crate) constant: Option<Value>,
    pub(crate) options: Option<Vec<Value>>,
}

/// Numeric bound of a schema keyword such as `minimum`, and its text in the schema.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) limit: Number,
    pub(crate) text: String,
}

#[derive(Debug, Default)]
pub(crate) struct NumberKeywords {
    pub(crate) minimum: Option<Bound>,
    pub(crate) maximum: Option<Bound>,
    pub(crate) exclusive_minimum: Option<Bound>,
    pub(crate) exclusive_maximum: Option<Bound>,
    pub(crate) multiple_of: Option<Bound>,
}

/// Minimum and maximum of the length of a string, or of the number of items or members.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) min: u64,
    pub(crate) max: Option<u64>,
}

#[derive(Debug, Default)]
pub(crate) struct StringKeywords {
    pub(crate) length: Counts,
    pub(crate) pattern: Option<Pattern>,
}

/// What applies to members or items that no other keyword covers: anything, nothing, or a schema.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RestSchema {
    /// The remaining members or items are allowed, and count as evaluated.
    Any,
    Never,
    Each(Id),
}

#[derive(Debug, Default)]
pub(crate) struct ArrayKeywords {
    pub(crate) size: Counts,
    pub(crate) prefix: Vec<Id>,
    pub(crate) additional_items: Option<RestSchema>,
    pub(crate) contains: Option<Contains>,
    pub(crate) unique: bool,
}

#[derive(Debug)]
pub(crate) struct Contains {
    pub(crate) node: Id,
    pub(crate) count: Counts,
    /// Whether items that match `contains` count as evaluated for `unevaluatedItems`.
    pub(crate) marks_evaluated: bool,
}

#[derive(Debug, Default)]
pub(crate) struct ObjectKeywords {
    pub(crate) size: Counts,
    /// Names in `properties` and `required`, sorted.
    pub(crate) members: Vec<Member>,
    pub(crate) required: Vec<Box<str>>,
    pub(crate) patterns: Vec<(Pattern, Id)>,
    pub(crate) additional_properties: Option<RestSchema>,
    pub(crate) names: Option<Id>,
    pub(crate) dependents: Vec<Dependent>,
}

#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) name: Box<str>,
    pub(crate) node: Option<Id>,
    pub(crate) required: bool,
}

impl Member {
    /// Compares names in the order of the table: by length first, which is fast.
    pub(crate) fn cmp_name(&self, name: &str) -> Ordering {
        self.name.len().cmp(&name.len()).then_with(|| (*self.name).cmp(name))
    }
}

/// What a schema requires of an object that has a given member (`dependentRequired`, `dependentSchemas`).
#[derive(Debug)]
pub(crate) struct Dependent {
    pub(crate) name: Box<str>,
    pub(crate) required: Vec<Box<str>>,
    pub(crate) node: Option<Id>,
}

/// In-place applicator: a subschema applied to the same value.
#[derive(Debug)]
pub(crate) enum InPlaceApplicator {
    /// Item of `allOf`, or target of a `$ref`.
    Apply(Id),
    /// Keyword `$dynamicRef`, which resolves to the outermost resource in the dynamic scope that has the anchor.
    Dynamic {
        initial: Id,
        targets: Vec<(u32, Id)>,
    },
    AnyOf(Vec<Id>),
    OneOf(Vec<Id>),
    /// Keyword `not`, with the text of its schema for errors.
    Not(Id, String),
    If {
        condition: Id,
        then: Option<Id>,
        otherwise: Option<Id>,
    },
}
