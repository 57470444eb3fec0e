//! Builder of a skill of a server: from a text, from a folder, or from parts.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::Arc;

use linchpin_protocol::model::{self, SkillFrontmatter, SkillResource, SkillResources};
use serde_json::Value;

use super::files::{GeneratedFile, SkillFileSource, StaticFile, contents, mime_type};
use super::{SkillEntry, folder};
use crate::server::catalog::{CatalogItem, Register};
use crate::server::definitions::handler::Handler;
use crate::server::definitions::output::IntoResource;
use crate::server::definitions::resource::{ResourceArgs, ResourceEntry};
use crate::skills::{MAX_BYTES, MAX_FILES, SKILL_MD, check_name, digest, encode_path, parse};
use crate::{Error, Result};

/// Maximum length of the description of a skill in characters.
const MAX_DESCRIPTION_LEN: usize = 1_024;

/// Builder of a skill: a folder of files, including `SKILL.md`, that teaches a model a procedure. Every file can be
/// read as a resource; clients that support the extension also see the skill as a whole.
#[must_use = "a skill does nothing until it is added to a server"]
pub struct Skill {
    source: Source,
    prefix: String,
    files: BTreeMap<String, SkillFileSource>,
    enumerated: bool,
    /// First misuse of the builder, reported when the skill is added.
    first_error: Option<String>,
}

/// Where the `SKILL.md` of a skill comes from.
enum Source {
    /// `SKILL.md` generated from this frontmatter and body.
    Parts { head: Vec<(String, Value)>, body: String },
    /// `SKILL.md` given as text, used unchanged.
    Text(String),
    /// `SKILL.md` read from this folder, together with the other files.
    Folder(PathBuf),
}

impl Skill {
    /// Creates a skill with a name and a description of its purpose and use. Add the body with [`Self::instructions`].
    pub fn new(name: impl Into<String>, description: impl Into<String>) -> Self {
        let head = vec![
            ("name".into(), Value::String(name.into())),
            ("description".into(), Value::String(description.into())),
        ];
        Self::from_source(Source::Parts { head, body: String::new() })
    }

    /// Creates a skill from the text of its `SKILL.md`, which starts with the frontmatter.
    pub fn from_text(skill_md: impl Into<String>) -> Self {
        Self::from_source(Source::Text(skill_md.into()))
    }

    /// Creates a skill from a folder with a `SKILL.md`. All files are read when it is added, except those whose names
    /// start with a dot. The name of the folder may differ from the name of the skill.
    pub fn from_folder(folder: impl Into<PathBuf>) -> Self {
        Self::from_source(Source::Folder(folder.into()))
    }

    fn from_source(source: Source) -> Self {
        Skill { source, prefix: String::new(), files: BTreeMap::new(), enumerated: true, first_error: None }
    }

    /// Sets the instructions for the model in Markdown, the body of `SKILL.md`. For [`Self::new`].
    pub fn instructions(mut self, markdown: impl Into<String>) -> Self {
        if let Source::Parts { body, .. } = &mut self.source {
            *body = markdown.into();
        } else {
            self.first_error = Some(format!(
                "its instructions are set by its {SKILL_MD}: remove the call of `instructions`"
            ));
        }
        self
    }

    /// Adds a field to the frontmatter, such as `license`. For [`Self::new`].
    pub fn field(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        if let Source::Parts { head, .. } = &mut self.source {
            head.push((name.into(), value.into()));
        } else {
            self.first_error =
                Some(format!("its frontmatter is set by its {SKILL_MD}: remove the call of `field`"));
        }
        self
    }

