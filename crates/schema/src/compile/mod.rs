//! Compiler from a JSON Schema document to nodes. Every subschema is compiled once, even if nothing refers to it: a
//! schema is either accepted or rejected as a whole. The compiler does not recurse; the index has already found the
//! subschemas.

mod arrays;
mod keyword_value;
mod objects;

use serde_json::{Map, Value};

use crate::dialect::{Dialect, is_annotation};
use crate::error::{ValidationError, display_value, push_token};
use crate::index::{Index, Subschema};
use crate::node::{Bound, Id, InPlaceApplicator, Node, Types};
use crate::number::Number;
use crate::pattern::Pattern;
use crate::{Limits, Schema};

/// Maximum number of chained references that are followed at compile time. Longer chains and cycles are left to
/// validation and its limits.
const MAX_SHORTCUTS: usize = 8;
/// Maximum nesting depth of the values of `const` and `enum`.
const MAX_VALUE_DEPTH: usize = 128;

pub(crate) struct Compiler<'a> {
    index: Index<'a>,
    /// Remaining bytes for compiled patterns.
    pattern_bytes_left: usize,
}

type Members = Map<String, Value>;

pub(crate) fn compile(document: &Value, limits: Limits) -> Result<Schema, ValidationError> {
    let mut compiler = Compiler { index: Index::new(document, limits)?, pattern_bytes_left: limits.patterns };
    let mut nodes = Vec::with_capacity(compiler.index.subschemas.len());
    for number in 0..compiler.index.subschemas.len() {
        nodes.push(compiler.node(number)?);
    }
    let is_dynamic = |applied: &InPlaceApplicator| matches!(applied, InPlaceApplicator::Dynamic { .. });
    let dynamic = nodes.iter().any(|node: &Node| node.in_place.iter().any(is_dynamic));
    // The first entry of the index is the document.
    let root = compiler.shortcut(0);
    Ok(Schema { nodes, root, dynamic, max_work: limits.max_steps })
}

impl<'a> Compiler<'a> {
    fn node(&mut self, number: usize) -> Result<Node, ValidationError> {
        let Subschema { value: schema_value, resource } = self.index.subschemas[number];
        let mut node = Node { resource, ..Node::default() };
        let Value::Object(members) = schema_value else {
            if *schema_value == Value::Bool(false) {
                node.types = Types::NONE;
            }
            return Ok(node.finish());
        };
        let ignores_siblings = self.ignores_siblings(members);
        for (key, value) in members {
            if ignores_siblings && key != "$ref" {
                continue;
            }
            self.keyword(&mut node, members, key, value).map_err(|reason| {
                let mut path = self.index.path(schema_value);
                push_token(&mut path, key);
                ValidationError { path, reason }
            })?;
        }
        objects::finish(&mut node);
        Ok(node.finish())
    }

    /// Reports whether all keywords beside `$ref` are ignored, as in draft-07.
    fn ignores_siblings(&self, members: &Members) -> bool {
        self.index.dialect == Dialect::Draft07 && members.contains_key("$ref")
    }

