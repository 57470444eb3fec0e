//! Skills that a server offers: the extension [`extension::SKILLS`](super::extension::SKILLS).
//!
//! A skill is a folder of files, `SKILL.md` among them, and each file is a resource that is read like any other.
//! What is new is a list of skills with the digest of every file, and a way to look into a folder.

use std::fmt;

use serde::Deserialize;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::results::results;
use super::{CacheScope, Meta, Resource};
use crate::encode::{Encode, Encoder, model};

model! {
    /// What a server that has skills says in its map of extensions.
    #[derive(Default)]
    pub struct SkillsSettings {
        /// It answers `resources/directory/read`.
        directory_read: Option<bool> = "directoryRead",
    }

    /// A skill.
    pub struct Skill {
        /// Where its `SKILL.md` is. Within one server this, and not the name, tells skills apart.
        uri: String = "uri",
        /// The head of its `SKILL.md`.
        frontmatter: SkillFrontmatter = "frontmatter",
        /// Its files.
        resources: SkillResources = "resources",
    }

    /// One file of a skill.
    pub struct SkillResource {
        /// Where it is.
        uri: String = "uri",
        /// The SHA-256 of its bytes: `sha256:` and 64 lowercase hexadecimal digits.
        digest: String = "digest",
        /// How many bytes those are.
        size: u64 = "size",
    }

    /// Which skill.
    pub struct GetSkillParams {
        /// Where its `SKILL.md` is.
        uri: String = "uri",
        /// Metadata.
        meta: Option<Meta> = "_meta",
    }

    /// Which folder, and which page of what is in it.
    pub struct ReadResourceDirectoryParams {
        /// Where the folder is, without a slash at the end.
        uri: String = "uri",
        /// Where the page begins; the first one when absent.
        cursor: Option<String> = "cursor",
        /// Metadata.
        meta: Option<Meta> = "_meta",
    }
}

results! {
    /// One page of skills; it need not name all that the server has.
    pub struct ListSkillsResult {
        /// The skills.
        skills: Vec<Skill> = "skills",
        /// Where the next page begins.
        next_cursor: Option<String> = "nextCursor",
        /// Milliseconds for which this counts as fresh.
        ttl_ms: Option<u64> = "ttlMs" since CacheHints,
        /// Who may keep it.
        cache_scope: Option<CacheScope> = "cacheScope" since CacheHints,
    }

    /// A single skill.
    pub struct GetSkillResult {
        /// The skill.
        skill: Skill = "skill",
        /// Milliseconds for which this counts as fresh.
        ttl_ms: Option<u64> = "ttlMs" since CacheHints,
        /// Who may keep it.
        cache_scope: Option<CacheScope> = "cacheScope" since CacheHints,
    }

    /// One page of what is directly in a folder.
    pub struct ReadResourceDirectoryResult {
        /// Files, and folders, which are resources of type `inode/directory`.
        resources: Vec<Resource> = "resources",
        /// Where the next page begins.
        next_cursor: Option<String> = "nextCursor",
    }
}

/// The head of a `SKILL.md`, everything its author wrote.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct SkillFrontmatter {
    /// The name, which is also that of the folder.
    pub name: String,
    /// What it is for and when to use it.
    pub description: String,
    /// All other members.
    #[serde(flatten)]
    pub others: Map<String, Value>,
}

impl Encode for SkillFrontmatter {
    fn encode(&self, to: &mut Encoder<'_>) {
        to.object(|fields| {
            fields.field("name", &self.name);
            fields.field("description", &self.description);
            fields.members(&self.others);
        });
    }
}

/// The files of a skill.
#[derive(Debug, Clone, PartialEq)]
pub enum SkillResources {
    /// All of them, `SKILL.md` included.
    Files(Vec<SkillResource>),
    /// They are made when they are read, so nobody can say their digests: the word `dynamic` on the wire.
    Dynamic,
}

impl Encode for SkillResources {
    fn encode(&self, to: &mut Encoder<'_>) {
        match self {
            SkillResources::Files(files) => files.encode(to),
            SkillResources::Dynamic => "dynamic".encode(to),
        }
    }
}

impl<'de> Deserialize<'de> for SkillResources {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FilesOrDynamic)
    }
}

struct FilesOrDynamic;

impl<'de> Visitor<'de> for FilesOrDynamic {
    type Value = SkillResources;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of files or \"dynamic\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<SkillResources, E> {
        if text == "dynamic" {
            Ok(SkillResources::Dynamic)
        } else {
            Err(E::invalid_value(de::Unexpected::Str(text), &self))
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, files: A) -> Result<SkillResources, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(files)).map(SkillResources::Files)
    }
}
