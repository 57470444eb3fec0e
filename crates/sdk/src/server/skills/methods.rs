//! Methods of the extension: list skills, get a skill, read a folder.

use std::collections::BTreeMap;

use linchpin_protocol::Error as ProtocolError;
use linchpin_protocol::model::{
    GetSkillParams, GetSkillResult, ListSkillsResult, ReadResourceDirectoryParams,
    ReadResourceDirectoryResult, Resource,
};

use super::SkillEntry;
use crate::server::catalog::{Catalog, Entry};
use crate::server::definitions::resource::Reading;
use crate::server::request::dispatch::{is_visible, unknown_cursor};
use crate::server::request::result::Answer;
use crate::server::request::scope::Scope;
use crate::server::request::work::Work;
use crate::{Error, Result};

/// Maximum number of skills on a page: each may name hundreds of files, and a page must fit into a message.
const MOST_ON_A_PAGE: usize = 50;
/// MIME type of a folder.
const FOLDER: &str = "inode/directory";

/// Returns whether this server has skills.
pub(crate) fn are_served(catalog: &Catalog) -> bool {
    !catalog.skills.is_empty()
}

/// Returns whether every folder of a skill can be listed.
pub(crate) fn directories_are_served(catalog: &Catalog) -> bool {
    let known = |skill: &SkillEntry| skill.unknown_files().is_none_or(|remote| remote.reads_directories());
    are_served(catalog) && catalog.skills.iter().all(|skill| known(skill))
}

fn not_here(scope: &Scope<'_>) -> Error {
    ProtocolError::MethodNotFound(scope.method.to_owned()).into()
}

pub(crate) fn list(scope: &Scope<'_>, cursor: Option<&str>) -> Result<Work> {
    let catalog = scope.service.catalog();
    if !are_served(&catalog) {
        return Err(not_here(scope));
    }
    let settings = scope.service.settings();
    let shown = |skill: &SkillEntry| skill.enumerated && is_visible(scope, skill.listed());
    let size = settings.page_size.min(MOST_ON_A_PAGE);
    let page = catalog.skills.page(cursor, size, shown).ok_or_else(unknown_cursor)?;
    Ok(Work::done(Ok(Answer::body(ListSkillsResult {
        skills: page.items.iter().map(|skill| skill.definition.clone()).collect(),
        next_cursor: page.next_cursor,
        ttl_ms: Some(settings.cache.ttl_ms),
        cache_scope: Some(settings.cache.scope),
        meta: None,
    }))))
}

pub(crate) fn get(scope: &Scope<'_>, params: &GetSkillParams) -> Result<Work> {
    let catalog = scope.service.catalog();
    if !are_served(&catalog) {
        return Err(not_here(scope));
    }
    let skill = catalog.skills.find(&params.uri).filter(|skill| is_visible(scope, skill.listed()));
    let skill =
        skill.ok_or_else(|| ProtocolError::invalid("/uri", format!("Unknown skill: {}", params.uri)))?;
    scope.set_target(&skill.uri, skill.state.as_ref());
    let cache = scope.service.settings().cache;
    Ok(Work::done(Ok(Answer::body(GetSkillResult {
        skill: skill.definition.clone(),
        ttl_ms: Some(cache.ttl_ms),
        cache_scope: Some(cache.scope),
        meta: None,
    }))))
}

pub(crate) fn read_directory(scope: &Scope<'_>, params: ReadResourceDirectoryParams) -> Result<Work> {
    let catalog = scope.service.catalog();
    if !directories_are_served(&catalog) {
        return Err(not_here(scope));
    }
    let visible: Vec<_> = catalog.skills.iter().filter(|skill| is_visible(scope, skill.listed())).collect();
    let behind =
        visible.iter().find(|skill| skill.holds(&params.uri)).and_then(|skill| skill.unknown_files());
    if let Some(remote) = behind {
        return Ok(Work::wait(remote.directory(&params.uri, params.cursor, scope), Answer::body));
    }
    let children = children(scope, &catalog, &visible, &params.uri);
    if children.is_empty() {
        return Err(ProtocolError::invalid("/uri", format!("Unknown directory: {}", params.uri)).into());
    }
    page(scope, children, params.cursor.as_deref())
}

/// Reads a file of a remote skill that is not registered as a resource.
pub(crate) fn read(scope: &Scope<'_>, catalog: &Catalog, uri: &str) -> Option<Reading> {
    let mut skills =
        catalog.skills.iter().filter(|skill| skill.has(uri) && is_visible(scope, skill.listed()));
    skills.find_map(|skill| skill.remote.as_ref()).map(|remote| remote.read(uri, scope))
}

/// Returns the direct children of a folder, by name.
fn children(
    scope: &Scope<'_>,
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
        let known = catalog.resources.find(uri);
        if known.is_some_and(|file| !is_visible(scope, file.listed())) {
            continue;
        }
        let name = rest.split('/').next().unwrap_or(rest);
        children.entry(name.to_owned()).or_insert_with(|| match known {
            Some(file) if name == rest => file.definition.clone(),
            _ => Resource {
                uri: format!("{folder}/{name}"),
                name: name.to_owned(),
                mime_type: (name != rest).then(|| FOLDER.to_owned()),
                ..Resource::default()
            },
        });
    }
    children
}

/// Returns one page of children. The cursor is the name of the last child of the previous page.
fn page(scope: &Scope<'_>, children: BTreeMap<String, Resource>, cursor: Option<&str>) -> Result<Work> {
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
    Ok(Work::done(Ok(Answer::body(ReadResourceDirectoryResult { resources, next_cursor, meta: None }))))
}
