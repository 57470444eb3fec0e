//! Skills of a server: the list, a skill by its URI, and the contents of directories. Files are read on demand.

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

/// MIME type of a directory.
const FOLDER: &str = "inode/directory";

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq)]
pub enum Child {
    /// A file.
    File(Resource),
    /// A directory, which [`Client::folder`] can list.
    Folder(Resource),
}

impl Child {
    /// Returns the resource of the entry.
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
    /// Lists the skills of the server, with the digests of their files. The server may have unlisted skills, too.
    pub fn skills(&self) -> Pages<Skill> {
        Pages::new(self.clone())
    }

    /// Gets a skill by the URI of its `SKILL.md`, listed or not. Names do not identify a skill: they are not unique.
    pub fn skill(&self, uri: impl Into<String>) -> Call<Skill> {
        self.send(Method::GetSkill, &GetSkillParams { uri: uri.into(), meta: None })
    }

    /// Lists the entries of a directory of a skill.
    pub fn folder(&self, uri: impl Into<String>) -> Pages<Child> {
        Pages::within(self.clone(), uri.into())
    }

    /// Returns whether the server declares an extension.
    pub fn offers(&self, extension: &str) -> bool {
        self.capabilities().extensions.as_ref().is_some_and(|offered| offered.contains_key(extension))
    }

    /// Returns whether the server supports listing directories.
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
