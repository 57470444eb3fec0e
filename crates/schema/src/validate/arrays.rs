//! Validation of the array keywords.

use serde_json::Value;

use super::{Flow, Marks, Run, Stop};
use crate::equal::is_unique;
use crate::error::{Place, shown};
use crate::evaluated::Seen;
use crate::node::{Arrays, Contains, Node, Rest};

impl<'s> Run<'s> {
    #[inline(never)]
    pub(super) fn array(
        &mut self,
        rules: &'s Arrays,
        items: &[Value],
        value: &Value,
        place: &Place<'_>,
        mut marks: Marks<'_>,
    ) -> Flow {
        let count = items.len() as u64;
        let words = |limit: u64| format!("{limit} item{}", if limit == 1 { "" } else { "s" });
        if count < rules.size.min {
            self.fail(place, || format!("{} has less than {}", shown(value), words(rules.size.min)))?;
        }
        if let Some(max) = rules.size.max.filter(|max| count > *max) {
            self.fail(place, || format!("{} has more than {}", shown(value), words(max)))?;
        }
        for (index, (item, id)) in items.iter().zip(&rules.prefix).enumerate() {
            self.check(*id, item, &Place::Index(place, index), None)?;
            if let Some(marks) = &mut marks {
                marks.add(index);
            }
        }
        self.rest(rules, items, place, marks.as_deref_mut())?;
        if let Some(contains) = &rules.contains {
            self.contains(contains, items, value, place, marks)?;
        }
        if rules.unique && !is_unique(items, &mut self.work) {
            self.fail(place, || format!("{} has non-unique elements", shown(value)))?;
        }
        Ok(())
    }

    fn rest(&mut self, rules: &Arrays, items: &[Value], place: &Place<'_>, marks: Marks<'_>) -> Flow {
        let left = items.get(rules.prefix.len()..).unwrap_or_default();
        match rules.rest {
            None => return Ok(()),
            Some(Rest::Any) => {}
            Some(Rest::Never) if left.is_empty() => {}
            Some(Rest::Never) => self.fail(place, || {
                let shown: Vec<String> = left.iter().take(5).map(shown).collect();
                unexpected("Additional items", "", &shown, left.len())
            })?,
            Some(Rest::Each(id)) => {
                for (index, item) in (rules.prefix.len()..).zip(left) {
                    self.check(id, item, &Place::Index(place, index), None)?;
                }
            }
        }
        if let Some(marks) = marks {
            self.spend(items.len())?;
            marks.add_all(items.len());
        }
        Ok(())
    }

    #[inline(never)]
    fn contains(
        &mut self,
        rule: &Contains,
        items: &[Value],
        value: &Value,
        place: &Place<'_>,
        mut marks: Marks<'_>,
    ) -> Flow {
        let mut found = 0;
        for (index, item) in items.iter().enumerate() {
            if !self.fits(rule.node, item, None) {
                continue;
            }
            found += 1;
            match &mut marks {
                Some(marks) if rule.marks => marks.add(index),
                _ if rule.count.max.map_or(found >= rule.count.min, |max| found > max) => break,
                _ => {}
            }
        }
        if found < rule.count.min {
            self.fail(place, || match (found, rule.count.min) {
                (0, _) => format!("None of {} are valid under the given schema", shown(value)),
                (_, min) => format!(
                    "{} has less than {min} items that are valid under the given schema",
                    shown(value)
                ),
            })?;
        }
        if let Some(max) = rule.count.max.filter(|max| found > *max) {
            self.fail(place, || {
                let value = shown(value);
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
        place: &Place<'_>,
        marks: Marks<'_>,
    ) -> Flow {
        let (Some(id), mut seen, before) = (node.unevaluated_items, Seen::default(), self.faults.len())
        else {
            return Err(Stop);
        };
        self.keywords(node, value, place, Some(&mut seen))?;
        if self.faults.len() > before {
            return Ok(());
        }
        self.spend(items.len())?;
        let left = || items.iter().enumerate().filter(|(index, _)| !seen.contains(*index));
        if !self.is_never(id) {
            for (index, item) in left() {
                self.check(id, item, &Place::Index(place, index), None)?;
            }
        } else if left().next().is_some() {
            self.fail(place, || {
                let shown: Vec<String> = left().take(5).map(|(_, item)| shown(item)).collect();
                unexpected("Unevaluated items", "'", &shown, left().count())
            })?;
        }
        if let Some(marks) = marks {
            marks.add_all(items.len());
        }
        Ok(())
    }
}

/// Formats `… are not allowed ('a', 'b' were unexpected)`. `names` may be fewer than `count`.
pub(super) fn unexpected(what: &str, quote: &str, names: &[String], count: usize) -> String {
    let mut text = format!("{what} are not allowed (");
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