    /// Sets the parent of the skill: `acme/billing` puts `refunds` at `skill://acme/billing/refunds`. A prefix with a
    /// scheme, such as `github://acme/skills`, is used unchanged.
    pub fn under(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Adds a file by its path in the skill's folder.
    pub fn file(mut self, path: impl Into<String>, contents: impl Into<Vec<u8>>) -> Self {
        self.add(path.into(), SkillFileSource::Bytes(contents.into()));
        self
    }

    /// Adds a file that is generated when it is read: `|| async { … }` or `|cx: Context| async { … }`. Such a skill has
    /// no digests, and some clients decline it.
    pub fn file_with<Form, H>(mut self, path: impl Into<String>, handler: H) -> Self
    where
        H: Handler<Form>,
        H::Args: ResourceArgs,
        H::Output: IntoResource,
        Form: 'static,
    {
        let path = path.into();
        let made =
            GeneratedFile { handler, mime_type: mime_type(&path, true), form: PhantomData::<fn() -> Form> };
        self.add(path, SkillFileSource::Generated(Arc::new(made)));
        self
    }

    fn add(&mut self, path: String, file: SkillFileSource) {
        if self.files.contains_key(&path) || path == SKILL_MD {
            self.first_error = Some(format!("duplicate file `{path}`"));
        } else {
            self.files.insert(path, file);
        }
    }

    /// Omits the skill from the list of skills. Clients that know its URI can still request it.
    pub fn unlisted(mut self) -> Self {
        self.enumerated = false;
        self
    }

    /// Returns a description of the skill for error messages, before its real name is known.
    fn label(&self) -> String {
        match &self.source {
            Source::Parts { head, .. } => head[0].1.as_str().unwrap_or_default().to_owned(),
            Source::Text(_) => "given as text".into(),
            Source::Folder(folder) => folder.display().to_string(),
        }
    }

    fn finish(mut self) -> Result<SkillEntry, String> {
        if let Some(misuse) = self.first_error.take() {
            return Err(misuse);
        }
        let skill_md = self.skill_md()?;
        let frontmatter = parse(&skill_md).map_err(|reason| format!("{reason} (in {SKILL_MD})"))?;
        check_frontmatter(&frontmatter)?;
        let root = root(&self.prefix, &frontmatter.name)?;
        let skill_md = (SKILL_MD.to_owned(), SkillFileSource::Bytes(skill_md.into_bytes()));
        let files: Vec<_> = std::iter::once(skill_md).chain(self.files).collect();
        check_size(&files)?;
        let mut parts = RegisteredFiles::default();
        for (path, file) in files {
            let uri = format!("{root}/{}", encode_path(&path)?);
            parts.add(&path, uri, file, &frontmatter);
        }
        let resources =
            if parts.has_generated { SkillResources::Dynamic } else { SkillResources::Files(parts.manifest) };
        let uri = format!("{root}/{SKILL_MD}");
        let mut files: Vec<_> = parts.entries.iter().map(|entry| entry.uri.clone()).collect();
        files.sort_unstable();
        Ok(SkillEntry {
            uri: (&*uri).into(),
            definition: model::Skill { uri, frontmatter, resources },
            enumerated: self.enumerated,
            files,
            resources: parts.entries,
            remote: None,
            state: None,
        })
    }

    /// Returns the text of the skill's `SKILL.md`. Adds the other files if the source is a folder.
    fn skill_md(&mut self) -> Result<String, String> {
        match &mut self.source {
            Source::Text(text) => Ok(std::mem::take(text)),
            Source::Parts { head, body } => Ok(write_skill_md(head, body)),
            Source::Folder(folder) => {
                let mut skill_md = None;
                for (path, bytes) in folder::read(folder)? {
                    if path == SKILL_MD {
                        skill_md = Some(bytes);
                    } else if let Some(_given) = self.files.get(&path) {
                        return Err(format!("duplicate file `{path}`"));
                    } else {
                        self.files.insert(path, SkillFileSource::Bytes(bytes));
                    }
                }
                let skill_md = skill_md.ok_or_else(|| format!("the folder has no {SKILL_MD}"))?;
                String::from_utf8(skill_md).map_err(|_| format!("{SKILL_MD} is not UTF-8"))
            }
        }
    }
}

impl Register for Skill {
    fn register(self) -> Result<CatalogItem> {
        let label = self.label();
        let refuse = |reason| Error::setup(format!("the skill `{label}` cannot be registered: {reason}"));
        self.finish().map(|entry| CatalogItem::Skill(Arc::new(entry))).map_err(refuse)
    }
}

/// Files of a skill as registered: the list for clients, and a resource for each file.
#[derive(Default)]
struct RegisteredFiles {
    manifest: Vec<SkillResource>,
    entries: Vec<Arc<ResourceEntry>>,
    has_generated: bool,
}

impl RegisteredFiles {
    fn add(&mut self, path: &str, uri: String, file: SkillFileSource, frontmatter: &SkillFrontmatter) {
        let name = path.rsplit('/').next().unwrap_or(path);
        let mut definition = model::Resource { uri, name: name.to_owned(), ..model::Resource::default() };
        if path == SKILL_MD {
            definition.name.clone_from(&frontmatter.name);
            definition.description = Some(frontmatter.description.clone());
        }
        let entry = match file {
            SkillFileSource::Bytes(bytes) => {
                let mime_type = mime_type(path, std::str::from_utf8(&bytes).is_ok());
                let (uri, size) = (definition.uri.clone(), bytes.len() as u64);
                definition.mime_type = Some(mime_type.to_owned());
                definition.size = Some(size);
                let fixed = StaticFile(contents(&uri, mime_type, &bytes));
                self.manifest.push(SkillResource { uri, digest: digest(&bytes), size });
                ResourceEntry::skill_file(definition, Arc::new(fixed))
            }
            SkillFileSource::Generated(read) => {
                self.has_generated = true;
                definition.mime_type = Some(mime_type(path, true).to_owned());
                ResourceEntry::skill_file(definition, read)
            }
        };
        self.entries.push(Arc::new(entry));
    }
}

/// Generates a `SKILL.md`: the frontmatter as YAML, of which JSON is a subset, followed by the body.
fn write_skill_md(head: &[(String, Value)], body: &str) -> String {
    let mut text = String::from("---\n");
    for (name, value) in head {
        let _ = writeln!(text, "{}: {value}", Value::String(name.clone())); // writing to a `String` cannot fail
    }
    text + "---\n\n" + body
}

fn check_frontmatter(head: &SkillFrontmatter) -> Result<(), String> {
    check_name(&head.name)?;
    if head.description.chars().count() > MAX_DESCRIPTION_LEN {
        return Err(format!("its description has more than {MAX_DESCRIPTION_LEN} characters"));
    }
    Ok(())
}

fn check_size(files: &[(String, SkillFileSource)]) -> Result<(), String> {
    if files.len() > MAX_FILES {
        return Err(format!("the skill has more than {MAX_FILES} files"));
    }
    let size = |(_, file): &(String, SkillFileSource)| {
        if let SkillFileSource::Bytes(bytes) = file { bytes.len() as u64 } else { 0 }
    };
    if files.iter().map(size).sum::<u64>() > MAX_BYTES {
        return Err(format!("the files of the skill have more than {MAX_BYTES} bytes in total"));
    }
    Ok(())
}

/// Returns the URI of a skill's folder.
fn root(prefix: &str, name: &str) -> Result<String, String> {
    let prefix = prefix.trim_end_matches('/');
    if prefix.is_empty() {
        return Ok(format!("skill://{name}"));
    }
    if prefix.contains("://") {
        return Ok(format!("{prefix}/{name}"));
    }
    Ok(format!("skill://{}/{name}", encode_path(prefix)?))
}