    fn keyword(
        &mut self,
        node: &mut Node,
        members: &'a Members,
        key: &str,
        value: &'a Value,
    ) -> Result<(), String> {
        match key {
            "type" => node.types = keyword_value::types(value)?,
            "const" => {
                node.values.get_or_insert_default().constant =
                    Some(keyword_value::value(value, MAX_VALUE_DEPTH)?);
            }
            "enum" => {
                let options = value.as_array().ok_or("must be an array")?;
                let options = options.iter().map(|option| keyword_value::value(option, MAX_VALUE_DEPTH));
                node.values.get_or_insert_default().options = Some(options.collect::<Result<_, _>>()?);
            }
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" => {
                number_keyword(node, key, value)?;
            }
            "minLength" => node.text.get_or_insert_default().length.min = keyword_value::count(value)?,
            "maxLength" => node.text.get_or_insert_default().length.max = Some(keyword_value::count(value)?),
            "pattern" => {
                node.text.get_or_insert_default().pattern =
                    Some(self.pattern(keyword_value::string(value)?)?);
            }
            "format" | "title" | "description" | "$comment" => drop(keyword_value::string(value)?),
            "$defs" | "definitions" => {
                keyword_value::object(value)?.values().try_for_each(|inner| self.schema(inner).map(drop))?;
            }
            "$ref" => node.in_place.push(InPlaceApplicator::Apply(
                self.reference(keyword_value::string(value)?, node.resource)?.0,
            )),
            "$dynamicRef" if self.index.dialect == Dialect::Draft202012 => {
                node.in_place.push(self.dynamic_reference(keyword_value::string(value)?, node.resource)?);
            }
            "$recursiveRef" if self.index.dialect == Dialect::Draft201909 => {
                return Err("is not supported: use $ref, or $dynamicRef of 2020-12".into());
            }
            "allOf" => node.in_place.extend(self.schemas(value)?.into_iter().map(InPlaceApplicator::Apply)),
            "anyOf" => node.in_place.push(InPlaceApplicator::AnyOf(self.schemas(value)?)),
            "oneOf" => node.in_place.push(InPlaceApplicator::OneOf(self.schemas(value)?)),
            "not" => node.in_place.push(InPlaceApplicator::Not(self.schema(value)?, display_value(value))),
            "if" => {
                let branch = |key: &str| members.get(key).map(|branch| self.schema(branch)).transpose();
                let (then, otherwise) = (branch("then")?, branch("else")?);
                node.in_place.push(InPlaceApplicator::If { condition: self.schema(value)?, then, otherwise });
            }
            "then" | "else" => drop(self.schema(value)?),
            _ => {
                if !self.array_keyword(node, members, key, value)? {
                    self.object_keyword(node, key, value)?;
                }
            }
        }
        Ok(())
    }

    fn schema(&self, value: &Value) -> Result<Id, String> {
        self.index
            .find(value)
            .map(|id| self.shortcut(id))
            .ok_or_else(|| "must be a schema: an object or a boolean".into())
    }

    fn schemas(&self, value: &Value) -> Result<Vec<Id>, String> {
        match value.as_array() {
            Some(items) if !items.is_empty() => items.iter().map(|item| self.schema(item)).collect(),
            _ => Err("must be an array with at least one schema".into()),
        }
    }

    fn pattern(&mut self, source: &str) -> Result<Pattern, String> {
        Pattern::new(source, &mut self.pattern_bytes_left)
    }

    fn reference(&self, reference: &str, resource: u32) -> Result<(Id, &'a Value, u32), String> {
        let (target, owner) = self.index.resolve(reference, resource)?;
        let id =
            self.index.find(target).ok_or_else(|| format!("{reference:?} does not refer to a schema"))?;
        Ok((self.shortcut(id), target, owner))
    }

    fn dynamic_reference(&self, reference: &str, resource: u32) -> Result<InPlaceApplicator, String> {
        let (initial, target, owner) = self.reference(reference, resource)?;
        let targets = self.index.dynamic_targets(reference, target, owner);
        Ok(if targets.len() > 1 {
            InPlaceApplicator::Dynamic { initial, targets }
        } else {
            InPlaceApplicator::Apply(initial)
        })
    }

    /// Returns the subschema that a chain of subschemas with nothing but a `$ref` leads to.
    fn shortcut(&self, mut id: Id) -> Id {
        for _ in 0..MAX_SHORTCUTS {
            let Subschema { value: Value::Object(members), resource } = self.index.subschemas[id as usize]
            else {
                break;
            };
            let Some(Value::String(reference)) = members.get("$ref") else { break };
            let is_ref_or_annotation = |key: &String| key == "$ref" || is_annotation(key);
            if !self.ignores_siblings(members) && !members.keys().all(is_ref_or_annotation) {
                break;
            }
            let Ok((target, _)) = self.index.resolve(reference, resource) else { break };
            let Some(target) = self.index.find(target) else { break };
            if self.index.subschemas[target as usize].resource != resource {
                break; // a later `$dynamicRef` depends on the resources passed through
            }
            id = target;
        }
        id
    }
}

fn number_keyword(node: &mut Node, key: &str, value: &Value) -> Result<(), String> {
    let Value::Number(number) = value else { return Err("must be a number".into()) };
    let bound = Some(Bound { limit: Number::from_json(number), text: number.to_string() });
    let numbers = node.number.get_or_insert_default();
    match key {
        "minimum" => numbers.minimum = bound,
        "maximum" => numbers.maximum = bound,
        "exclusiveMinimum" => numbers.exclusive_minimum = bound,
        "exclusiveMaximum" => numbers.exclusive_maximum = bound,
        _ if Number::from_json(number).is_positive() => numbers.multiple_of = bound,
        _ => return Err("must be greater than 0".into()),
    }
    Ok(())
}
