//! Validation of one value: keywords for all types, for numbers and for strings.

mod arrays;
mod in_place;
mod objects;

use std::cmp::Ordering;

use serde_json::Value;

use crate::Schema;
use crate::budget::{BudgetError, WorkBudget};
use crate::equal::{is_equal, text_cost};
use crate::error::{InstancePath, ValidationError, display_value, truncate_reason};
use crate::evaluated::EvaluatedSet;
use crate::node::{Counts, Id, Node, NumberKeywords, StringKeywords, Types, Values};
use crate::number::Number;
use crate::pattern::Pattern;

/// State of the validation of one value against a schema.
pub(crate) struct Validation<'s> {
    schema: &'s Schema,
    budget: WorkBudget,
    /// Whether only validity is of interest: the first error ends the validation, and no message is created.
    quiet: bool,
    max_errors: usize,
    errors: Vec<ValidationError>,
    /// Resources in the dynamic scope, outermost first, for `$dynamicRef`.
    dynamic_scope: Vec<u32>,
}

/// Early end of a validation: the outcome is known, or the work budget is exhausted.
pub(crate) struct Aborted;

pub(crate) type Flow = Result<(), Aborted>;

/// Set in which a keyword marks the members or items that it evaluates; `None` if no `unevaluated…` keyword needs it.
pub(crate) type EvaluatedMarks<'m> = Option<&'m mut EvaluatedSet>;

impl<'s> Validation<'s> {
    pub(crate) fn new(schema: &'s Schema, max_errors: usize) -> Self {
        Self {
            schema,
            budget: WorkBudget::new(schema.max_work),
            quiet: false,
            max_errors,
            errors: Vec::new(),
            dynamic_scope: Vec::new(),
        }
    }

    pub(crate) fn without_errors(schema: &'s Schema) -> Self {
        Self { quiet: true, ..Self::new(schema, 1) }
    }

    /// Validates a value against the schema and returns the errors. A quiet validation returns an error without a
    /// reason.
    pub(crate) fn finish(mut self, value: &Value) -> Vec<ValidationError> {
        let flow = self.check(self.schema.root, value, &InstancePath::Root, None);
        let reason = match (self.budget.error(), flow) {
            (Some(BudgetError::Steps), _) => {
                "the value cannot be checked: schema and value together require too many steps"
            }
            (Some(BudgetError::Depth), _) => {
                "the value cannot be checked: schema and value together are nested too deeply"
            }
            (None, Err(Aborted)) if self.errors.is_empty() => "",
            _ => return self.errors,
        };
        // Errors found so far may depend on validations that were aborted.
        vec![ValidationError { path: String::new(), reason: reason.into() }]
    }

    /// Validates a value against one node of the schema. Unless quiet, errors are collected up to the maximum.
    #[inline]
    pub(crate) fn check(
        &mut self,
        id: Id,
        value: &Value,
        path: &InstancePath<'_>,
        marks: EvaluatedMarks<'_>,
    ) -> Flow {
        let schema = self.schema;
        let node = &schema.nodes[id as usize];
        if node.type_only && node.types.allows(value) && self.budget.spend(1) {
            return Ok(());
        }
        self.check_keywords(node, value, path, marks)
    }

    fn check_keywords(
        &mut self,
        node: &'s Node,
        value: &Value,
        path: &InstancePath<'_>,
        marks: EvaluatedMarks<'_>,
    ) -> Flow {
        if !self.budget.enter() {
            return Err(Aborted);
        }
        let schema = self.schema;
        if schema.dynamic {
            self.dynamic_scope.push(node.resource);
        }
        let flow = match value {
            Value::Array(items) if node.unevaluated_items.is_some() => {
                self.with_unevaluated_items(node, value, items, path, marks)
            }
            Value::Object(members) if node.unevaluated_properties.is_some() => {
                self.with_unevaluated_properties(node, value, members, path, marks)
            }
            _ => self.keywords(node, value, path, marks),
        };
        self.dynamic_scope.pop();
        self.budget.leave();
        flow
    }

    /// Reports whether a value is valid under a schema node, without collecting errors.
    fn is_valid(&mut self, id: Id, value: &Value, marks: EvaluatedMarks<'_>) -> bool {
        let quiet = std::mem::replace(&mut self.quiet, true);
        let flow = self.check(id, value, &InstancePath::Root, marks);
        self.quiet = quiet;
        flow.is_ok()
    }

    #[cold]
    #[inline(never)]
    fn report(&mut self, path: &InstancePath<'_>, reason: impl FnOnce() -> String) -> Flow {
        if self.quiet || self.budget.error().is_some() {
            return Err(Aborted);
        }
        self.errors.push(ValidationError { path: path.pointer(), reason: truncate_reason(reason()) });
        if self.errors.len() < self.max_errors { Ok(()) } else { Err(Aborted) }
    }

    fn spend(&mut self, steps: usize) -> Flow {
        if self.budget.spend(steps as u64) { Ok(()) } else { Err(Aborted) }
    }

