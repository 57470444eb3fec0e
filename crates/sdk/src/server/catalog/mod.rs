//! Registered definitions: an immutable snapshot for requests, replaced as a whole when a definition is added or
//! removed at run time.

mod list;
mod live;

use std::sync::Arc;

pub(crate) use list::{CatalogEntry, CatalogList};
pub(crate) use live::{ListKind, LiveCatalog};

use linchpin_protocol::model::Meta;

use super::definitions::prompt::PromptEntry;
use super::definitions::resource::{ResourceEntry, TemplateEntry};
use super::definitions::shared_state::{RequiredState, StateMap};
use super::definitions::tool::ToolEntry;
use super::skills::{self, SkillEntry};
use crate::{Error, Result};

/// Definition that can be registered at a server: a tool, resource, resource template, prompt or skill.
#[doc(hidden)]
pub enum CatalogItem {
    Tool(Arc<ToolEntry>),
    Resource(Arc<ResourceEntry>),
    Template(Arc<TemplateEntry>),
    Prompt(Arc<PromptEntry>),
    Skill(Arc<SkillEntry>),
}

impl CatalogItem {
    /// Adds types of state that the handler of this item takes, and that the server must have.
    pub(crate) fn require_state(&mut self, required: &[RequiredState]) {
        let list = match self {
            CatalogItem::Tool(entry) => Arc::get_mut(entry).map(|entry| &mut entry.required_state),
            CatalogItem::Resource(entry) => Arc::get_mut(entry).map(|entry| &mut entry.required_state),
            CatalogItem::Template(entry) => Arc::get_mut(entry).map(|entry| &mut entry.required_state),
            CatalogItem::Prompt(entry) => Arc::get_mut(entry).map(|entry| &mut entry.required_state),
            CatalogItem::Skill(_) => None,
        };
        if let Some(list) = list {
            list.extend(required);
        }
    }
}

/// Tool, resource, template, prompt or skill that is completely defined, and can be registered at a server.
pub trait Register {
    /// Returns the defined tool, resource, template, prompt or skill, or the error in its definition.
    #[doc(hidden)]
    fn register(self) -> Result<CatalogItem>;
}

/// Value that can be added to a server: a completed [`crate::Tool`], [`crate::Resource`],
/// [`crate::ResourceTemplate`] or [`crate::Prompt`], a skill, or a function with one of the attribute macros. `Form`
/// distinguishes the last case and is inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be added to a server",
    label = "if this is a function, put `#[tool]` on it",
    note = "put `#[tool]`, `#[resource(\"…\")]` or `#[prompt]` on a function; finish a Tool, Resource, ResourceTemplate or \
            Prompt with `.handler(…)`"
)]
pub trait Addable<Form> {
    /// Converts the added value or annotated function into a tool, resource, template, prompt or skill; fails if its
    /// definition is invalid.
    #[doc(hidden)]
    fn into_item(self) -> Result<CatalogItem>;
}

/// Marker type for [`Addable`]: a completed tool, resource, template, prompt or skill is added.
#[doc(hidden)]
pub struct CompletedForm;

/// Marker type for [`Addable`]: a function with one of the attribute macros is added.
#[doc(hidden)]
pub struct AnnotatedForm;

impl<R: Register> Addable<CompletedForm> for R {
    fn into_item(self) -> Result<CatalogItem> {
        self.register()
    }
}

// With a second implementation, rustc explains a function without an attribute by the message of the trait; with a
// single candidate it would report the number of its parameters.
impl<F, R> Addable<AnnotatedForm> for F
where
    F: FnOnce() -> R,
    R: Register,
{
    fn into_item(self) -> Result<CatalogItem> {
        self().register()
    }
}

impl Register for Result<CatalogItem> {
    fn register(self) -> Result<CatalogItem> {
        self
    }
}

/// Snapshot of all definitions that are registered at a server.
#[derive(Clone, Default)]
pub(crate) struct Catalog {
    pub(crate) tools: CatalogList<ToolEntry>,
    pub(crate) resources: CatalogList<ResourceEntry>,
    pub(crate) templates: CatalogList<TemplateEntry>,
    pub(crate) prompts: CatalogList<PromptEntry>,
    pub(crate) skills: CatalogList<SkillEntry>,
    /// Instructions that replace those of the server.
    pub(crate) instructions: Option<String>,
    /// Extensions that are added to those of the server.
    pub(crate) extensions: Option<Meta>,
}

