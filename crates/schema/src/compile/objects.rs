//! Compilation of the schema keywords for objects.

use serde_json::Value;

use super::{Compiler, keyword_value};
use crate::dialect::Dialect;
use crate::node::{Dependent, Member, Node};

impl Compiler<'_> {
    /// Compiles a keyword for objects into the node of its schema. Other keywords are ignored.
    pub(super) fn object_keyword(&mut self, node: &mut Node, key: &str, value: &Value) -> Result<(), String> {
        let old = self.index.dialect == Dialect::Draft07;
        match key {
            "minProperties" => node.object.get_or_insert_default().size.min = keyword_value::count(value)?,
            "maxProperties" => {
                node.object.get_or_insert_default().size.max = Some(keyword_value::count(value)?);
            }
            "required" => node.object.get_or_insert_default().required = keyword_value::names(value)?,
            "properties" => {
                for (name, inner) in keyword_value::object(value)? {
                    let member = self.schema(inner).map_err(|reason| format!("{name:?} {reason}"))?;
                    let members = &mut node.object.get_or_insert_default().members;
                    members.push(Member { name: name.as_str().into(), node: Some(member), required: false });
                }
            }
            "patternProperties" => {
                for (source, inner) in keyword_value::object(value)? {
                    let pattern = (self.pattern(source)?, self.schema(inner)?);
                    node.object.get_or_insert_default().patterns.push(pattern);
                }
            }
            "additionalProperties" => {
                node.object.get_or_insert_default().additional_properties = Some(self.rest(value)?);
            }
            "propertyNames" => node.object.get_or_insert_default().names = Some(self.schema(value)?),
            "dependentRequired" | "dependentSchemas" if old => {}
            "dependentRequired" | "dependentSchemas" | "dependencies" => {
                for (name, inner) in keyword_value::object(value)? {
                    let names = key == "dependentRequired" || (key == "dependencies" && inner.is_array());
                    let (required, schema) = if names {
                        (keyword_value::names(inner)?, None)
                    } else {
                        (Vec::new(), Some(self.schema(inner)?))
                    };
                    let dependents = &mut node.object.get_or_insert_default().dependents;
                    dependents.push(Dependent { name: name.as_str().into(), required, node: schema });
                }
            }
            "unevaluatedProperties" if !old => node.unevaluated_properties = Some(self.schema(value)?),
            _ => {}
        }
        Ok(())
    }
}

/// Merges the compiled keywords `properties` and `required` of a node into one sorted table.
pub(super) fn finish(node: &mut Node) {
    let Some(object) = &mut node.object else { return };
    object.members.sort_unstable_by(|left, right| left.cmp_name(&right.name));
    let named = object.members.len();
    for name in &object.required {
        match object.members[..named].binary_search_by(|member| member.cmp_name(name)) {
            Ok(at) => object.members[at].required = true,
            Err(_) => object.members.push(Member { name: name.clone(), node: None, required: true }),
        }
    }
    object.members.sort_unstable_by(|left, right| left.cmp_name(&right.name));
}
