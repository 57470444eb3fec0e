//! The compiled form: one node per subschema, its keywords sorted by the kind of value they look at. Nodes refer to
//! each other by number, so that references may go in circles.

use std::cmp::Ordering;

use serde_json::Value;

use crate::number::Number;
use crate::pattern::Pattern;

/// The number of a node.
pub(crate) type Id = u32;

/// A compiled subschema.
#[derive(Debug, Default)]
pub(crate) struct Node {
    pub(crate) types: Types,
    /// Whether there is nothing to look at but the type.
    pub(crate) simple: bool,
    /// Which resource of the document it belongs to.
    pub(crate) resource: u32,
    pub(crate) values: Option<Box<Values>>,
    pub(crate) number: Option<Box<Numbers>>,
    pub(crate) text: Option<Box<Texts>>,
    pub(crate) array: Option<Box<Arrays>>,
    pub(crate) object: Option<Box<Objects>>,
    pub(crate) applied: Vec<Applied>,
    pub(crate) unevaluated_items: Option<Id>,
    pub(crate) unevaluated_properties: Option<Id>,
}

impl Node {
    /// To be called when all keywords are known.
    pub(crate) fn finish(mut self) -> Self {
        self.simple = self.values.is_none()
            && self.number.is_none()
            && self.text.is_none()
            && self.array.is_none()
            && self.object.is_none()
            && self.applied.is_empty()
            && self.unevaluated_items.is_none()
            && self.unevaluated_properties.is_none();
        self
    }
}

/// The kinds of values that are allowed, as bits; with none, nothing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Types(u8);

const INTEGER: u8 = 4;
/// `number` holds the bit of whole numbers too.
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

    pub(crate) fn named(name: &str) -> Option<Self> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, bits)| Self(*bits))
    }

    pub(crate) fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn allow(self, value: &Value) -> bool {
        let bit = match value {
            Value::Null => 1,
            Value::Bool(_) => 2,
            Value::Number(number) if number.is_i64() || number.is_u64() => INTEGER,
            Value::Number(number) if Number::of(number).is_whole() => INTEGER,
            Value::Number(_) => 8,
            Value::String(_) => 16,
            Value::Array(_) => 32,
            Value::Object(_) => 64,
        };
        self.0 & bit != 0
    }

    /// The names, `integer` only where `number` does not say it already.
    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
        let has = move |bits: u8| self.0 & bits == bits;
        NAMES
            .into_iter()
            .filter(move |(name, bits)| has(*bits) && !(*name == "integer" && has(INTEGER | 8)))
            .map(|(name, _)| name)
    }
}

/// `const` and `enum`.
#[derive(Debug, Default)]
pub(crate) struct Values {
    pub(crate) constant: Option<Value>,
    pub(crate) options: Option<Vec<Value>>,
}

/// A bound, and how it was written.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) limit: Number,
    pub(crate) text: String,
}

#[derive(Debug, Default)]
pub(crate) struct Numbers {
    pub(crate) minimum: Option<Bound>,
    pub(crate) maximum: Option<Bound>,
    pub(crate) exclusive_minimum: Option<Bound>,
    pub(crate) exclusive_maximum: Option<Bound>,
    pub(crate) multiple_of: Option<Bound>,
}

/// How many there may be.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) min: u64,
    pub(crate) max: Option<u64>,
}

#[derive(Debug, Default)]
pub(crate) struct Texts {
    pub(crate) length: Counts,
    pub(crate) pattern: Option<Pattern>,
}

/// What becomes of members and items that nothing else names.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rest {
    /// They are allowed, and count as looked at.
    Any,
    Never,
    Each(Id),
}

#[derive(Debug, Default)]
pub(crate) struct Arrays {
    pub(crate) size: Counts,
    pub(crate) prefix: Vec<Id>,
    pub(crate) rest: Option<Rest>,
    pub(crate) contains: Option<Contains>,
    pub(crate) unique: bool,
}

#[derive(Debug)]
pub(crate) struct Contains {
    pub(crate) node: Id,
    pub(crate) count: Counts,
    /// Whether what is found counts as looked at.
    pub(crate) marks: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Objects {
    pub(crate) size: Counts,
    /// What `properties` and `required` name, sorted.
    pub(crate) members: Vec<Member>,
    pub(crate) required: Vec<Box<str>>,
    pub(crate) patterns: Vec<(Pattern, Id)>,
    pub(crate) rest: Option<Rest>,
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
    /// The order of the table: by length first, which is quick to compare.
    pub(crate) fn order(&self, name: &str) -> Ordering {
        self.name.len().cmp(&name.len()).then_with(|| (*self.name).cmp(name))
    }
}

/// What the presence of a member asks of the object.
#[derive(Debug)]
pub(crate) struct Dependent {
    pub(crate) name: Box<str>,
    pub(crate) required: Vec<Box<str>>,
    pub(crate) node: Option<Id>,
}

/// A subschema that looks at the same value.
#[derive(Debug)]
pub(crate) enum Applied {
    /// One of `allOf`, or what `$ref` points to.
    Each(Id),
    /// `$dynamicRef`: the outermost resource on the way here that has the anchor.
    Dynamic {
        initial: Id,
        targets: Vec<(u32, Id)>,
    },
    Any(Vec<Id>),
    One(Vec<Id>),
    /// With the text of the schema.
    Not(Id, String),
    If {
        condition: Id,
        then: Option<Id>,
        otherwise: Option<Id>,
    },
}
