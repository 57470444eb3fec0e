//! Skills of a server: the list, a skill by its URI, and the contents of directories. Files are read on demand.

#[cfg(feature = "skills")]
mod load;

use linchpin_protocol::model::{
    GetSkillParams, ReadResourceDirectoryParams, ReadResourceDirectoryResult, Resource, Skill, extension,
};
use linchpin_protocol::wire::InvalidValue;
use linchpin_protocol::{Method, wire};
use serde_json::Value;

use super::{Call, Client, Item, Pages};
#[cfg(feature = "skills")]
pub use load::{LoadedSkill, SkillFile};

/// MIME type that marks a directory in a listing of skill files.
const DIRECTORY_MIME_TYPE: &str = "inode/directory";

/// Entry of a directory of a server: a file that can be read, or a directory that can be listed.
#[derive(Debug, Clone, PartialEq)]
pub enum DirectoryEntry {
    /// A file, which [`Client::read`] can read.
    File(Resource),
    /// A directory, which [`Client::directory`] can list.
    Directory(Resource),
}

impl DirectoryEntry {
    /// Returns the resource that describes this file or directory.
    pub fn resource(&self) -> &Resource {
        let (DirectoryEntry::File(resource) | DirectoryEntry::Directory(resource)) = self;
        resource
    }
}

impl From<Resource> for DirectoryEntry {
    fn from(resource: Resource) -> Self {
        let folder = resource.mime_type.as_deref() == Some(DIRECTORY_MIME_TYPE);
        if folder { DirectoryEntry::Directory(resource) } else { DirectoryEntry::File(resource) }
    }
}

impl Item for DirectoryEntry {
    type Page = ReadResourceDirectoryResult;
    const METHOD: Method = Method::ReadResourceDirectory;
    const MEMBER: &'static str = "resources";

    fn into_parts(page: Self::Page) -> (Vec<Self>, Option<String>) {
        (page.resources.into_iter().map(DirectoryEntry::from).collect(), page.next_cursor)
    }

    fn decode_entry(text: &str) -> Result<Self, InvalidValue> {
        wire::decode::<Resource>(text).map(DirectoryEntry::from)
    }

    fn is_supported(client: &Client) -> bool {
        client.can_list_directories()
    }
}

impl Client {
    /// Lists the skills of the server, with the digests of their files. The server may have unlisted skills, too.
    pub fn skills(&self) -> Pages<Skill> {
        Pages::new(self.clone())
    }

    /// Gets a skill by the URI of its `SKILL.md`, listed or not. Names do not identify a skill: they are not unique.
    pub fn skill(&self, uri: impl Into<String>) -> Call<Skill> {
        self.typed_call(Method::GetSkill, &GetSkillParams { uri: uri.into(), meta: None })
    }

    /// Lists the entries of a directory of a skill.
    pub fn directory(&self, uri: impl Into<String>) -> Pages<DirectoryEntry> {
        Pages::in_directory(self.clone(), uri.into())
    }

    /// Returns whether the server declares an extension.
    pub fn has_extension(&self, extension: &str) -> bool {
        self.capabilities().extensions.as_ref().is_some_and(|extensions| extensions.contains_key(extension))
    }

    /// Returns whether the server supports listing directories.
    pub(crate) fn can_list_directories(&self) -> bool {
        let settings = self.capabilities().extensions.as_ref().and_then(|all| all.get(extension::SKILLS));
        settings.and_then(|settings| settings.get("directoryRead")) == Some(&Value::Bool(true))
    }

    pub(crate) fn read_directory(
        &self,
        params: &ReadResourceDirectoryParams,
    ) -> Call<ReadResourceDirectoryResult> {
        self.typed_call(Method::ReadResourceDirectory, params)
    }
}
