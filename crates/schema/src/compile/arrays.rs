//! Compilation of the schema keywords for arrays.

use serde_json::Value;

use super::{Compiler, Members, keyword_value};
use crate::dialect::Dialect;
use crate::node::{Contains, Counts, Node, RestSchema};

impl Compiler<'_> {
    /// Compiles a keyword for arrays into the node of its schema. Returns `false` for other keywords.
    pub(super) fn array_keyword(
        &mut self,
        node: &mut Node,
        members: &Members,
        key: &str,
        value: &Value,
    ) -> Result<bool, String> {
        let newest = self.index.dialect == Dialect::Draft202012;
        let old = self.index.dialect == Dialect::Draft07;
        match key {
            "minItems" => node.array.get_or_insert_default().size.min = keyword_value::count(value)?,
            "maxItems" => node.array.get_or_insert_default().size.max = Some(keyword_value::count(value)?),
            "uniqueItems" => {
                if keyword_value::boolean(value)? {
                    node.array.get_or_insert_default().unique = true;
                }
            }
            "prefixItems" if newest => node.array.get_or_insert_default().prefix = self.schemas(value)?,
            "items" if value.is_array() && newest => {
                return Err("must not be an array: use prefixItems, or set $schema to an older draft".into());
            }
            "items" if value.is_array() => {
                let prefix =
                    if value == &Value::Array(Vec::new()) { Vec::new() } else { self.schemas(value)? };
                node.array.get_or_insert_default().prefix = prefix;
            }
            "items" => node.array.get_or_insert_default().additional_items = Some(self.rest(value)?),
            "additionalItems" if !newest => {
                let rest = self.rest(value)?;
                if members.get("items").is_some_and(Value::is_array) {
                    node.array.get_or_insert_default().additional_items = Some(rest);
                }
            }
            "contains" => {
                let bound =
                    |key: &str| members.get(key).filter(|_| !old).map(keyword_value::count).transpose();
                let count = Counts { min: bound("minContains")?.unwrap_or(1), max: bound("maxContains")? };
                let node_id = self.schema(value)?;
                node.array.get_or_insert_default().contains =
                    Some(Contains { node: node_id, count, marks_evaluated: newest });
            }
            "minContains" | "maxContains" if !old => drop(keyword_value::count(value)?),
            "unevaluatedItems" if !old => node.unevaluated_items = Some(self.schema(value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Compiles the subschema for the members or items that no other keyword covers.
    pub(super) fn rest(&self, value: &Value) -> Result<RestSchema, String> {
        Ok(match value {
            Value::Bool(true) => RestSchema::Any,
            Value::Bool(false) => RestSchema::Never,
            other => RestSchema::Each(self.schema(other)?),
        })
    }
}
