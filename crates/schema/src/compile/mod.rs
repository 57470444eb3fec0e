//! Compiler from a document to nodes. Every subschema is compiled once, even if nothing refers to it: a schema is
//! either accepted or rejected as a whole. The compiler does not recurse; the index has already found the subschemas.

mod arrays;
mod keyword_value;
mod objects;

use serde_json::{Map, Value};

use crate::dialect::{Dialect, is_annotation};
use crate::error::{Fault, push_step, shown};
use crate::index::{Found, Index};
use crate::node::{Applied, Bound, Id, Node, Types};
use crate::number::Number;
use crate::pattern::Pattern;
use crate::{Limits, Schema};

/// Number of references that are followed at compile time. Longer chains and cycles are left to validation and its
/// limits.
const SHORTCUTS: usize = 8;
/// Maximum nesting depth of the values of `const` and `enum`.
const VALUE_DEPTH: usize = 128;

pub(crate) struct Compiler<'a> {
    index: Index<'a>,
    /// Remaining bytes for compiled patterns.
    room: usize,
}

type Members = Map<String, Value>;

pub(crate) fn compile(document: &Value, limits: Limits) -> Result<Schema, Fault> {
    let mut compiler = Compiler { index: Index::new(document, limits)?, room: limits.patterns };
    let mut nodes = Vec::with_capacity(compiler.index.found.len());
    for number in 0..compiler.index.found.len() {
        nodes.push(compiler.node(number)?);
    }
    let is_dynamic = |applied: &Applied| matches!(applied, Applied::Dynamic { .. });
    let dynamic = nodes.iter().any(|node: &Node| node.applied.iter().any(is_dynamic));
    // The first entry of the index is the document.
    let root = compiler.shortcut(0);
    Ok(Schema { nodes, root, dynamic, work: limits.work })
}

impl<'a> Compiler<'a> {
    fn node(&mut self, number: usize) -> Result<Node, Fault> {
        let Found { value: whole, resource } = self.index.found[number];
        let mut node = Node { resource, ..Node::default() };
        let Value::Object(members) = whole else {
            if *whole == Value::Bool(false) {
                node.types = Types::NONE;
            }
            return Ok(node.finish());
        };
        let alone = self.is_alone(members);
        for (key, value) in members {
            if alone && key != "$ref" {
                continue;
            }
            self.keyword(&mut node, members, key, value).map_err(|reason| {
                let mut path = self.index.path(whole);
                push_step(&mut path, key);
                Fault { path, reason }
            })?;
        }
        objects::finish(&mut node);
        Ok(node.finish())
    }

    /// Reports whether all keywords beside `$ref` are ignored, as in draft-07.
    fn is_alone(&self, members: &Members) -> bool {
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
                node.values.get_or_insert_default().constant = Some(keyword_value::value(value, VALUE_DEPTH)?)
            }
            "enum" => {
                let options = value.as_array().ok_or("must be an array")?;
                let options = options.iter().map(|option| keyword_value::value(option, VALUE_DEPTH));
                node.values.get_or_insert_default().options = Some(options.collect::<Result<_, _>>()?);
            }
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" => {
                number_keyword(node, key, value)?;
            }
            "minLength" => node.text.get_or_insert_default().length.min = keyword_value::count(value)?,
            "maxLength" => node.text.get_or_insert_default().length.max = Some(keyword_value::count(value)?),
            "pattern" => {
                node.text.get_or_insert_default().pattern = Some(self.pattern(keyword_value::text(value)?)?)
            }
            "format" | "title" | "description" | "$comment" => drop(keyword_value::text(value)?),
            "$defs" | "definitions" => {
                keyword_value::object(value)?.values().try_for_each(|inner| self.schema(inner).map(drop))?;
            }
            "$ref" => node
                .applied
                .push(Applied::Each(self.reference(keyword_value::text(value)?, node.resource)?.0)),
            "$dynamicRef" if self.index.dialect == Dialect::Draft202012 => {
                node.applied.push(self.dynamic_reference(keyword_value::text(value)?, node.resource)?);
            }
            "$recursiveRef" if self.index.dialect == Dialect::Draft201909 => {
                return Err("is not supported: use $ref, or $dynamicRef of 2020-12".into());
            }
            "allOf" => node.applied.extend(self.schemas(value)?.into_iter().map(Applied::Each)),
            "anyOf" => node.applied.push(Applied::Any(self.schemas(value)?)),
            "oneOf" => node.applied.push(Applied::One(self.schemas(value)?)),
            "not" => node.applied.push(Applied::Not(self.schema(value)?, shown(value))),
            "if" => {
                let branch = |key: &str| members.get(key).map(|branch| self.schema(branch)).transpose();
                let (then, otherwise) = (branch("then")?, branch("else")?);
                node.applied.push(Applied::If { condition: self.schema(value)?, then, otherwise });
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
        Pattern::new(source, &mut self.room)
    }

    fn reference(&self, reference: &str, resource: u32) -> Result<(Id, &'a Value, u32), String> {
        let (target, owner) = self.index.resolve(reference, resource)?;
        let id =
            self.index.find(target).ok_or_else(|| format!("{reference:?} does not refer to a schema"))?;
        Ok((self.shortcut(id), target, owner))
    }

    fn dynamic_reference(&self, reference: &str, resource: u32) -> Result<Applied, String> {
        let (initial, target, owner) = self.reference(reference, resource)?;
        let targets = self.index.dynamic_targets(reference, target, owner);
        Ok(if targets.len() > 1 { Applied::Dynamic { initial, targets } } else { Applied::Each(initial) })
    }

    /// Returns the target of a subschema that is only a `$ref`.
    fn shortcut(&self, mut id: Id) -> Id {
        for _ in 0..SHORTCUTS {
            let Found { value: Value::Object(members), resource } = self.index.found[id as usize] else {
                break;
            };
            let Some(Value::String(reference)) = members.get("$ref") else { break };
            let only = |key: &String| key == "$ref" || is_annotation(key);
            if !self.is_alone(members) && !members.keys().all(only) {
                break;
            }
            let Ok((target, _)) = self.index.resolve(reference, resource) else { break };
            let Some(target) = self.index.find(target) else { break };
            if self.index.found[target as usize].resource != resource {
                break; // a later `$dynamicRef` depends on the resources passed through
            }
            id = target;
        }
        id
    }
}

fn number_keyword(node: &mut Node, key: &str, value: &Value) -> Result<(), String> {
    let Value::Number(number) = value else { return Err("must be a number".into()) };
    let bound = Some(Bound { limit: Number::of(number), text: number.to_string() });
    let numbers = node.number.get_or_insert_default();
    match key {
        "minimum" => numbers.minimum = bound,
        "maximum" => numbers.maximum = bound,
        "exclusiveMinimum" => numbers.exclusive_minimum = bound,
        "exclusiveMaximum" => numbers.exclusive_maximum = bound,
        _ if Number::of(number).is_positive() => numbers.multiple_of = bound,
        _ => return Err("must be greater than 0".into()),
    }
    Ok(())
}
