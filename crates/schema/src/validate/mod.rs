//! Validation of one value: keywords for all types, for numbers and for strings.

mod arrays;
mod in_place;
mod objects;

use std::cmp::Ordering;

use serde_json::Value;

use crate::Schema;
use crate::budget::{Over, Work};
use crate::equal::{is_equal, text_cost};
use crate::error::{Fault, Place, cut, shown};
use crate::evaluated::Seen;
use crate::node::{Counts, Id, Node, Numbers, Texts, Types, Values};
use crate::number::Number;
use crate::pattern::Pattern;

/// Running validation.
pub(crate) struct Run<'s> {
    schema: &'s Schema,
    work: Work,
    /// Whether only validity is of interest: the first error ends the validation, and no message is created.
    quiet: bool,
    max: usize,
    faults: Vec<Fault>,
    /// Resources in the dynamic scope, outermost first, for `$dynamicRef`.
    scope: Vec<u32>,
}

/// Ends the validation: the outcome is known, or the work is exhausted.
pub(crate) struct Stop;

pub(crate) type Flow = Result<(), Stop>;

/// Evaluated members or items, if an `unevaluated…` keyword needs them.
pub(crate) type Marks<'m> = Option<&'m mut Seen>;

impl<'s> Run<'s> {
    pub(crate) fn new(schema: &'s Schema, max: usize) -> Self {
        Self {
            schema,
            work: Work::new(schema.work),
            quiet: false,
            max,
            faults: Vec::new(),
            scope: Vec::new(),
        }
    }

    pub(crate) fn quiet(schema: &'s Schema) -> Self {
        Self { quiet: true, ..Self::new(schema, 1) }
    }

    /// Validates a value and returns its errors. A quiet validation returns an error without a reason.
    pub(crate) fn finish(mut self, value: &Value) -> Vec<Fault> {
        let flow = self.check(self.schema.root, value, &Place::Root, None);
        let reason = match (self.work.over(), flow) {
            (Some(Over::Steps), _) => {
                "the value cannot be checked: schema and value together require too many steps"
            }
            (Some(Over::Depth), _) => {
                "the value cannot be checked: schema and value together are nested too deeply"
            }
            (None, Err(Stop)) if self.faults.is_empty() => "",
            _ => return self.faults,
        };
        // Errors found so far may depend on validations that were aborted.
        vec![Fault { path: String::new(), reason: reason.into() }]
    }

    /// Validates a value. Unless quiet, errors are collected up to the maximum.
    #[inline]
    pub(crate) fn check(&mut self, id: Id, value: &Value, place: &Place<'_>, marks: Marks<'_>) -> Flow {
        let schema = self.schema;
        let node = &schema.nodes[id as usize];
        if node.simple && node.types.allow(value) && self.work.spend(1) {
            return Ok(());
        }
        self.check_keywords(node, value, place, marks)
    }

    fn check_keywords(&mut self, node: &'s Node, value: &Value, place: &Place<'_>, marks: Marks<'_>) -> Flow {
        if !self.work.enter() {
            return Err(Stop);
        }
        let schema = self.schema;
        if schema.dynamic {
            self.scope.push(node.resource);
        }
        let flow = match value {
            Value::Array(items) if node.unevaluated_items.is_some() => {
                self.with_unevaluated_items(node, value, items, place, marks)
            }
            Value::Object(members) if node.unevaluated_properties.is_some() => {
                self.with_unevaluated_properties(node, value, members, place, marks)
            }
            _ => self.keywords(node, value, place, marks),
        };
        self.scope.pop();
        self.work.leave();
        flow
    }

    /// Reports whether a value is valid, without collecting errors.
    fn fits(&mut self, id: Id, value: &Value, marks: Marks<'_>) -> bool {
        let quiet = std::mem::replace(&mut self.quiet, true);
        let flow = self.check(id, value, &Place::Root, marks);
        self.quiet = quiet;
        flow.is_ok()
    }

    #[cold]
    #[inline(never)]
    fn fail(&mut self, place: &Place<'_>, reason: impl FnOnce() -> String) -> Flow {
        if self.quiet || self.work.over().is_some() {
            return Err(Stop);
        }
        self.faults.push(Fault { path: place.pointer(), reason: cut(reason()) });
        if self.faults.len() < self.max { Ok(()) } else { Err(Stop) }
    }

    fn spend(&mut self, steps: usize) -> Flow {
        if self.work.spend(steps as u64) { Ok(()) } else { Err(Stop) }
    }

