//! Skills: folders of files that teach a model a procedure, offered as an extension. Each file is also a resource.
//!
//! An entry contains the definition and the file list of a skill; the contents come from the builder or from a remote
//! server.

#[cfg(feature = "skills")]
mod builder;
#[cfg(feature = "skills")]
mod files;
#[cfg(feature = "skills")]
mod folder;
mod methods;

use std::sync::Arc;

use linchpin_protocol::model::{self, Meta, ReadResourceDirectoryResult, SkillResources, extension};
use serde_json::{Map, json};

use super::catalog::{Catalog, CatalogEntry};
use super::definitions::resource::{ResourceEntry, ResourceHandler};
use super::definitions::shared_state::StateMap;
use super::request::scope::RequestScope;
use super::{BoxFuture, DefinitionRef};
use crate::{Error, Result};

#[cfg(feature = "skills")]
pub use builder::Skill;
pub(crate) use methods::{get, has_skills, list, read, read_directory, supports_directories};

/// Reader of the skill files and folders of a remote server, for the proxy.
pub(super) trait RemoteSkillReader: ResourceHandler {
    /// Returns whether the remote server can list the folders of a skill.
    fn reads_directories(&self) -> bool;

    fn directory(
        &self,
        uri: &str,
        cursor: Option<String>,
        scope: &RequestScope<'_>,
    ) -> BoxFuture<Result<ReadResourceDirectoryResult>>;
}

/// Skill with its files, as registered at a server.
#[derive(Clone)]
pub struct SkillEntry {
    pub(crate) uri: Arc<str>,
    pub(crate) definition: model::Skill,
    /// Whether the skill is listed; it can be requested by URI in any case.
    enumerated: bool,
    /// URIs of all known files of the skill, sorted.
    files: Vec<Arc<str>>,
    /// Files of the skill that are registered as resources together with it.
    pub(super) resources: Vec<Arc<ResourceEntry>>,
    remote: Option<Arc<dyn RemoteSkillReader>>,
    pub(crate) state: Option<Arc<StateMap>>,
}

impl SkillEntry {
    /// Creates the catalog entry of a skill of a remote server.
    pub(super) fn remote(definition: model::Skill, remote: Arc<dyn RemoteSkillReader>) -> Self {
        let mut files: Vec<Arc<str>> = match &definition.resources {
            SkillResources::Files(files) => files.iter().map(|file| (&*file.uri).into()).collect(),
            SkillResources::Dynamic => Vec::new(),
        };
        files.sort_unstable();
        SkillEntry {
            uri: (&*definition.uri).into(),
            definition,
            enumerated: true,
            files,
            resources: Vec::new(),
            remote: Some(remote),
            state: None,
        }
    }

    /// Returns the URI of the skill's folder without a trailing slash.
    fn root(&self) -> &str {
        self.uri.rsplit_once('/').map_or(&*self.uri, |(root, _)| root)
    }

