//! In-place applicators: references, combinations and conditions on the same value.

use serde_json::Value;

use super::{Flow, Marks, Run};
use crate::error::{Place, shown};
use crate::evaluated::Seen;
use crate::node::{Applied, Id};

impl Run<'_> {
    #[inline(never)]
    pub(super) fn applied(
        &mut self,
        applied: &Applied,
        value: &Value,
        place: &Place<'_>,
        mut marks: Marks<'_>,
    ) -> Flow {
        match applied {
            Applied::Each(id) => self.check(*id, value, place, marks)?,
            Applied::Dynamic { initial, targets } => {
                let find = |resource: &u32| targets.iter().find(|(owner, _)| owner == resource);
                let id = self.scope.iter().find_map(find).map_or(*initial, |(_, id)| *id);
                self.check(id, value, place, marks)?;
            }
            Applied::Any(ids) => {
                if self.count(ids, value, None, marks) == 0 {
                    self.explain("anyOf", ids, value, place)?;
                }
            }
            Applied::One(ids) => match self.count(ids, value, Some(1), marks) {
                0 => self.explain("oneOf", ids, value, place)?,
                1 => {}
                _ => self.fail(place, || {
                    let value = shown(value);
                    format!(
                        "{value} is valid under more than one of the schemas listed in the 'oneOf' keyword"
                    )
                })?,
            },
            Applied::Not(id, text) => {
                if self.fits(*id, value, None) {
                    self.fail(place, || format!("{text} is not allowed for {}", shown(value)))?;
                }
            }
            Applied::If { condition, then, otherwise } => {
                let mut branch = Seen::default();
                let wanted = marks.is_some().then_some(&mut branch);
                let next = if self.fits(*condition, value, wanted) {
                    if let Some(marks) = &mut marks {
                        marks.merge(&branch);
                    }
                    then
                } else {
                    otherwise
                };
                if let Some(id) = next {
                    self.check(*id, value, place, marks)?;
                }
            }
        }
        Ok(())
    }

    /// Counts the schemas under which a value is valid. Without `marks`, counting stops as soon as the count exceeds
    /// `most` (default: 0).
    fn count(&mut self, ids: &[Id], value: &Value, most: Option<usize>, mut marks: Marks<'_>) -> usize {
        let mut count = 0;
        for id in ids {
            let mut branch = Seen::default();
            let wanted = marks.is_some().then_some(&mut branch);
            if self.fits(*id, value, wanted) {
                count += 1;
                match &mut marks {
                    Some(marks) => marks.merge(&branch),
                    None if count > most.unwrap_or(0) => break,
                    None => {}
                }
            }
        }
        count
    }

    /// Reports why a value is valid under none of the schemas. If only one of them accepts the type of the value, its
    /// errors are reported.
    #[inline(never)]
    fn explain(&mut self, keyword: &str, ids: &[Id], value: &Value, place: &Place<'_>) -> Flow {
        let schema = self.schema;
        if !self.quiet {
            let mut candidates = ids.iter().filter(|id| schema.nodes[**id as usize].types.allow(value));
            if let (Some(only), None, true) = (candidates.next(), candidates.next(), ids.len() > 1) {
                return self.check(*only, value, place, None);
            }
        }
        self.fail(place, || {
            let value = shown(value);
            format!("{value} is not valid under any of the schemas listed in the '{keyword}' keyword")
        })
    }
}
