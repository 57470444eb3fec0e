//! Handle that changes the definitions of a running server. Clients of every era are notified; changes in quick
//! succession are coalesced.

use std::sync::Arc;

use super::catalog::{Addable, ListKind, LiveCatalog};
use super::forward::ForwardedDefinitions;
use super::skills;
use crate::Result;

/// Handle with which the definitions of a running server are changed. Cheap to clone; get it with
/// [`crate::Server::handle`] or [`crate::Service::handle`].
#[derive(Clone)]
pub struct ServerHandle(Arc<LiveCatalog>);

impl ServerHandle {
    pub(crate) fn new(live: Arc<LiveCatalog>) -> Self {
        ServerHandle(live)
    }

    /// Adds a tool, resource, template, prompt or skill.
    pub fn add<Form>(&self, item: impl Addable<Form>) -> Result<()> {
        let item = item.into_item()?;
        let kind = self.0.change(|catalog| catalog.add(item))?;
        self.0.announce(kind);
        Ok(())
    }

    /// Replaces all definitions by these, whose requests go to the receiver that was set with
    /// [`crate::Server::forward`], and announces the lists that have changed.
    ///
    /// # Errors
    ///
    /// Fails if the server has no receiver.
    pub fn set_forwarded(&self, definitions: ForwardedDefinitions) -> Result<()> {
        for kind in self.0.set_forwarded(definitions)? {
            self.0.announce(kind);
        }
        Ok(())
    }

    /// Removes a tool. Returns `false` if no tool has this name.
    pub fn remove_tool(&self, name: &str) -> bool {
        let removed = self.0.change(|catalog| Ok(catalog.tools.remove(name))).unwrap_or(false);
        self.announce_if(removed, ListKind::Tools)
    }

    /// Removes a prompt. Returns `false` if no prompt has this name.
    pub fn remove_prompt(&self, name: &str) -> bool {
        let removed = self.0.change(|catalog| Ok(catalog.prompts.remove(name))).unwrap_or(false);
        self.announce_if(removed, ListKind::Prompts)
    }

    /// Removes a resource by its URI, or a template by its URI template. Returns `false` if there is none. The files of
    /// a skill are removed only with the skill.
    pub fn remove_resource(&self, uri: &str) -> bool {
        let change =
            self.0.change(|catalog| Ok(catalog.remove_resource(uri) || catalog.templates.remove(uri)));
        self.announce_if(change.unwrap_or(false), ListKind::Resources)
    }

    /// Removes a skill and its files by the URI of its `SKILL.md`. Returns `false` if there is none.
    pub fn remove_skill(&self, uri: &str) -> bool {
        let removed = self.0.change(|catalog| Ok(skills::remove(catalog, uri))).unwrap_or(false);
        self.announce_if(removed, ListKind::Resources)
    }

    fn announce_if(&self, changed: bool, kind: ListKind) -> bool {
        if changed {
            self.0.announce(kind);
        }
        changed
    }

    /// Notifies all clients that the list of tools has changed, for example because [`crate::Server::visible`] now
    /// decides differently.
    pub fn tools_changed(&self) {
        self.0.announce(ListKind::Tools);
    }

    /// Notifies all clients that the list of prompts has changed.
    pub fn prompts_changed(&self) {
        self.0.announce(ListKind::Prompts);
    }

    /// Notifies all clients that the list of resources has changed.
    pub fn resources_changed(&self) {
        self.0.announce(ListKind::Resources);
    }

    /// Notifies the subscribers of a resource that it has changed.
    pub fn resource_updated(&self, uri: &str) {
        for caller in self.0.clients() {
            caller.resource_updated(uri);
        }
    }
}
