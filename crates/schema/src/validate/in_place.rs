//! In-place applicators: references, combinations and conditions on the same value.

use serde_json::Value;

use super::{EvaluatedMarks, Flow, Validation};
use crate::error::{InstancePath, display_value};
use crate::evaluated::EvaluatedSet;
use crate::node::{Id, InPlaceApplicator};

impl Validation<'_> {
    #[inline(never)]
    pub(super) fn in_place(
        &mut self,
        applied: &InPlaceApplicator,
        value: &Value,
        path: &InstancePath<'_>,
        mut marks: EvaluatedMarks<'_>,
    ) -> Flow {
        match applied {
            InPlaceApplicator::Apply(id) => self.check(*id, value, path, marks)?,
            InPlaceApplicator::Dynamic { initial, targets } => {
                let find = |resource: &u32| targets.iter().find(|(owner, _)| owner == resource);
                let id = self.dynamic_scope.iter().find_map(find).map_or(*initial, |(_, id)| *id);
                self.check(id, value, path, marks)?;
            }
            InPlaceApplicator::AnyOf(ids) => {
                if self.count(ids, value, None, marks) == 0 {
                    self.report_no_match("anyOf", ids, value, path)?;
                }
            }
            InPlaceApplicator::OneOf(ids) => match self.count(ids, value, Some(1), marks) {
                0 => self.report_no_match("oneOf", ids, value, path)?,
                1 => {}
                _ => self.report(path, || {
                    let value = display_value(value);
                    format!(
                        "{value} is valid under more than one of the schemas listed in the 'oneOf' keyword"
                    )
                })?,
            },
            InPlaceApplicator::Not(id, text) => {
                if self.is_valid(*id, value, None) {
                    self.report(path, || format!("{text} is not allowed for {}", display_value(value)))?;
                }
            }
            InPlaceApplicator::If { condition, then, otherwise } => {
                let mut branch = EvaluatedSet::default();
                let branch_marks = marks.is_some().then_some(&mut branch);
                let next = if self.is_valid(*condition, value, branch_marks) {
                    if let Some(marks) = &mut marks {
                        marks.merge(&branch);
                    }
                    then
                } else {
                    otherwise
                };
                if let Some(id) = next {
                    self.check(*id, value, path, marks)?;
                }
            }
        }
        Ok(())
    }

    /// Counts the subschemas that accept a value, for `anyOf` and `oneOf`. Without `marks`, counting stops as soon
    /// as the count exceeds `max_count` (default: 0).
    fn count(
        &mut self,
        ids: &[Id],
        value: &Value,
        max_count: Option<usize>,
        mut marks: EvaluatedMarks<'_>,
    ) -> usize {
        let mut count = 0;
        for id in ids {
            let mut branch = EvaluatedSet::default();
            let branch_marks = marks.is_some().then_some(&mut branch);
            if self.is_valid(*id, value, branch_marks) {
                count += 1;
                match &mut marks {
                    Some(marks) => marks.merge(&branch),
                    None if count > max_count.unwrap_or(0) => break,
                    None => {}
                }
            }
        }
        count
    }

    /// Reports why a value is valid under none of the schemas of a keyword such as `anyOf`. If only one of them accepts
    /// the type of the value, its errors are reported.
    #[inline(never)]
    fn report_no_match(&mut self, keyword: &str, ids: &[Id], value: &Value, path: &InstancePath<'_>) -> Flow {
        let schema = self.schema;
        if !self.quiet {
            let mut candidates = ids.iter().filter(|id| schema.nodes[**id as usize].types.allows(value));
            if let (Some(candidate), None, true) = (candidates.next(), candidates.next(), ids.len() > 1) {
                return self.check(*candidate, value, path, None);
            }
        }
        self.report(path, || {
            let value = display_value(value);
            format!("{value} is not valid under any of the schemas listed in the '{keyword}' keyword")
        })
    }
}