    /// Returns whether a URI is the folder of the skill or below it.
    fn contains(&self, uri: &str) -> bool {
        uri.strip_prefix(self.root()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Returns whether a URI is a file of the skill.
    fn has_file(&self, uri: &str) -> bool {
        self.files.binary_search_by(|file| (**file).cmp(uri)).is_ok()
            || self.dynamic_remote().is_some_and(|_| self.contains(uri))
    }

    /// Returns the remote server to query for the files of the skill, if they are not known here.
    fn dynamic_remote(&self) -> Option<&Arc<dyn RemoteSkillReader>> {
        self.remote.as_ref().filter(|_| self.definition.resources == SkillResources::Dynamic)
    }

    pub(crate) fn mounted(self: Arc<Self>, state: &Arc<StateMap>) -> Self {
        let mut entry = Self::clone(&self);
        entry.state.get_or_insert_with(|| state.clone());
        let mounted = |resource: Arc<ResourceEntry>| Arc::new(resource.mounted(state));
        entry.resources = std::mem::take(&mut entry.resources).into_iter().map(mounted).collect();
        entry
    }
}

impl CatalogEntry for SkillEntry {
    fn key(&self) -> &Arc<str> {
        &self.uri
    }

    fn definition(&self) -> DefinitionRef<'_> {
        DefinitionRef::Skill(&self.definition)
    }
}

/// Returns whether a resource is a file of a skill that the client sees, or not a file of any skill.
pub(super) fn is_file_visible(
    catalog: &Catalog,
    item: DefinitionRef<'_>,
    visible: impl Fn(DefinitionRef<'_>) -> bool,
) -> bool {
    let DefinitionRef::Resource(file) = item else { return true };
    let mut skills = catalog.skills.iter().filter(|skill| skill.has_file(&file.uri)).peekable();
    skills.peek().is_none() || skills.any(|skill| visible(skill.definition()))
}

/// Adds a skill and its files, or nothing on error.
pub(super) fn add(catalog: &mut Catalog, skill: Arc<SkillEntry>) -> Result<()> {
    let uri = &skill.uri;
    if catalog.skills.find(uri).is_some() {
        return Err(Error::setup(format!("duplicate skill `{uri}`")));
    }
    // Skills of remote servers are not checked here.
    for other in catalog.skills.iter().filter(|other| skill.remote.is_none() && other.remote.is_none()) {
        let (outer, inner) = if other.contains(uri) { (&**other, &*skill) } else { (&*skill, &**other) };
        if outer.contains(&inner.uri) {
            check_nested(outer, inner)?;
        }
    }
    let new_files: Vec<_> =
        skill.resources.iter().filter(|file| !is_file_of_skill(catalog, &file.uri)).cloned().collect();
    if let Some(file) = new_files.iter().find(|file| catalog.resources.find(&file.uri).is_some()) {
        return Err(Error::setup(format!("duplicate resource `{}`", file.uri)));
    }
    let duplicate = |name: Arc<str>| Error::setup(format!("duplicate resource `{name}`"));
    new_files.into_iter().try_for_each(|file| catalog.resources.insert(file).map_err(duplicate))?;
    catalog.skills.insert(skill).map_err(duplicate)
}

/// Removes a skill and its files, except files that belong to another skill too.
pub(super) fn remove(catalog: &mut Catalog, uri: &str) -> bool {
    let Some(skill) = catalog.skills.find(uri).cloned() else { return false };
    catalog.skills.remove(uri);
    for file in &skill.resources {
        if !is_file_of_skill(catalog, &file.uri) {
            catalog.resources.remove(&file.uri);
        }
    }
    true
}

fn is_file_of_skill(catalog: &Catalog, uri: &str) -> bool {
    catalog.skills.iter().any(|skill| skill.remote.is_none() && skill.has_file(uri))
}

/// Checks that a skill below the folder of another skill shares its files with that skill unchanged.
fn check_nested(outer: &SkillEntry, inner: &SkillEntry) -> Result<()> {
    let (SkillResources::Files(all), SkillResources::Files(files)) =
        (&outer.definition.resources, &inner.definition.resources)
    else {
        // A generated file has no digest, so it must not replace a file for which another skill states one.
        return match inner.files.iter().find(|file| outer.has_file(file)) {
            None => Ok(()),
            Some(file) => Err(Error::setup(format!("duplicate resource `{file}`"))),
        };
    };
    match files.iter().find(|file| !all.contains(file)) {
        None => Ok(()),
        Some(missing) => Err(Error::setup(format!(
            "the skill `{}` is in the folder of `{}`, which lacks the same file `{}`: add it there too",
            inner.uri, outer.uri, missing.uri
        ))),
    }
}

/// Adds the skills extension to the other extensions, if the server has skills.
pub(crate) fn extensions(catalog: &Catalog, others: Option<Meta>) -> Option<Meta> {
    if catalog.skills.is_empty() {
        return others;
    }
    let mut all = others.unwrap_or_default();
    all.entry(extension::SKILLS).or_insert_with(|| {
        let settings = [("directoryRead", json!(true))].map(|(key, value)| (key.to_owned(), value));
        let settings = if supports_directories(catalog) { Map::from_iter(settings) } else { Map::new() };
        settings.into()
    });
    Some(all)
}
