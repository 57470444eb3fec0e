//! Validation of objects against the object keywords.

use serde_json::{Map, Value};

use super::arrays::unexpected_message;
use super::{Aborted, EvaluatedMarks, Flow, Validation};
use crate::equal::text_cost;
use crate::error::{InstancePath, display_value};
use crate::evaluated::EvaluatedSet;
use crate::node::{Dependent, Id, Node, ObjectKeywords, RestSchema, Types};

type Members = Map<String, Value>;

impl<'s> Validation<'s> {
    #[inline(never)]
    pub(super) fn object(
        &mut self,
        keywords: &'s ObjectKeywords,
        members: &Members,
        value: &Value,
        path: &InstancePath<'_>,
        mut marks: EvaluatedMarks<'_>,
    ) -> Flow {
        self.size(keywords, members, value, path)?;
        self.members(keywords, members, path, marks.as_deref_mut())?;
        if let Some(names) = keywords.names {
            for name in members.keys() {
                self.spend_on_name(name)?;
                self.check(names, &Value::String(name.clone()), path, None)?;
            }
        }
        for dependent in &keywords.dependents {
            self.dependent(dependent, members, value, path, marks.as_deref_mut())?;
        }
        Ok(())
    }

    fn size(
        &mut self,
        keywords: &ObjectKeywords,
        members: &Members,
        value: &Value,
        path: &InstancePath<'_>,
    ) -> Flow {
        let count = members.len() as u64;
        let words = |limit: u64| format!("{limit} propert{}", if limit == 1 { "y" } else { "ies" });
        if count < keywords.size.min {
            self.report(path, || {
                format!("{} has less than {}", display_value(value), words(keywords.size.min))
            })?;
        }
        if let Some(max) = keywords.size.max.filter(|max| count > *max) {
            self.report(path, || format!("{} has more than {}", display_value(value), words(max)))?;
        }
        Ok(())
    }

    /// Validates the members of an object in one pass, for all keywords that select them by name.
    fn members(
        &mut self,
        keywords: &'s ObjectKeywords,
        members: &Members,
        path: &InstancePath<'_>,
        mut marks: EvaluatedMarks<'_>,
    ) -> Flow {
        let mut required = 0;
        let mut unknown = Vec::new();
        self.spend(members.len())?;
        for (index, (name, value)) in members.iter().enumerate() {
            let inner = InstancePath::Key(path, name);
            let mut is_matched = false;
            self.spend_on_name(name)?;
            if let Ok(at) = keywords.members.binary_search_by(|member| member.cmp_name(name)) {
                let member = &keywords.members[at];
                required += usize::from(member.required);
                if let Some(id) = member.node {
                    is_matched = true;
                    self.check(id, value, &inner, None)?;
                }
            }
            for (pattern, id) in &keywords.patterns {
                if self.matches(pattern, name)? {
                    is_matched = true;
                    self.check(*id, value, &inner, None)?;
                }
            }
            if !is_matched {
                match keywords.additional_properties {
                    None => continue,
                    Some(RestSchema::Any) => {}
                    Some(RestSchema::Each(id)) => self.check(id, value, &inner, None)?,
                    Some(RestSchema::Never) if self.quiet => return Err(Aborted),
                    Some(RestSchema::Never) => unknown.push(name),
                }
            }
            if let Some(marks) = &mut marks {
                marks.insert(index);
            }
        }
        if !unknown.is_empty() {
            self.report(path, || {
                unexpected_message("Additional properties", "'", &first_names(&unknown), unknown.len())
            })?;
        }
        if required < keywords.required.len() {
            self.required(&keywords.required, members, path)
        } else {
            Ok(())
        }
    }

    /// Charges the work budget for looking up a member name, in addition to the step itself. Zero unless the name is
    /// long.
    #[inline]
    fn spend_on_name(&mut self, name: &str) -> Flow {
        if text_cost(name) == 0 || self.budget.spend(text_cost(name)) { Ok(()) } else { Err(Aborted) }
    }

    #[inline(never)]
    fn required(&mut self, names: &[Box<str>], members: &Members, path: &InstancePath<'_>) -> Flow {
        self.spend(names.len())?;
        for name in names {
            self.spend_on_name(name)?;
            if members.contains_key(&**name) {
                continue;
            }
            self.report(path, || format!("{name:?} is a required property"))?;
        }
        Ok(())
    }

    #[inline(never)]
    fn dependent(
        &mut self,
        rule: &Dependent,
        members: &Members,
        value: &Value,
        path: &InstancePath<'_>,
        marks: EvaluatedMarks<'_>,
    ) -> Flow {
        self.spend(1)?;
        self.spend_on_name(&rule.name)?;
        if !members.contains_key(&*rule.name) {
            return Ok(());
        }
        self.required(&rule.required, members, path)?;
        match rule.node {
            Some(id) => self.check(id, value, path, marks),
            None => Ok(()),
        }
    }

    #[inline(never)]
    pub(super) fn with_unevaluated_properties(
        &mut self,
        node: &'s Node,
        value: &Value,
        members: &Members,
        path: &InstancePath<'_>,
        marks: EvaluatedMarks<'_>,
    ) -> Flow {
        let (Some(id), mut evaluated, before) =
            (node.unevaluated_properties, EvaluatedSet::default(), self.errors.len())
        else {
            return Err(Aborted);
        };
        self.keywords(node, value, path, Some(&mut evaluated))?;
        if self.errors.len() > before {
            return Ok(());
        }
        self.spend(members.len())?;
        let left = || members.iter().enumerate().filter(|(index, _)| !evaluated.contains(*index));
        if !self.allows_nothing(id) {
            for (_, (name, value)) in left() {
                self.check(id, value, &InstancePath::Key(path, name), None)?;
            }
        } else if left().next().is_some() {
            self.report(path, || {
                let names: Vec<&String> = left().map(|(_, (name, _))| name).collect();
                unexpected_message("Unevaluated properties", "'", &first_names(&names), names.len())
            })?;
        }
        if let Some(marks) = marks {
            marks.insert_first(members.len());
        }
        Ok(())
    }

    /// Reports whether a schema node allows no value, such as the schema `false`.
    pub(super) fn allows_nothing(&self, id: Id) -> bool {
        self.schema.nodes[id as usize].types == Types::NONE
    }
}

/// Returns the first five names, each truncated to 100 characters.
fn first_names(names: &[&String]) -> Vec<String> {
    names.iter().take(5).map(|name| name.chars().take(100).collect()).collect()
}
