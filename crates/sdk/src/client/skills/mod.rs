//! Skills of a server: what it lists, one by its URI, and what is in their folders. Nothing is read before it is wanted.

#[cfg(feature = "skills")]
mod load;

use linchpin_protocol::model::{
    GetSkillParams, ReadResourceDirectoryParams, ReadResourceDirectoryResult, Resource, Skill, extension,
};
use linchpin_protocol::wire::Invalid;
use linchpin_protocol::{Method, wire};
use serde_json::Value;

use super::{Call, Client, Item, Pages};
#[cfg(feature = "skills")]
pub use load::{LoadedSkill, SkillFile};

/// The type of a folder.
const FOLDER: &str = "inode/directory";

/// Something in a folder.
#[derive(Debug, Clone, PartialEq)]
pub enum Child {
    /// A file.
    File(Resource),
    /// A folder, to be looked into in turn.
    Folder(Resource),
}

impl Child {
    /// What the server says of it.
    pub fn resource(&self) -> &Resource {
        let (Child::File(resource) | Child::Folder(resource)) = self;
        resource
    }
}

impl From<Resource> for Child {
    fn from(resource: Resource) -> Self {
        let folder = resource.mime_type.as_deref() == Some(FOLDER);
        if folder { Child::Folder(resource) } else { Child::File(resource) }
    }
}

impl Item for Child {
    type Page = ReadResourceDirectoryResult;
    const METHOD: Method = Method::ReadResourceDirectory;
    const MEMBER: &'static str = "resources";

    fn open(page: Self::Page) -> (Vec<Self>, Option<String>) {
        (page.resources.into_iter().map(Child::from).collect(), page.next_cursor)
    }

    fn entry(text: &str) -> Result<Self, Invalid> {
        wire::decode::<Resource>(text).map(Child::from)
    }

    fn offered(client: &Client) -> bool {
        client.reads_directories()
    }
}

impl Client {
    /// The skills that the server lists, with the digests of their files. It may have others that it does not list.
    pub fn skills(&self) -> Pages<Skill> {
        Pages::new(self.clone())
    }

    /// A skill by the URI of its `SKILL.md`, whether the server lists it or not. Names are no way to find one: they
    /// are not unique.
    pub fn skill(&self, uri: impl Into<String>) -> Call<Skill> {
        self.send(Method::GetSkill, &GetSkillParams { uri: uri.into(), meta: None })
    }

    /// What is directly in a folder of a skill.
    pub fn folder(&self, uri: impl Into<String>) -> Pages<Child> {
        Pages::within(self.clone(), uri.into())
    }

    /// Whether the server offers an extension.
    pub fn offers(&self, extension: &str) -> bool {
        self.capabilities().extensions.as_ref().is_some_and(|offered| offered.contains_key(extension))
    }

    /// Whether the server can be asked what is in a folder.
    pub(crate) fn reads_directories(&self) -> bool {
        let settings = self.capabilities().extensions.as_ref().and_then(|all| all.get(extension::SKILLS));
        settings.and_then(|settings| settings.get("directoryRead")) == Some(&Value::Bool(true))
    }

    pub(crate) fn read_directory(
        &self,
        params: &ReadResourceDirectoryParams,
    ) -> Call<ReadResourceDirectoryResult> {
        self.send(Method::ReadResourceDirectory, params)
    }
}
