//! Loading of a skill from a server. Files are read on demand, and each file is verified against the skill entry before
//! it is returned.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use linchpin_protocol::model::{ReadResourceResult, Skill, SkillResource, SkillResources};

use crate::client::{Client, ClientError};
use crate::skills::{
    MAX_BYTES, MAX_FILES, SKILL_MD, body, check_equal, check_name, digest, encode_path, normalize, parse,
    skill_root,
};

/// Skill that a client has loaded: its `SKILL.md` was read and matches its entry.
#[derive(Debug)]
pub struct LoadedSkill {
    client: Client,
    entry: Skill,
    text: String,
    budget: ReadBudget,
}

/// Number of bytes that may still be read from skill files without a declared size.
#[derive(Debug)]
struct ReadBudget(AtomicU64);

impl ReadBudget {
    fn spend(&self, bytes: u64) -> Result<(), String> {
        let remaining = |bytes_left: u64| bytes_left.checked_sub(bytes);
        let spent = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, remaining);
        spent
            .map(|_| ())
            .map_err(|_| format!("the limit of {MAX_BYTES} bytes to read of this skill is reached"))
    }
}

/// File of a skill, read from the server.
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
    /// Returns the contents of the file if they are UTF-8 text.
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
        let invalid = |fault: String| ClientError::BadSkill { uri: skill.uri.clone(), reason: fault };
        check_entry(skill).map_err(invalid)?;
        let loaded = LoadedSkill {
            client: self.clone(),
            entry: skill.clone(),
            text: String::new(),
            budget: ReadBudget(AtomicU64::new(MAX_BYTES)),
        };
        let file = loaded.fetch(&skill.uri).await?;
        let text = String::from_utf8(file.bytes)
            .map_err(|_| invalid(format!("its {SKILL_MD} is not valid UTF-8")))?;
        let head = parse(&text).map_err(invalid)?;
        check_equal(&head, &skill.frontmatter).map_err(invalid)?;
        Ok(LoadedSkill { text, ..loaded })
    }
}

impl LoadedSkill {
    /// Returns the listed entry of the skill, as the server sent it.
    pub fn entry(&self) -> &Skill {
        &self.entry
    }

    /// Returns the name of the skill, which need not be unique.
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

    /// Returns whether the server lists digests of the skill's files, against which they are verified.
    pub fn is_verified(&self) -> bool {
        self.entry.resources != SkillResources::Dynamic
    }

    /// Reads a file by its path relative to the skill's directory, as used in `SKILL.md`: `references/GUIDE.md`.
    pub async fn read(&self, path: &str) -> Result<SkillFile, ClientError> {
        let invalid = |fault: String| ClientError::BadSkill { uri: self.entry.uri.clone(), reason: fault };
        let path = normalize(path).and_then(|path| encode_path(&path)).map_err(invalid)?;
        let root = skill_root(&self.entry.uri).unwrap_or_default();
        self.fetch(&format!("{root}/{path}")).await
    }

    /// Reads a file of the skill. If the skill entry lists its files, verifies size and digest of the file.
    async fn fetch(&self, uri: &str) -> Result<SkillFile, ClientError> {
        let invalid = |fault: String| ClientError::BadSkill { uri: uri.to_owned(), reason: fault };
        let declared = match &self.entry.resources {
            SkillResources::Dynamic => None,
            SkillResources::Files(files) => {
                let file = files.iter().find(|file| file.uri == uri);
                Some(file.ok_or_else(|| invalid("the skill entry does not list this file".into()))?)
            }
        };
        let result = self.client.read(uri).await?;
        let file = extract_file(uri, result).map_err(invalid)?;
        match declared {
            Some(declared) => check_file(declared, &file.bytes).map_err(invalid)?,
            None => self.budget.spend(file.bytes.len() as u64).map_err(invalid)?,
        }
        Ok(file)
    }
}

/// Extracts the contents of a skill file as bytes from the result of `resources/read`.
fn extract_file(uri: &str, result: ReadResourceResult) -> Result<SkillFile, String> {
    let mut contents = result.contents.into_iter().filter(|contents| contents.uri == uri);
    let (Some(file), None) = (contents.next(), contents.next()) else {
        return Err("the response must contain exactly the requested file".into());
    };
    let bytes = match (file.text, file.blob) {
        (Some(text), None) => text.into_bytes(),
        (None, Some(blob)) => STANDARD.decode(blob).map_err(|error| format!("invalid Base64: {error}"))?,
        _ => return Err("the file must have either `text` or `blob`".into()),
    };
    Ok(SkillFile { uri: file.uri, mime_type: file.mime_type, bytes })
}

fn check_file(declared: &SkillResource, bytes: &[u8]) -> Result<(), String> {
    if declared.size != bytes.len() as u64 {
        return Err(format!(
            "the size of the file is {} bytes, but the skill entry says {}",
            bytes.len(),
            declared.size
        ));
    }
    if declared.digest != digest(bytes) {
        return Err("the digest of the file does not match the skill entry".into());
    }
    Ok(())
}

/// Validates the listed entry of a skill before any file is read.
fn check_entry(skill: &Skill) -> Result<(), String> {
    let name = &skill.frontmatter.name;
    check_name(name)?;
    let root =
        skill_root(&skill.uri).ok_or_else(|| format!("the URI of the skill must end with /{SKILL_MD}"))?;
    if root.rsplit('/').next() != Some(name) {
        return Err(format!("the directory of the skill must be named `{name}` like the skill"));
    }
    let SkillResources::Files(files) = &skill.resources else { return Ok(()) };
    let is_inside_root = |uri: &str| uri.strip_prefix(root).is_some_and(|rest| rest.starts_with('/'));
    if let Some(file) = files.iter().find(|file| !is_inside_root(&file.uri)) {
        return Err(format!("the file {} is outside the directory of the skill", file.uri));
    }
    let mut uris = HashSet::new();
    if let Some(file) = files.iter().find(|file| !uris.insert(&*file.uri)) {
        return Err(format!("the file {} is listed twice in the skill entry", file.uri));
    }
    if !uris.contains(&*skill.uri) {
        return Err(format!("the skill entry does not list {SKILL_MD}"));
    }
    if files.len() > MAX_FILES {
        return Err(format!("the skill has more than {MAX_FILES} files"));
    }
    let size = files.iter().fold(0_u64, |sum, file| sum.saturating_add(file.size));
    if size > MAX_BYTES {
        return Err(format!("the files of the skill are larger than {MAX_BYTES} bytes in total"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_so_much() {
        let budget = ReadBudget(AtomicU64::new(MAX_BYTES));
        assert_eq!((budget.spend(MAX_BYTES - 1), budget.spend(1)), (Ok(()), Ok(())));
        assert!(budget.spend(1).unwrap_err().contains("the limit of 16777216 bytes"));
        assert_eq!(budget.spend(0), Ok(()));
    }
}
