//! Protocol revisions, eras and features. Only this file contains revision dates.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Revision of the Model Context Protocol, oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Revision {
    /// First revision: HTTP+SSE.
    V2024_11_05,
    /// Adds Streamable HTTP, batches, tool annotations and audio.
    V2025_03_26,
    /// Adds structured results, elicitation, resource links and titles; removes batches.
    V2025_06_18,
    /// Adds icons, tasks, URL elicitation and tools in sampling.
    V2025_11_25,
    /// Revision without sessions: every request carries its own metadata.
    V2026_07_28,
}

/// Era of a revision: how client and server agree on revision and capabilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Era {
    /// `initialize` opens a session that later messages depend on.
    Session,
    /// Every request is self-contained.
    Stateless,
}

impl Revision {
    /// All revisions, oldest first.
    pub const ALL: [Revision; 5] = [
        Revision::V2024_11_05,
        Revision::V2025_03_26,
        Revision::V2025_06_18,
        Revision::V2025_11_25,
        Revision::V2026_07_28,
    ];
    /// Latest supported revision.
    pub const LATEST: Revision = Revision::V2026_07_28;
    /// Latest revision of the session era.
    pub const LATEST_SESSION: Revision = Revision::V2025_11_25;
    /// Revision of an HTTP request that has neither a version header nor a session.
    pub const HTTP_DEFAULT: Revision = Revision::V2025_03_26;

    /// Returns the revision as sent in messages: a date.
    pub const fn as_str(self) -> &'static str {
        match self {
            Revision::V2024_11_05 => "2024-11-05",
            Revision::V2025_03_26 => "2025-03-26",
            Revision::V2025_06_18 => "2025-06-18",
            Revision::V2025_11_25 => "2025-11-25",
            Revision::V2026_07_28 => "2026-07-28",
        }
    }

    /// Returns the revision with this name, a date.
    pub fn find(name: &str) -> Option<Revision> {
        Revision::ALL.into_iter().find(|revision| revision.as_str() == name)
    }

    /// Returns the era of the revision.
    pub const fn era(self) -> Era {
        match self {
            Revision::V2026_07_28 => Era::Stateless,
            _ => Era::Session,
        }
    }

    /// Reports whether the revision has a feature.
    pub fn has(self, feature: Feature) -> bool {
        let (since, until) = feature.range();
        since <= self && self <= until
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Error for a string that names no known revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownRevision(pub String);

impl fmt::Display for UnknownRevision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown protocol revision \"{}\"; known revisions:", self.0)?;
        for (index, revision) in Revision::ALL.into_iter().enumerate() {
            write!(f, "{} {revision}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownRevision {}

impl FromStr for Revision {
    type Err = UnknownRevision;

    fn from_str(name: &str) -> Result<Self, UnknownRevision> {
        Revision::find(name).ok_or_else(|| UnknownRevision(name.to_owned()))
    }
}

impl Serialize for Revision {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Revision {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = Cow::<'de, str>::deserialize(from)?;
        name.parse().map_err(serde::de::Error::custom)
    }
}

/// Feature of the protocol, such as audio content, that not every revision has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// Part of every revision.
    Always,
    /// Sessions and their methods, including `ping` and `logging/setLevel`.
    Sessions,
    /// Per-request metadata, `server/discover`, `subscriptions/listen`, `resultType` and multi round-trip requests.
    Stateless,
    /// Batches: several messages in one.
    Batches,
    /// Tool annotations: hints about the behaviour of a tool.
    ToolAnnotations,
    /// Audio content.
    Audio,
    /// Member `message` of progress notifications.
    ProgressMessage,
    /// Member `completions` of the server capabilities.
    CompletionsCapability,
    /// Member `title`, a display name beside `name`.
    Titles,
    /// Member `_meta` of content, tools, resources, prompts and roots.
    ItemMeta,
    /// Member `lastModified` of annotations.
    LastModified,
    /// Members `structuredContent` of tool results and `outputSchema` of tools.
    StructuredContent,
    /// Structured content and output schemas of any JSON type, not only objects.
    AnyStructuredContent,
    /// Resource links in tool results.
    ResourceLinks,
    /// Member `context` of completion requests: arguments that are already resolved.
    CompletionContext,
    /// Elicitation in form mode.
    Elicitation,
    /// Elicitation in URL mode.
    UrlElicitation,
    /// Member `elicitationId`, and `notifications/elicitation/complete`.
    ElicitationIds,
    /// Titled enums, multiple choice, defaults and `$schema` in elicitation forms.
    RichForms,
    /// Members `icons`, `websiteUrl` and `description`.
    Icons,
    /// Members `tools` and `toolChoice` of sampling requests.
    SamplingTools,
    /// Tasks: part of the core in one revision, an extension in later ones.
    Tasks,
    /// Tasks as part of the core protocol, and members that only this form has.
    CoreTasks,
    /// Members `ttlMs` and `cacheScope` of results, which permit caching.
    CacheHints,
    /// Member `extensions` of the capabilities, and methods that only extensions have.
    Extensions,
    /// Separate error code for "resource not found" instead of "invalid params".
    ResourceNotFoundCode,
    /// SSE streams that start with an event that has an id and no message.
    PrimedStreams,
    /// Error responses without `id` if the id of the request could not be read.
    AnonymousErrors,
}

impl Feature {
    fn range(self) -> (Revision, Revision) {
        use Revision::{V2024_11_05, V2025_03_26, V2025_06_18, V2025_11_25, V2026_07_28};
        match self {
            Feature::Always => (V2024_11_05, V2026_07_28),
            Feature::Sessions | Feature::ResourceNotFoundCode => (V2024_11_05, V2025_11_25),
            Feature::Batches => (V2025_03_26, V2025_03_26),
            Feature::ToolAnnotations
            | Feature::Audio
            | Feature::ProgressMessage
            | Feature::CompletionsCapability => (V2025_03_26, V2026_07_28),
            Feature::Titles
            | Feature::ItemMeta
            | Feature::LastModified
            | Feature::StructuredContent
            | Feature::ResourceLinks
            | Feature::CompletionContext
            | Feature::Elicitation => (V2025_06_18, V2026_07_28),
            Feature::UrlElicitation
            | Feature::RichForms
            | Feature::Icons
            | Feature::SamplingTools
            | Feature::Tasks
            | Feature::AnonymousErrors => (V2025_11_25, V2026_07_28),
            Feature::CoreTasks | Feature::ElicitationIds | Feature::PrimedStreams => {
                (V2025_11_25, V2025_11_25)
            }
            Feature::Stateless
            | Feature::AnyStructuredContent
            | Feature::CacheHints
            | Feature::Extensions => (V2026_07_28, V2026_07_28),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways_and_unknown_ones_list_the_known() {
        for revision in Revision::ALL {
            assert_eq!(revision.as_str().parse(), Ok(revision));
            assert_eq!(revision.has(Feature::Sessions), revision.era() == Era::Session);
            assert_eq!(revision.has(Feature::Stateless), revision.era() == Era::Stateless);
        }
        let error = "1999-01-01".parse::<Revision>().unwrap_err().to_string();
        assert!(error.contains("\"1999-01-01\"") && error.contains(" 2024-11-05, 2025-03-26,"), "{error}");
    }
}
