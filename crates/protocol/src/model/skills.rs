//! Skills of a server: the extension [`extension::SKILLS`](super::extension::SKILLS).
//!
//! A skill is a directory of files with a `SKILL.md`. Each file is an ordinary resource. The extension adds a list of
//! skills with the digest of every file, and a method to list a directory.

use std::fmt;

use serde::Deserialize;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::results::results;
use super::{CacheScope, Meta, Resource};
use crate::encode::{Encode, Encoder, model};

model! {
    /// Settings of the skills extension in the server capabilities: whether directories can be read.
    #[derive(Default)]
    pub struct SkillsSettings {
        /// Whether the server supports `resources/directory/read`.
        directory_read: Option<bool> = "directoryRead",
    }

    /// Skill of a server, as listed: URI, front matter and files.
    pub struct Skill {
        /// URI of the `SKILL.md` of the skill. The URI, not the name, identifies a skill within a server.
        uri: String = "uri",
        /// Front matter of its `SKILL.md`.
        frontmatter: SkillFrontmatter = "frontmatter",
        /// Files of the skill.
        resources: SkillResources = "resources",
    }

    /// File in the list of a skill: URI, digest and size.
    pub struct SkillResource {
        /// URI of the file.
        uri: String = "uri",
        /// SHA-256 of the bytes: `sha256:` and 64 lowercase hexadecimal digits.
        digest: String = "digest",
        /// Size of the file in bytes.
        size: u64 = "size",
    }

    /// Parameters of `skills/get`.
    pub struct GetSkillParams {
        /// URI of the `SKILL.md` of the requested skill.
        uri: String = "uri",
        /// Metadata of the request (`_meta`).
        meta: Option<Meta> = "_meta",
    }

    /// Parameters of `resources/directory/read`.
    pub struct ReadResourceDirectoryParams {
        /// URI of the directory to list, without a trailing slash.
        uri: String = "uri",
        /// Cursor of the page. Default: the first page.
        cursor: Option<String> = "cursor",
        /// Metadata of the request (`_meta`).
        meta: Option<Meta> = "_meta",
    }
}

results! {
    /// Result of `skills/list`: one page of skills. The list need not contain all skills of the server.
    pub struct ListSkillsResult {
        /// Skills of the page.
        skills: Vec<Skill> = "skills",
        /// Cursor of the next page. Absent on the last page.
        next_cursor: Option<String> = "nextCursor",
        /// Time for which the result is fresh, in milliseconds.
        ttl_ms: Option<u64> = "ttlMs" since CacheHints,
        /// Who may cache the result.
        cache_scope: Option<CacheScope> = "cacheScope" since CacheHints,
    }

    /// Result of `skills/get`.
    pub struct GetSkillResult {
        /// Requested skill.
        skill: Skill = "skill",
        /// Time for which the result is fresh, in milliseconds.
        ttl_ms: Option<u64> = "ttlMs" since CacheHints,
        /// Who may cache the result.
        cache_scope: Option<CacheScope> = "cacheScope" since CacheHints,
    }

    /// Result of `resources/directory/read`: one page of the direct children of a directory.
    pub struct ReadResourceDirectoryResult {
        /// Files and subdirectories. Subdirectories are resources of type `inode/directory`.
        resources: Vec<Resource> = "resources",
        /// Cursor of the next page. Absent on the last page.
        next_cursor: Option<String> = "nextCursor",
    }
}

/// Front matter of a `SKILL.md`, with all members.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct SkillFrontmatter {
    /// Name of the skill and of its directory.
    pub name: String,
    /// Description of the skill: what it does and when to use it.
    pub description: String,
    /// All other members of the frontmatter.
    #[serde(flatten)]
    pub other_members: Map<String, Value>,
}

impl Encode for SkillFrontmatter {
    fn encode(&self, to: &mut Encoder<'_>) {
        to.object(|fields| {
            fields.field("name", &self.name);
            fields.field("description", &self.description);
            fields.members(&self.other_members);
        });
    }
}

/// Files of a skill: a list with digests, or `dynamic` if they are generated when they are read.
#[derive(Debug, Clone, PartialEq)]
pub enum SkillResources {
    /// All files, including `SKILL.md`.
    Files(Vec<SkillResource>),
    /// The files are generated when they are read and have no digests: the string `dynamic` on the wire.
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
        deserializer.deserialize_any(SkillResourcesVisitor)
    }
}

struct SkillResourcesVisitor;

impl<'de> Visitor<'de> for SkillResourcesVisitor {
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
