//! Methods of the skills extension: list skills, get a skill, read a folder.

use std::collections::BTreeMap;

use linchpin_protocol::Error as ProtocolError;
use linchpin_protocol::model::{
    GetSkillParams, GetSkillResult, ListSkillsResult, ReadResourceDirectoryParams,
    ReadResourceDirectoryResult, Resource,
};

use super::SkillEntry;
use crate::server::catalog::{Catalog, CatalogEntry};
use crate::server::definitions::resource::ResourceFuture;
use crate::server::request::dispatch::{is_visible, unknown_cursor};
use crate::server::request::result::UnencodedResult;
use crate::server::request::scope::RequestScope;
use crate::server::request::work::RequestFuture;
use crate::{Error, Result};

/// Maximum number of skills on a page: each may name hundreds of files, and a page must fit into a message.
const MAX_PAGE_SIZE: usize = 50;
/// MIME type that marks a folder in a listing of skill files.
const FOLDER_MIME_TYPE: &str = "inode/directory";

/// Returns whether this server has skills.
pub(crate) fn has_skills(catalog: &Catalog) -> bool {
    !catalog.skills.is_empty()
}

/// Returns whether the server can list the folders of every skill (`resources/directory/read`).
pub(crate) fn supports_directories(catalog: &Catalog) -> bool {
    let can_list =
        |skill: &SkillEntry| skill.dynamic_remote().is_none_or(|remote| remote.reads_directories());
    has_skills(catalog) && catalog.skills.iter().all(|skill| can_list(skill))
}

fn method_not_found(scope: &RequestScope<'_>) -> Error {
    ProtocolError::MethodNotFound(scope.method.to_owned()).into()
}

pub(crate) fn list(scope: &RequestScope<'_>, cursor: Option<&str>) -> Result<RequestFuture> {
    let catalog = scope.service.catalog();
    if !has_skills(&catalog) {
        return Err(method_not_found(scope));
    }
    let settings = scope.service.settings();
    let is_listed = |skill: &SkillEntry| skill.enumerated && is_visible(scope, skill.definition());
    let size = settings.page_size.min(MAX_PAGE_SIZE);
    let page = catalog.skills.page(cursor, size, is_listed).ok_or_else(unknown_cursor)?;
    Ok(RequestFuture::ready(Ok(UnencodedResult::body(ListSkillsResult {
        skills: page.items.iter().map(|skill| skill.definition.clone()).collect(),
        next_cursor: page.next_cursor,
        ttl_ms: Some(settings.cache.ttl_ms),
        cache_scope: Some(settings.cache.scope),
        meta: None,
    }))))
}

pub(crate) fn get(scope: &RequestScope<'_>, params: &GetSkillParams) -> Result<RequestFuture> {
    let catalog = scope.service.catalog();
    if !has_skills(&catalog) {
        return Err(method_not_found(scope));
    }
    let skill = catalog.skills.find(&params.uri).filter(|skill| is_visible(scope, skill.definition()));
    let skill =
        skill.ok_or_else(|| ProtocolError::invalid("/uri", format!("Unknown skill: {}", params.uri)))?;
    scope.set_target(&skill.uri, skill.state.as_ref());
    let cache = scope.service.settings().cache;
    Ok(RequestFuture::ready(Ok(UnencodedResult::body(GetSkillResult {
        skill: skill.definition.clone(),
        ttl_ms: Some(cache.ttl_ms),
        cache_scope: Some(cache.scope),
        meta: None,
    }))))
}

pub(crate) fn read_directory(
    scope: &RequestScope<'_>,
    params: ReadResourceDirectoryParams,
) -> Result<RequestFuture> {
    let catalog = scope.service.catalog();
    if !supports_directories(&catalog) {
        return Err(method_not_found(scope));
    }
    let visible: Vec<_> =
        catalog.skills.iter().filter(|skill| is_visible(scope, skill.definition())).collect();
    let remote_folder =
        visible.iter().find(|skill| skill.contains(&params.uri)).and_then(|skill| skill.dynamic_remote());
    if let Some(remote) = remote_folder {
        return Ok(RequestFuture::pending(
            remote.directory(&params.uri, params.cursor, scope),
            UnencodedResult::body,
        ));
    }
    let children = children(scope, &catalog, &visible, &params.uri);
    if children.is_empty() {
        return Err(ProtocolError::invalid("/uri", format!("Unknown directory: {}", params.uri)).into());
    }
    page(scope, children, params.cursor.as_deref())
}

/// Reads a file of a remote skill that is not registered as a resource.
pub(crate) fn read(scope: &RequestScope<'_>, catalog: &Catalog, uri: &str) -> Option<ResourceFuture> {
    let mut skills =
        catalog.skills.iter().filter(|skill| skill.has_file(uri) && is_visible(scope, skill.definition()));
    skills.find_map(|skill| skill.remote.as_ref()).map(|remote| remote.read(uri, scope))
}

/// Returns the files and folders directly in a skill folder, by name.
fn children(
    scope: &RequestScope<'_>,
    catalog: &Catalog,
    skills: &[&std::sync::Arc<SkillEntry>],
    folder: &str,
) -> BTreeMap<String, Resource> {
    let mut children = BTreeMap::new();
    if folder.ends_with('/') || !folder.contains("://") {
        return children; // not the folder of a skill, or not in canonical form
    }
    for uri in skills.iter().flat_map(|skill| &skill.files) {
        let Some(rest) = uri.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/')) else { continue };
        let registered = catalog.resources.find(uri);
        if registered.is_some_and(|file| !is_visible(scope, file.definition())) {
            continue;
        }
        let name = rest.split('/').next().unwrap_or(rest);
        children.entry(name.to_owned()).or_insert_with(|| match registered {
            Some(file) if name == rest => file.definition.clone(),
            _ => Resource {
                uri: format!("{folder}/{name}"),
                name: name.to_owned(),
                mime_type: (name != rest).then(|| FOLDER_MIME_TYPE.to_owned()),
                ..Resource::default()
            },
        });
    }
    children
}

/// Returns one page of the files and folders in a skill folder. The cursor is the name of the last child of the
/// previous page.
fn page(
    scope: &RequestScope<'_>,
    children: BTreeMap<String, Resource>,
    cursor: Option<&str>,
) -> Result<RequestFuture> {
    if cursor.is_some_and(|cursor| cursor.is_empty() || cursor.contains('/')) {
        return Err(unknown_cursor());
    }
    let size = scope.service.settings().page_size;
    let mut rest =
        children.into_iter().filter(|(name, _)| cursor.is_none_or(|cursor| **name > *cursor)).peekable();
    let mut resources = Vec::new();
    let mut last = None;
    while resources.len() < size
        && let Some((name, child)) = rest.next()
    {
        resources.push(child);
        last = Some(name);
    }
    let next_cursor = last.filter(|_| rest.peek().is_some());
    Ok(RequestFuture::ready(Ok(UnencodedResult::body(ReadResourceDirectoryResult {
        resources,
        next_cursor,
        meta: None,
    }))))
}