    #[inline]
    fn keywords(
        &mut self,
        node: &'s Node,
        value: &Value,
        path: &InstancePath<'_>,
        mut marks: EvaluatedMarks<'_>,
    ) -> Flow {
        if !node.types.allows(value) {
            self.report(path, || type_message(node.types, value))?;
        }
        if let Some(values) = &node.values {
            self.values(values, value, path)?;
        }
        match value {
            Value::Number(number) => {
                if let Some(keywords) = &node.number {
                    self.number(keywords, Number::from_json(number), value, path)?;
                }
            }
            Value::String(text) => {
                if let Some(keywords) = &node.text {
                    self.text(keywords, text, value, path)?;
                }
            }
            Value::Array(items) => {
                if let Some(keywords) = &node.array {
                    self.array(keywords, items, value, path, marks.as_deref_mut())?;
                }
            }
            Value::Object(members) => {
                if let Some(keywords) = &node.object {
                    self.object(keywords, members, value, path, marks.as_deref_mut())?;
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
        for applied in &node.in_place {
            self.in_place(applied, value, path, marks.as_deref_mut())?;
        }
        Ok(())
    }

    #[inline(never)]
    fn values(&mut self, values: &Values, value: &Value, path: &InstancePath<'_>) -> Flow {
        if let Some(constant) = &values.constant
            && !is_equal(constant, value, &mut self.budget)
        {
            self.report(path, || format!("{} was expected", display_value(constant)))?;
        }
        if let Some(options) = &values.options
            && !options.iter().any(|option| is_equal(option, value, &mut self.budget))
        {
            self.report(path, || enum_message(options, value))?;
        }
        Ok(())
    }

    #[inline(never)]
    fn number(
        &mut self,
        keywords: &NumberKeywords,
        number: Number,
        value: &Value,
        path: &InstancePath<'_>,
    ) -> Flow {
        let bounds = [
            (&keywords.minimum, [Ordering::Greater, Ordering::Equal], "less than the minimum of"),
            (&keywords.exclusive_minimum, [Ordering::Greater; 2], "less than or equal to the minimum of"),
            (&keywords.maximum, [Ordering::Less, Ordering::Equal], "greater than the maximum of"),
            (&keywords.exclusive_maximum, [Ordering::Less; 2], "greater than or equal to the maximum of"),
        ];
        for (bound, allowed, words) in bounds {
            if let Some(bound) = bound
                && !allowed.contains(&number.compare(bound.limit))
            {
                self.report(path, || format!("{value} is {words} {}", bound.text))?;
            }
        }
        if let Some(bound) = &keywords.multiple_of
            && !number.is_multiple_of(bound.limit)
        {
            self.report(path, || format!("{value} is not a multiple of {}", bound.text))?;
        }
        Ok(())
    }

    #[inline(never)]
    fn text(
        &mut self,
        keywords: &StringKeywords,
        text: &str,
        value: &Value,
        path: &InstancePath<'_>,
    ) -> Flow {
        let Counts { min, max } = keywords.length;
        // A character takes one to four bytes, so most strings need not be counted.
        let bytes = text.len() as u64;
        if bytes / 4 < min || max.is_some_and(|max| bytes > max) {
            self.spend(usize::try_from(text_cost(text)).unwrap_or(usize::MAX))?;
            let length = text.chars().count() as u64;
            let words = |limit: u64| format!("{limit} character{}", if limit == 1 { "" } else { "s" });
            if length < min {
                self.report(path, || format!("{} is shorter than {}", display_value(value), words(min)))?;
            }
            if let Some(max) = max.filter(|max| length > *max) {
                self.report(path, || format!("{} is longer than {}", display_value(value), words(max)))?;
            }
        }
        if let Some(pattern) = &keywords.pattern
            && !self.matches(pattern, text)?
        {
            self.report(path, || format!("{} does not match \"{}\"", display_value(value), pattern.source))?;
        }
        Ok(())
    }

    fn matches(&mut self, pattern: &Pattern, text: &str) -> Result<bool, Aborted> {
        let steps = pattern.weight.saturating_mul(text.len() as u64 + 1);
        if self.budget.spend(steps) { Ok(pattern.is_match(text)) } else { Err(Aborted) }
    }
}

fn type_message(types: Types, value: &Value) -> String {
    let names: Vec<String> = types.names().map(|name| format!("\"{name}\"")).collect();
    let value = display_value(value);
    match names.len() {
        0 => format!("False schema does not allow {value}"),
        1 => format!("{value} is not of type {}", names.concat()),
        _ => format!("{value} is not of types {}", names.join(", ")),
    }
}

/// Formats the error of a value that is not one of the options of `enum`. Names up to three options; of more options,
/// the first two.
fn enum_message(options: &[Value], value: &Value) -> String {
    let value = display_value(value);
    let named: Vec<String> = options.iter().take(3).map(display_value).collect();
    match &*named {
        [] => format!("{value} is not allowed: the enum is empty"),
        [one] => format!("{value} is not one of {one}"),
        [one, two, _] if options.len() > 3 => {
            format!("{value} is not one of {one}, {two} or {} other candidates", options.len() - 2)
        }
        [first @ .., last] => format!("{value} is not one of {} or {last}", first.join(", ")),
    }
}
