//! SQL of documents.

use linchpin_hub_core::store::{Document, DocumentKey, DocumentKind, PageRequest, StoredDocument};

use super::refusal::{PlainRefusal, Refusal};
use super::value::Value;
use super::{Statement, to_integer};

pub(crate) const COLUMNS: &str = "id, name, parent, version, body, code";

const INSERT: &str = "INSERT INTO documents (tenant, kind, id, name, parent, body, version, code)
     VALUES ($1, $2, $3, $4, $5, $6, CAST($7 AS BIGINT) + 1, $8) ON CONFLICT (tenant, kind, id) DO NOTHING";
const UPDATE: &str =
    "UPDATE documents SET name = $4, parent = $5, body = $6, version = CAST($7 AS BIGINT) + 1, code = $8
     WHERE tenant = $1 AND kind = $2 AND id = $3 AND version = $7";
const DELETE: &str = "DELETE FROM documents WHERE tenant = $1 AND kind = $2 AND id = $3";
const DELETE_CHILDREN: &str = "DELETE FROM documents WHERE tenant = $1 AND kind = $2 AND parent = $3";

pub(crate) const SELECT: &str = "SELECT id, name, parent, version, body, code FROM documents
     WHERE tenant = $1 AND kind = $2 AND id = $3";
pub(crate) const SELECT_BY_NAME: &str = "SELECT id, name, parent, version, body, code FROM documents
     WHERE tenant = $1 AND kind = $2 AND name = $3";
const LIST: &str = "SELECT id, name, parent, version, body, code FROM documents
     WHERE tenant = $1 AND kind = $2 AND id > $3 ORDER BY id LIMIT $4";
const LIST_CHILDREN: &str = "SELECT id, name, parent, version, body, code FROM documents
     WHERE tenant = $1 AND kind = $2 AND id > $3 AND parent = $5 ORDER BY id LIMIT $4";

/// Creates the statement that stores a document whose previous version is `version`; 0 for a new one.
pub(crate) fn put<'a>(tenant: Value<'a>, document: &'a Document, version: u64) -> Statement<'a> {
    write(if version == 0 { INSERT } else { UPDATE }, tenant, document, version)
}

/// Creates the statement that inserts a document of a snapshot with its version.
pub(crate) fn insert<'a>(tenant: Value<'a>, stored: &'a StoredDocument) -> Statement<'a> {
    write(INSERT, tenant, &stored.document, stored.version.saturating_sub(1))
}

fn write<'a>(sql: &'static str, tenant: Value<'a>, document: &'a Document, version: u64) -> Statement<'a> {
    let Document { key, name, parent, body, code } = document;
    let values = vec![
        tenant,
        key.kind.name().into(),
        (&key.id).into(),
        name.as_ref().into(),
        parent.as_ref().into(),
        body.to_string().into(),
        to_integer(version).into(),
        code.as_ref().into(),
    ];
    Statement { sql, values, refusal: Refusal::Plain(PlainRefusal::Document(document)) }
}

/// Creates the statement that deletes a document.
pub(crate) fn delete<'a>(tenant: Value<'a>, key: &'a DocumentKey) -> Statement<'a> {
    let refusal = Refusal::Plain(PlainRefusal::NoDocument(key));
    Statement { sql: DELETE, values: key_values(tenant, key), refusal }
}

/// Creates the statement that deletes all documents of a kind with this parent.
pub(crate) fn delete_children<'a>(tenant: Value<'a>, kind: DocumentKind, parent: &'a str) -> Statement<'a> {
    let values = vec![tenant, kind.name().into(), parent.into()];
    Statement { sql: DELETE_CHILDREN, values, refusal: Refusal::Never }
}

/// Returns the values that find a document: tenant, kind and id.
pub(crate) fn key_values<'a>(tenant: Value<'a>, key: &'a DocumentKey) -> Vec<Value<'a>> {
    vec![tenant, key.kind.name().into(), (&key.id).into()]
}

/// Returns the query for `limit` documents of a kind, with its values.
pub(crate) fn list<'a>(
    tenant: Value<'a>,
    kind: DocumentKind,
    parent: Option<&'a str>,
    paging: &'a PageRequest,
    limit: usize,
) -> (&'static str, Vec<Value<'a>>) {
    let after = paging.after.as_deref().unwrap_or_default();
    let mut values = vec![tenant, kind.name().into(), after.into(), to_integer(limit as u64).into()];
    values.extend(parent.map(Value::from));
    (if parent.is_some() { LIST_CHILDREN } else { LIST }, values)
}
