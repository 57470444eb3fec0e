//! Everything that is registered: an immutable snapshot that requests read, replaced as a whole when something
//! is added or removed at run time.

mod list;
mod live;

use std::sync::Arc;

pub(crate) use list::{Entry, List};
pub(crate) use live::{Kind, Live};

use super::prompt::PromptEntry;
use super::resource::{ResourceEntry, TemplateEntry};
use super::skills::{self, SkillEntry};
use super::state::StateMap;
use super::tool::ToolEntry;
use crate::{Error, Result};

/// Something that can be registered.
#[doc(hidden)]
pub enum Item {
    Tool(Arc<ToolEntry>),
    Resource(Arc<ResourceEntry>),
    Template(Arc<TemplateEntry>),
    Prompt(Arc<PromptEntry>),
    Skill(Arc<SkillEntry>),
}

/// Something that can be added to a server: a finished [`crate::Tool`], [`crate::Resource`],
/// [`crate::ResourceTemplate`] or [`crate::Prompt`], a skill, or a function with one of the attribute macros.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be added to a server",
    note = "finish a Tool, Resource, ResourceTemplate or Prompt with `.handler(…)`, or put #[tool], #[resource] or \
            #[prompt] on a function"
)]
pub trait Register {
    /// The finished item, or what is wrong with it.
    #[doc(hidden)]
    fn register(self) -> Result<Item>;
}

impl Register for Result<Item> {
    fn register(self) -> Result<Item> {
        self
    }
}

/// A snapshot of all that is registered.
#[derive(Clone, Default)]
pub(crate) struct Catalog {
    pub(crate) tools: List<ToolEntry>,
    pub(crate) resources: List<ResourceEntry>,
    pub(crate) templates: List<TemplateEntry>,
    pub(crate) prompts: List<PromptEntry>,
    pub(crate) skills: List<SkillEntry>,
}

impl Catalog {
    pub(crate) fn add(&mut self, item: Item) -> Result<Kind> {
        let taken = |what: &str, name: &str| Error::setup(format!("there are two {what} called `{name}`"));
        match item {
            Item::Tool(entry) => {
                self.tools.insert(entry).map_err(|name| taken("tools", &name))?;
                Ok(Kind::Tools)
            }
            Item::Resource(entry) => {
                self.resources.insert(entry).map_err(|name| taken("resources", &name))?;
                Ok(Kind::Resources)
            }
            Item::Template(entry) => {
                self.templates.insert(entry).map_err(|name| taken("resource templates", &name))?;
                Ok(Kind::Resources)
            }
            Item::Prompt(entry) => {
                self.prompts.insert(entry).map_err(|name| taken("prompts", &name))?;
                Ok(Kind::Prompts)
            }
            Item::Skill(entry) => {
                skills::add(self, entry)?;
                Ok(Kind::Resources)
            }
        }
    }

    /// Removes a resource, unless it is a file of a skill.
    pub(crate) fn remove_resource(&mut self, uri: &str) -> bool {
        let free = self.resources.find(uri).is_some_and(|resource| !resource.of_skill);
        free && self.resources.remove(uri)
    }

    /// Takes over everything of a mounted server. Tools and prompts get the prefix; URIs stay as they are.
    pub(crate) fn mount(&mut self, prefix: &str, other: &Catalog, state: &Arc<StateMap>) -> Result<()> {
        let prefixed =
            |name: &str| if prefix.is_empty() { name.to_owned() } else { format!("{prefix}_{name}") };
        for tool in other.tools.iter() {
            let name = prefixed(&tool.name);
            check_name("tool", &name)?;
            self.add(Item::Tool(Arc::new(tool.clone().mounted(name, state))))?;
        }
        for prompt in other.prompts.iter() {
            self.add(Item::Prompt(Arc::new(prompt.clone().mounted(prefixed(&prompt.name), state))))?;
        }
        for skill in other.skills.iter() {
            self.add(Item::Skill(Arc::new(skill.clone().mounted(state))))?;
        }
        for resource in other.resources.iter().filter(|resource| !resource.of_skill) {
            self.add(Item::Resource(Arc::new(resource.clone().mounted(state))))?;
        }
        for template in other.templates.iter() {
            self.add(Item::Template(Arc::new(template.clone().mounted(state))))?;
        }
        Ok(())
    }
}

/// Names that every client can carry: 1 to 128 letters, digits, `_`, `-` and `.`.
pub(crate) fn check_name(what: &str, name: &str) -> Result<()> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    if (1..=128).contains(&name.len()) && name.bytes().all(allowed) {
        return Ok(());
    }
    Err(Error::setup(format!(
        "`{name}` cannot be the name of a {what}: use 1 to 128 letters, digits, underscores, hyphens and dots"
    )))
}
