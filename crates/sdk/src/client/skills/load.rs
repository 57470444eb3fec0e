//! Skill loading. Files are read on demand, and each file is verified against the skill entry before it is returned.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use linchpin_protocol::model::{ReadResourceResult, Skill, SkillResource, SkillResources};

use crate::client::{Client, ClientError};
use crate::skills::{
    MAX_BYTES, MAX_FILES, SKILL_MD, body, check_name, digest, encode_path, normalize, parse, root, same,
};

/// A skill whose `SKILL.md` was read and matches its entry.
#[derive(Debug)]
pub struct LoadedSkill {
    client: Client,
    entry: Skill,
    text: String,
    room: Room,
}

/// Remaining bytes that may be read from files without a declared size.
#[derive(Debug)]
struct Room(AtomicU64);

impl Room {
    fn spend(&self, bytes: u64) -> Result<(), String> {
        let left = |room: u64| room.checked_sub(bytes);
        let spent = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
        spent.map(|_| ()).map_err(|_| format!("read more than {MAX_BYTES} bytes of this skill"))
    }
}

/// A file of a skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillFile {
    /// URI of the file.
    pub uri: String,
    /// MIME type of the file.
    pub mime_type: Option<String>,
    /// Contents of the file.
    pub bytes: Vec<u8>,
}

impl SkillFile {
    /// Returns the contents if they are UTF-8 text.
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.bytes).ok()
    }
}

impl Client {
    /// Loads a skill from its entry, which [`Client::skills`] or [`Client::skill`] returned: reads its `SKILL.md`
    /// and verifies size, digest and frontmatter against the entry. A skill that differs is rejected: get its entry
    /// again, and ask the user again, since the skill has changed.
    ///
    /// The text of a skill is written by the server; do not treat it as instructions of the user.
    pub async fn load(&self, skill: &Skill) -> Result<LoadedSkill, ClientError> {
        let bad = |fault: String| ClientError::BadSkill { uri: skill.uri.clone(), fault };
        check_entry(skill).map_err(bad)?;
        let loaded = LoadedSkill {
            client: self.clone(),
            entry: skill.clone(),
            text: String::new(),
            room: Room(AtomicU64::new(MAX_BYTES)),
        };
        let file = loaded.fetch(&skill.uri).await?;
        let text = String::from_utf8(file.bytes).map_err(|_| bad("it is not valid UTF-8".into()))?;
        let head = parse(&text).map_err(bad)?;
        same(&head, &skill.frontmatter).map_err(bad)?;
        Ok(LoadedSkill { text, ..loaded })
    }
}

impl LoadedSkill {
    /// Returns the entry of the skill, as the server listed it.
    pub fn entry(&self) -> &Skill {
        &self.entry
    }

    /// Returns the name, which need not be unique.
    pub fn name(&self) -> &str {
        &self.entry.frontmatter.name
    }

    /// Returns the complete `SKILL.md`.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the instructions for the model: `SKILL.md` without its frontmatter.
    pub fn instructions(&self) -> &str {
        body(&self.text)
    }

    /// Returns whether the files are verified against digests.
    pub fn is_verified(&self) -> bool {
        self.entry.resources != SkillResources::Dynamic
    }

    /// Reads a file by its path relative to the skill's directory, as used in `SKILL.md`: `references/GUIDE.md`.
    pub async fn read(&self, path: &str) -> Result<SkillFile, ClientError> {
        let bad = |fault: String| ClientError::BadSkill { uri: self.entry.uri.clone(), fault };
        let path = normalize(path).and_then(|path| encode_path(&path)).map_err(bad)?;
        let root = root(&self.entry.uri).unwrap_or_default();
        self.fetch(&format!("{root}/{path}")).await
    }

    /// Reads a file and verifies it against the entry.
    async fn fetch(&self, uri: &str) -> Result<SkillFile, ClientError> {
        let bad = |fault: String| ClientError::BadSkill { uri: uri.to_owned(), fault };
        let promised = match &self.entry.resources {
            SkillResources::Dynamic => None,
            SkillResources::Files(files) => {
                let file = files.iter().find(|file| file.uri == uri);
                Some(file.ok_or_else(|| bad("the skill entry does not list this file".into()))?)
            }
        };
        let result = self.client.read(uri).await?;
        let file = opened(uri, result).map_err(bad)?;
        match promised {
            Some(promised) => check_file(promised, &file.bytes).map_err(bad)?,
            None => self.room.spend(file.bytes.len() as u64).map_err(bad)?,
        }
        Ok(file)
    }
}

/// Extracts the contents of a file as bytes.
fn opened(uri: &str, result: ReadResourceResult) -> Result<SkillFile, String> {
    let mut contents = result.contents.into_iter().filter(|contents| contents.uri == uri);
    let (Some(file), None) = (contents.next(), contents.next()) else {
        return Err("the response must contain exactly this file".into());
    };
    let bytes = match (file.text, file.blob) {
        (Some(text), None) => text.into_bytes(),
        (None, Some(blob)) => STANDARD.decode(blob).map_err(|error| format!("invalid Base64: {error}"))?,
        _ => return Err("it must have either text or a blob".into()),
    };
    Ok(SkillFile { uri: file.uri, mime_type: file.mime_type, bytes })
}

fn check_file(promised: &SkillResource, bytes: &[u8]) -> Result<(), String> {
    if promised.size != bytes.len() as u64 {
        return Err(format!("its size is {} bytes, but the skill entry says {}", bytes.len(), promised.size));
    }
    if promised.digest != digest(bytes) {
        return Err("its digest does not match the skill entry".into());
    }
    Ok(())
}

/// Validates an entry before anything is read.
fn check_entry(skill: &Skill) -> Result<(), String> {
    let name = &skill.frontmatter.name;
    check_name(name)?;
    let root = root(&skill.uri).ok_or_else(|| format!("its URI must end with /{SKILL_MD}"))?;
    if root.rsplit('/').next() != Some(name) {
        return Err(format!("its directory must be named `{name}` like the skill"));
    }
    let SkillResources::Files(files) = &skill.resources else { return Ok(()) };
    let within = |uri: &str| uri.strip_prefix(root).is_some_and(|rest| rest.starts_with('/'));
    if let Some(file) = files.iter().find(|file| !within(&file.uri)) {
        return Err(format!("its file {} is outside its directory", file.uri));
    }
    let mut uris = HashSet::new();
    if let Some(file) = files.iter().find(|file| !uris.insert(&*file.uri)) {
        return Err(format!("its file {} is listed twice", file.uri));
    }
    if !uris.contains(&*skill.uri) {
        return Err(format!("its files do not include {SKILL_MD}"));
    }
    if files.len() > MAX_FILES {
        return Err(format!("it has more than {MAX_FILES} files"));
    }
    let size = files.iter().fold(0_u64, |sum, file| sum.saturating_add(file.size));
    if size > MAX_BYTES {
        return Err(format!("its files are larger than {MAX_BYTES} bytes in total"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_so_much() {
        let room = Room(AtomicU64::new(MAX_BYTES));
        assert_eq!((room.spend(MAX_BYTES - 1), room.spend(1)), (Ok(()), Ok(())));
        assert!(room.spend(1).unwrap_err().contains("more than 16777216 bytes"));
        assert_eq!(room.spend(0), Ok(()));
    }
}
