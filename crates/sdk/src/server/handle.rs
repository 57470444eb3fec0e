//! Changing a server while it runs: clients are told, in every era, once for changes that come together.

use std::sync::Arc;

use super::catalog::{Addable, Kind, Live};
use super::skills;
use crate::Result;

/// A handle on a server. Cheap to clone; take it with [`crate::Server::handle`] or [`crate::Service::handle`].
#[derive(Clone)]
pub struct Handle(Arc<Live>);

impl Handle {
    pub(crate) fn new(live: Arc<Live>) -> Self {
        Handle(live)
    }

    /// Adds a tool, resource, template, prompt or skill.
    pub fn add<Form>(&self, item: impl Addable<Form>) -> Result<()> {
        let item = item.into_item()?;
        let kind = self.0.change(|catalog| catalog.add(item))?;
        self.0.announce(kind);
        Ok(())
    }

    /// Removes a tool; `false` when there is none of this name.
    pub fn remove_tool(&self, name: &str) -> bool {
        let removed = self.0.change(|catalog| Ok(catalog.tools.remove(name))).unwrap_or(false);
        self.told(removed, Kind::Tools)
    }

    /// Removes a prompt; `false` when there is none of this name.
    pub fn remove_prompt(&self, name: &str) -> bool {
        let removed = self.0.change(|catalog| Ok(catalog.prompts.remove(name))).unwrap_or(false);
        self.told(removed, Kind::Prompts)
    }

    /// Removes a resource by its URI, or a template by its text; `false` when there is none. A file of a skill stays
    /// while the skill does.
    pub fn remove_resource(&self, uri: &str) -> bool {
        let change =
            self.0.change(|catalog| Ok(catalog.remove_resource(uri) || catalog.templates.remove(uri)));
        self.told(change.unwrap_or(false), Kind::Resources)
    }

    /// Removes a skill by the URI of its `SKILL.md`, and its files; `false` when there is none.
    pub fn remove_skill(&self, uri: &str) -> bool {
        let removed = self.0.change(|catalog| Ok(skills::remove(catalog, uri))).unwrap_or(false);
        self.told(removed, Kind::Resources)
    }

    fn told(&self, changed: bool, kind: Kind) -> bool {
        if changed {
            self.0.announce(kind);
        }
        changed
    }

    /// Tells everybody that the list of tools has changed, as when [`crate::Server::visible`] decides differently.
    pub fn tools_changed(&self) {
        self.0.announce(Kind::Tools);
    }

    /// Tells everybody that the list of prompts has changed.
    pub fn prompts_changed(&self) {
        self.0.announce(Kind::Prompts);
    }

    /// Tells everybody that the list of resources has changed.
    pub fn resources_changed(&self) {
        self.0.announce(Kind::Resources);
    }

    /// Tells those who subscribed to it that a resource has changed.
    pub fn resource_updated(&self, uri: &str) {
        for caller in self.0.callers() {
            caller.resource_updated(uri);
        }
    }
}
