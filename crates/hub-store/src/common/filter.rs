//! Filters of lists of calls, approvals and audit entries.

use std::fmt::Write as _;

use linchpin_hub_core::id::{ApprovalId, CallId};
use linchpin_hub_core::store::{
    ApprovalFilter, ApprovalStatus, AuditFilter, CallFilter, CallStatus, MAX_PAGE_SIZE, PageRequest,
};
use linchpin_hub_core::{Error, Result};

use super::value::Value;
use super::{to_integer, to_millis};

/// Query for a page of rows, the newest first.
pub(crate) struct ListQuery<'a> {
    /// Conditions of the `WHERE` clause, joined by `AND`.
    conditions: String,
    pub(crate) values: Vec<Value<'a>>,
    /// Maximum number of items of the page. The query returns one more row if there is a next page.
    pub(crate) limit: usize,
}

impl<'a> ListQuery<'a> {
    fn new(tenant: Value<'a>, paging: &PageRequest, after: Option<Value<'a>>) -> Self {
        let limit = paging.limit.clamp(1, MAX_PAGE_SIZE);
        let mut query = ListQuery { conditions: String::new(), values: Vec::new(), limit };
        query.add("tenant =", Some(tenant));
        query.add("id <", after);
        query
    }

    fn add(&mut self, condition: &str, value: Option<impl Into<Value<'a>>>) {
        let Some(value) = value else { return };
        self.values.push(value.into());
        let separator = if self.conditions.is_empty() { "" } else { " AND " };
        write!(self.conditions, "{separator}{condition} ${}", self.values.len())
            .expect("writing to a string never fails");
    }

    /// Returns the SQL of the query, and adds the limit to its values. `select` is columns and table, and may end with
    /// further conditions.
    pub(crate) fn sql(&mut self, select: &str) -> String {
        self.values.push(to_integer(self.limit as u64 + 1).into());
        let Self { conditions, values, .. } = self;
        let keyword = if select.contains(" WHERE ") { "AND" } else { "WHERE" };
        format!("SELECT {select} {keyword} {conditions} ORDER BY id DESC LIMIT ${}", values.len())
    }
}

fn invalid_cursor(_: Error) -> Error {
    Error::invalid("after", "must be the `next` of another page")
}

/// Creates the query for a page of calls.
pub(crate) fn call_query<'a>(
    tenant: Value<'a>,
    filter: &'a CallFilter,
    paging: &PageRequest,
) -> Result<ListQuery<'a>> {
    let after = paging.after.as_deref().map(str::parse::<CallId>).transpose().map_err(invalid_cursor)?;
    let mut query = ListQuery::new(tenant, paging, after.map(Value::from));
    query.add("tool =", filter.tool.as_ref());
    query.add("server =", filter.server);
    query.add("subject =", filter.subject.as_ref());
    query.add("status =", filter.status.map(CallStatus::name));
    query.add("created >=", filter.since.map(to_millis));
    query.add("created <", filter.until.map(to_millis));
    Ok(query)
}

/// Creates the query for a page of approvals.
pub(crate) fn approval_query<'a>(
    tenant: Value<'a>,
    filter: &ApprovalFilter,
    paging: &PageRequest,
) -> Result<ListQuery<'a>> {
    let after = paging.after.as_deref().map(str::parse::<ApprovalId>).transpose().map_err(invalid_cursor)?;
    let mut query = ListQuery::new(tenant, paging, after.map(Value::from));
    query.add("call =", filter.call);
    query.add("decision =", filter.decision.map(ApprovalStatus::name));
    Ok(query)
}

/// Returns the further conditions of a query for audit entries that match a filter, and adds their values.
pub(crate) fn audit_conditions<'a>(filter: &'a AuditFilter, values: &mut Vec<Value<'a>>) -> String {
    let mut sql = String::new();
    let mut add = |condition: &str, found: &mut dyn Iterator<Item = Value<'a>>| {
        let marks: Vec<_> = found
            .map(|value| {
                values.push(value);
                format!("${}", values.len())
            })
            .collect();
        if !marks.is_empty() {
            write!(sql, " AND {condition} ({})", marks.join(", ")).expect("writing to a string never fails");
        }
    };
    add("actor IN", &mut filter.actors.iter().map(Value::from));
    if let Some(action) = filter.action.as_deref() {
        // Compare the beginning: an order of texts depends on the collation of the database.
        let length = action.chars().count();
        let column =
            if action.ends_with('.') { format!("substr(action, 1, {length})") } else { "action".into() };
        add(&format!("{column} ="), &mut std::iter::once(action.into()));
    }
    add("at >=", &mut filter.since.map(|at| to_millis(at).into()).into_iter());
    add("at <", &mut filter.until.map(|at| to_millis(at).into()).into_iter());
    sql
}