impl Catalog {
    pub(crate) fn add(&mut self, item: CatalogItem) -> Result<ListKind> {
        let duplicate = |noun: &str, name: &str| Error::setup(format!("duplicate {noun} `{name}`"));
        match item {
            CatalogItem::Tool(entry) => {
                self.tools.insert(entry).map_err(|name| duplicate("tool", &name))?;
                Ok(ListKind::Tools)
            }
            CatalogItem::Resource(entry) => {
                self.resources.insert(entry).map_err(|name| duplicate("resource", &name))?;
                Ok(ListKind::Resources)
            }
            CatalogItem::Template(entry) => {
                self.templates.insert(entry).map_err(|name| duplicate("resource template", &name))?;
                Ok(ListKind::Resources)
            }
            CatalogItem::Prompt(entry) => {
                self.prompts.insert(entry).map_err(|name| duplicate("prompt", &name))?;
                Ok(ListKind::Prompts)
            }
            CatalogItem::Skill(entry) => {
                skills::add(self, entry)?;
                Ok(ListKind::Resources)
            }
        }
    }

    /// Removes a resource, unless it is a file of a skill.
    pub(crate) fn remove_resource(&mut self, uri: &str) -> bool {
        let free = self.resources.find(uri).is_some_and(|resource| !resource.is_skill_file);
        free && self.resources.remove(uri)
    }

    /// Checks that the server has every type of state that a handler takes.
    pub(crate) fn check_state(&self, server: &StateMap) -> Result<()> {
        check_state("tool", &self.tools, server)?;
        check_state("resource", &self.resources, server)?;
        check_state("resource template", &self.templates, server)?;
        check_state("prompt", &self.prompts, server)
    }

    /// Adds the tools, prompts, resources and skills of a mounted server to the catalog. Tools and prompts get the
    /// prefix; URIs do not change.
    pub(crate) fn mount(&mut self, prefix: &str, other: &Catalog, state: &Arc<StateMap>) -> Result<()> {
        let prefixed =
            |name: &str| if prefix.is_empty() { name.to_owned() } else { format!("{prefix}_{name}") };
        for tool in other.tools.iter() {
            let name = prefixed(&tool.name);
            check_name("tool", &name)?;
            self.add(CatalogItem::Tool(Arc::new(tool.clone().mounted(name, state))))?;
        }
        for prompt in other.prompts.iter() {
            self.add(CatalogItem::Prompt(Arc::new(prompt.clone().mounted(prefixed(&prompt.name), state))))?;
        }
        for skill in other.skills.iter() {
            self.add(CatalogItem::Skill(Arc::new(skill.clone().mounted(state))))?;
        }
        for resource in other.resources.iter().filter(|resource| !resource.is_skill_file) {
            self.add(CatalogItem::Resource(Arc::new(resource.clone().mounted(state))))?;
        }
        for template in other.templates.iter() {
            self.add(CatalogItem::Template(Arc::new(template.clone().mounted(state))))?;
        }
        Ok(())
    }
}

fn check_state<T: CatalogEntry>(noun: &str, items: &CatalogList<T>, server: &StateMap) -> Result<()> {
    for item in items.iter() {
        let (required, own_state) = item.required_state();
        let is_missing = |required: &&RequiredState| {
            !server.has(**required) && !own_state.is_some_and(|own_state| own_state.has(**required))
        };
        if let Some(missing) = required.iter().find(is_missing) {
            return Err(Error::setup(format!(
                "the {noun} `{}` takes a State<{}>, which the server does not have: call .state(value) on the server",
                item.key(),
                missing.name()
            )));
        }
    }
    Ok(())
}

/// Checks that a name is accepted by every client: 1 to 128 letters, digits, `_`, `-` and `.`.
pub(crate) fn check_name(noun: &str, name: &str) -> Result<()> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    if (1..=128).contains(&name.len()) && name.bytes().all(allowed) {
        return Ok(());
    }
    Err(Error::setup(format!(
        "`{name}` is not a valid name of a {noun}: use 1 to 128 letters, digits, underscores, hyphens and dots"
    )))
}
