//! Search of the audit by actor, action and time, with the names of the users, agents and servers that entries mention.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;

use super::{Audit, AuditView};
use crate::actor::{Actor, Subject};
use crate::error::{Error, Result};
use crate::id::{AgentId, ServerId, TenantId, UserId};
use crate::store::{AuditFilter, DocumentKey, DocumentKind, MAX_PAGE_SIZE, Page};

/// Maximum number of entries that one request examines: a search that finds few entries takes several pages.
const MAX_EXAMINED: u64 = 50_000;
/// Maximum number of entries that one read of the store examines.
const READ_SIZE: u64 = 5_000;

/// Criteria of a search in the audit.
#[derive(Debug, Clone, Default)]
pub struct AuditQuery {
    /// Only entries of this actor: the name of a user or agent, `user:ID`, `agent:ID` or `hub`.
    pub actor: Option<String>,
    /// Only entries with this action, or of this group of actions if it ends with `.`.
    pub action: Option<String>,
    /// Only entries at or after this time.
    pub since: Option<Timestamp>,
    /// Only entries before this time.
    pub until: Option<Timestamp>,
}

impl Audit {
    /// Lists a page of the entries that match a query and follow the entry with the number `after`, oldest first. A
    /// page may have fewer entries than `limit`, or none, although others follow.
    pub async fn find(
        &self,
        actor: Actor,
        query: AuditQuery,
        after: u64,
        limit: usize,
    ) -> Result<Page<AuditView>> {
        actor.require_user()?;
        let (tenant, store) = (actor.tenant(), &self.context.store);
        let AuditQuery { actor: name, action, since, until } = query;
        let actors = match name {
            Some(name) => self.subjects_of(tenant, name).await?,
            None => Vec::new(),
        };
        let filter = AuditFilter { actors, action, since, until };
        // One entry more than a page has shows whether others follow, and the store returns no more than its maximum.
        let limit = limit.clamp(1, MAX_PAGE_SIZE - 1);
        // Older entries may have been archived.
        let first = store.audit_entries(tenant, after, 1).await?.pop();
        let mut position = first.map_or(after, |first| first.number - 1);
        let (mut rows, head) = (Vec::new(), store.audit_head(tenant).await?.number);
        let end = head.min(position.saturating_add(MAX_EXAMINED));
        while position < end && rows.len() <= limit {
            let last = end.min(position + READ_SIZE);
            let missing = limit + 1 - rows.len();
            rows.extend(store.find_audit_entries(tenant, &filter, position + 1..=last, missing).await?);
            position = last;
        }
        let next = if rows.len() > limit {
            rows.truncate(limit);
            rows.last().map(|last| last.number)
        } else {
            Some(end).filter(|end| *end < head)
        };
        let mut items: Vec<_> = rows.into_iter().map(AuditView::from).collect();
        self.add_names(tenant, &mut items).await?;
        Ok(Page { items, next: next.map(|number| number.to_string()) })
    }

    /// Returns the subjects with a name: a user, an agent, or both.
    async fn subjects_of(&self, tenant: TenantId, name: String) -> Result<Vec<String>> {
        if name.parse::<Subject>().is_ok() {
            return Ok(vec![name]);
        }
        let mut subjects = Vec::new();
        for (kind, prefix) in [(DocumentKind::User, "user"), (DocumentKind::Agent, "agent")] {
            let found = self.context.store.document_by_name(tenant, kind, &name).await?;
            subjects.extend(found.map(|stored| format!("{prefix}:{}", stored.document.key.id)));
        }
        if subjects.is_empty() {
            let text = "no user or agent has this name: use `user:ID` or `agent:ID` for one that was removed, or `hub`";
            return Err(Error::invalid("actor", text));
        }
        Ok(subjects)
    }

    /// Adds the current names of the actors, and of the users, agents and servers in the fields. Those that were
    /// removed have none.
    async fn add_names(&self, tenant: TenantId, views: &mut [AuditView]) -> Result<()> {
        let mut known = HashMap::new();
        for view in views {
            if let Some(key) = subject_key(&view.actor) {
                view.actor_name = self.document_name(tenant, key, &mut known).await?;
            }
            for (field, key) in named_fields(view) {
                if let Some(name) = self.document_name(tenant, key, &mut known).await? {
                    view.names.insert(field, name);
                }
            }
        }
        Ok(())
    }

    async fn document_name(
        &self,
        tenant: TenantId,
        key: DocumentKey,
        known: &mut HashMap<DocumentKey, Option<String>>,
    ) -> Result<Option<String>> {
        if let Some(name) = known.get(&key) {
            return Ok(name.clone());
        }
        let stored = self.context.store.document(tenant, &key).await?;
        let name = stored.and_then(|stored| stored.document.name);
        known.insert(key, name.clone());
        Ok(name)
    }
}

/// Returns the keys of the documents that fields of an entry refer to, by field.
fn named_fields(view: &AuditView) -> BTreeMap<String, DocumentKey> {
    let mut keys = BTreeMap::new();
    for (field, value) in view.fields.as_object().into_iter().flatten() {
        let Some(id) = value.as_str() else { continue };
        let key = match field.as_str() {
            "server" => id.parse::<ServerId>().ok().map(|id| DocumentKey::new(DocumentKind::Server, id)),
            "agent" | "as_agent" => {
                id.parse::<AgentId>().ok().map(|id| DocumentKey::new(DocumentKind::Agent, id))
            }
            "user" => id.parse::<UserId>().ok().map(|id| DocumentKey::new(DocumentKind::User, id)),
            _ => subject_key(id),
        };
        keys.extend(key.map(|key| (field.clone(), key)));
    }
    keys
}

fn subject_key(text: &str) -> Option<DocumentKey> {
    match text.parse().ok()? {
        Subject::User(id) => Some(DocumentKey::new(DocumentKind::User, id)),
        Subject::Agent(id) => Some(DocumentKey::new(DocumentKind::Agent, id)),
        Subject::Hub => None,
    }
}
