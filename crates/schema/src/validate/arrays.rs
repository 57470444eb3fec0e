//! Validation of arrays against the array keywords.

use serde_json::Value;

use super::{Aborted, EvaluatedMarks, Flow, Validation};
use crate::equal::is_unique;
use crate::error::{InstancePath, display_value};
use crate::evaluated::EvaluatedSet;
use crate::node::{ArrayKeywords, Contains, Node, RestSchema};

impl<'s> Validation<'s> {
    #[inline(never)]
    pub(super) fn array(
        &mut self,
        keywords: &'s ArrayKeywords,
        items: &[Value],
        value: &Value,
        path: &InstancePath<'_>,
        mut marks: EvaluatedMarks<'_>,
    ) -> Flow {
        let count = items.len() as u64;
        let words = |limit: u64| format!("{limit} item{}", if limit == 1 { "" } else { "s" });
        if count < keywords.size.min {
            self.report(path, || {
                format!("{} has less than {}", display_value(value), words(keywords.size.min))
            })?;
        }
        if let Some(max) = keywords.size.max.filter(|max| count > *max) {
            self.report(path, || format!("{} has more than {}", display_value(value), words(max)))?;
        }
        for (index, (item, id)) in items.iter().zip(&keywords.prefix).enumerate() {
            self.check(*id, item, &InstancePath::Index(path, index), None)?;
            if let Some(marks) = &mut marks {
                marks.insert(index);
            }
        }
        self.rest(keywords, items, path, marks.as_deref_mut())?;
        if let Some(contains) = &keywords.contains {
            self.contains(contains, items, value, path, marks)?;
        }
        if keywords.unique && !is_unique(items, &mut self.budget) {
            self.report(path, || format!("{} has non-unique elements", display_value(value)))?;
        }
        Ok(())
    }

    fn rest(
        &mut self,
        keywords: &ArrayKeywords,
        items: &[Value],
        path: &InstancePath<'_>,
        marks: EvaluatedMarks<'_>,
    ) -> Flow {
        let left = items.get(keywords.prefix.len()..).unwrap_or_default();
        match keywords.additional_items {
            None => return Ok(()),
            Some(RestSchema::Any) => {}
            Some(RestSchema::Never) if left.is_empty() => {}
            Some(RestSchema::Never) => self.report(path, || {
                let first_values: Vec<String> = left.iter().take(5).map(display_value).collect();
                unexpected_message("Additional items", "", &first_values, left.len())
            })?,
            Some(RestSchema::Each(id)) => {
                for (index, item) in (keywords.prefix.len()..).zip(left) {
                    self.check(id, item, &InstancePath::Index(path, index), None)?;
                }
            }
        }
        if let Some(marks) = marks {
            self.spend(items.len())?;
            marks.insert_first(items.len());
        }
        Ok(())
    }

    #[inline(never)]
    fn contains(
        &mut self,
        rule: &Contains,
        items: &[Value],
        value: &Value,
        path: &InstancePath<'_>,
        mut marks: EvaluatedMarks<'_>,
    ) -> Flow {
        let mut found = 0;
        for (index, item) in items.iter().enumerate() {
            if !self.is_valid(rule.node, item, None) {
                continue;
            }
            found += 1;
            match &mut marks {
                Some(marks) if rule.marks_evaluated => marks.insert(index),
                _ if rule.count.max.map_or(found >= rule.count.min, |max| found > max) => break,
                _ => {}
            }
        }
        if found < rule.count.min {
            self.report(path, || match (found, rule.count.min) {
                (0, _) => format!("None of {} are valid under the given schema", display_value(value)),
                (_, min) => format!(
                    "{} has less than {min} items that are valid under the given schema",
                    display_value(value)
                ),
            })?;
        }
        if let Some(max) = rule.count.max.filter(|max| found > *max) {
            self.report(path, || {
                let value = display_value(value);
                format!("{value} has more than {max} items that are valid under the given schema")
            })?;
        }
        Ok(())
    }

    #[inline(never)]
    pub(super) fn with_unevaluated_items(
        &mut self,
        node: &'s Node,
        value: &Value,
        items: &[Value],
        path: &InstancePath<'_>,
        marks: EvaluatedMarks<'_>,
    ) -> Flow {
        let (Some(id), mut evaluated, before) =
            (node.unevaluated_items, EvaluatedSet::default(), self.errors.len())
        else {
            return Err(Aborted);
        };
        self.keywords(node, value, path, Some(&mut evaluated))?;
        if self.errors.len() > before {
            return Ok(());
        }
        self.spend(items.len())?;
        let left = || items.iter().enumerate().filter(|(index, _)| !evaluated.contains(*index));
        if !self.allows_nothing(id) {
            for (index, item) in left() {
                self.check(id, item, &InstancePath::Index(path, index), None)?;
            }
        } else if left().next().is_some() {
            self.report(path, || {
                let first_values: Vec<String> = left().take(5).map(|(_, item)| display_value(item)).collect();
                unexpected_message("Unevaluated items", "'", &first_values, left().count())
            })?;
        }
        if let Some(marks) = marks {
            marks.insert_first(items.len());
        }
        Ok(())
    }
}

/// Formats `… are not allowed ('a', 'b' were unexpected)`. `names` may be fewer than `count`.
pub(super) fn unexpected_message(noun: &str, quote: &str, names: &[String], count: usize) -> String {
    let mut text = format!("{noun} are not allowed (");
    for (index, name) in names.iter().enumerate() {
        text.push_str(if index == 0 { "" } else { ", " });
        text.extend([quote, name, quote]);
    }
    if count > names.len() {
        text.extend([" and ", &(count - names.len()).to_string(), " more"]);
    }
    text.push_str(if count == 1 { " was unexpected)" } else { " were unexpected)" });
    text
}