    #[inline]
    fn keywords(&mut self, node: &'s Node, value: &Value, place: &Place<'_>, mut marks: Marks<'_>) -> Flow {
        if !node.types.allow(value) {
            self.fail(place, || wrong_type(node.types, value))?;
        }
        if let Some(values) = &node.values {
            self.values(values, value, place)?;
        }
        match value {
            Value::Number(number) => {
                if let Some(rules) = &node.number {
                    self.number(rules, Number::of(number), value, place)?;
                }
            }
            Value::String(text) => {
                if let Some(rules) = &node.text {
                    self.text(rules, text, value, place)?;
                }
            }
            Value::Array(items) => {
                if let Some(rules) = &node.array {
                    self.array(rules, items, value, place, marks.as_deref_mut())?;
                }
            }
            Value::Object(members) => {
                if let Some(rules) = &node.object {
                    self.object(rules, members, value, place, marks.as_deref_mut())?;
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
        for applied in &node.applied {
            self.applied(applied, value, place, marks.as_deref_mut())?;
        }
        Ok(())
    }

    #[inline(never)]
    fn values(&mut self, values: &Values, value: &Value, place: &Place<'_>) -> Flow {
        if let Some(constant) = &values.constant
            && !is_equal(constant, value, &mut self.work)
        {
            self.fail(place, || format!("{} was expected", shown(constant)))?;
        }
        if let Some(options) = &values.options
            && !options.iter().any(|option| is_equal(option, value, &mut self.work))
        {
            self.fail(place, || no_option(options, value))?;
        }
        Ok(())
    }

    #[inline(never)]
    fn number(&mut self, rules: &Numbers, number: Number, value: &Value, place: &Place<'_>) -> Flow {
        let bounds = [
            (&rules.minimum, [Ordering::Greater, Ordering::Equal], "less than the minimum of"),
            (&rules.exclusive_minimum, [Ordering::Greater; 2], "less than or equal to the minimum of"),
            (&rules.maximum, [Ordering::Less, Ordering::Equal], "greater than the maximum of"),
            (&rules.exclusive_maximum, [Ordering::Less; 2], "greater than or equal to the maximum of"),
        ];
        for (bound, allowed, words) in bounds {
            if let Some(bound) = bound
                && !allowed.contains(&number.compare(bound.limit))
            {
                self.fail(place, || format!("{value} is {words} {}", bound.text))?;
            }
        }
        if let Some(bound) = &rules.multiple_of
            && !number.is_multiple_of(bound.limit)
        {
            self.fail(place, || format!("{value} is not a multiple of {}", bound.text))?;
        }
        Ok(())
    }

    #[inline(never)]
    fn text(&mut self, rules: &Texts, text: &str, value: &Value, place: &Place<'_>) -> Flow {
        let Counts { min, max } = rules.length;
        // A character takes one to four bytes, so most strings need not be counted.
        let bytes = text.len() as u64;
        if bytes / 4 < min || max.is_some_and(|max| bytes > max) {
            self.spend(usize::try_from(text_cost(text)).unwrap_or(usize::MAX))?;
            let length = text.chars().count() as u64;
            let words = |limit: u64| format!("{limit} character{}", if limit == 1 { "" } else { "s" });
            if length < min {
                self.fail(place, || format!("{} is shorter than {}", shown(value), words(min)))?;
            }
            if let Some(max) = max.filter(|max| length > *max) {
                self.fail(place, || format!("{} is longer than {}", shown(value), words(max)))?;
            }
        }
        if let Some(pattern) = &rules.pattern
            && !self.matches(pattern, text)?
        {
            self.fail(place, || format!("{} does not match \"{}\"", shown(value), pattern.source))?;
        }
        Ok(())
    }

    fn matches(&mut self, pattern: &Pattern, text: &str) -> Result<bool, Stop> {
        let steps = pattern.weight.saturating_mul(text.len() as u64 + 1);
        if self.work.spend(steps) { Ok(pattern.is_match(text)) } else { Err(Stop) }
    }
}

fn wrong_type(types: Types, value: &Value) -> String {
    let names: Vec<String> = types.names().map(|name| format!("\"{name}\"")).collect();
    let value = shown(value);
    match names.len() {
        0 => format!("False schema does not allow {value}"),
        1 => format!("{value} is not of type {}", names.concat()),
        _ => format!("{value} is not of types {}", names.join(", ")),
    }
}

/// Formats the error for `enum`. Names up to three options; of more options, the first two.
fn no_option(options: &[Value], value: &Value) -> String {
    let value = shown(value);
    let named: Vec<String> = options.iter().take(3).map(shown).collect();
    match &*named {
        [] => format!("{value} is not allowed: the enum is empty"),
        [one] => format!("{value} is not one of {one}"),
        [one, two, _] if options.len() > 3 => {
            format!("{value} is not one of {one}, {two} or {} other candidates", options.len() - 2)
        }
        [first @ .., last] => format!("{value} is not one of {} or {last}", first.join(", ")),
    }
}
