//! Revisions, eras and what each revision has. The only file that knows revision dates.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A revision of the Model Context Protocol, oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Revision {
    /// The first one: HTTP+SSE.
    V2024_11_05,
    /// Streamable HTTP, batches, tool annotations, audio.
    V2025_03_26,
    /// Structured results, elicitation, resource links, titles; no batches.
    V2025_06_18,
    /// Icons, tasks, URL elicitation, tools in sampling.
    V2025_11_25,
    /// No sessions: every request carries its own metadata.
    V2026_07_28,
}

/// How two sides agree on what they speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Era {
    /// `initialize` opens a session; later messages rely on it.
    Session,
    /// Every request stands alone.
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
    /// The newest revision.
    pub const LATEST: Revision = Revision::V2026_07_28;
    /// The newest revision that opens with `initialize`.
    pub const LATEST_SESSION: Revision = Revision::V2025_11_25;
    /// What a request by HTTP is of that names no revision and belongs to no session.
    pub const WITHOUT_HEADER: Revision = Revision::V2025_03_26;

    /// The name on the wire: a date.
    pub const fn as_str(self) -> &'static str {
        match self {
            Revision::V2024_11_05 => "2024-11-05",
            Revision::V2025_03_26 => "2025-03-26",
            Revision::V2025_06_18 => "2025-06-18",
            Revision::V2025_11_25 => "2025-11-25",
            Revision::V2026_07_28 => "2026-07-28",
        }
    }

    /// The revision with this name.
    pub fn find(name: &str) -> Option<Revision> {
        Revision::ALL.into_iter().find(|revision| revision.as_str() == name)
    }

    /// Which era it belongs to.
    pub const fn era(self) -> Era {
        match self {
            Revision::V2026_07_28 => Era::Stateless,
            _ => Era::Session,
        }
    }

    /// Whether it has a feature.
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

/// A name that is no revision's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownRevision(pub String);

impl fmt::Display for UnknownRevision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no protocol revision \"{}\"; the known ones are", self.0)?;
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

/// Something that some revisions have and others lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// In every revision.
    Always,
    /// Everything that opens, keeps or leaves a session, `ping` and `logging/setLevel` included.
    Sessions,
    /// Per-request metadata, `server/discover`, `subscriptions/listen`, `resultType`, multi round-trips.
    Stateless,
    /// Several messages in one line.
    Batches,
    /// Hints on what a tool does.
    ToolAnnotations,
    /// Audio content.
    Audio,
    /// A text in progress notifications.
    ProgressMessage,
    /// The capability that announces completion.
    CompletionsCapability,
    /// `title` beside `name`.
    Titles,
    /// `_meta` on content, tools, resources, prompts and roots.
    ItemMeta,
    /// `lastModified` in annotations.
    LastModified,
    /// `structuredContent` and output schemas.
    StructuredContent,
    /// Structured content, and output schemas, of any JSON type and not only objects.
    AnyStructuredContent,
    /// Links to resources in tool results.
    ResourceLinks,
    /// Arguments already chosen, in completion requests.
    CompletionContext,
    /// Asking the user, in a form.
    Elicitation,
    /// Sending the user to a URL.
    UrlElicitation,
    /// The id, and the notice of completion, of an elicitation by URL.
    ElicitationIds,
    /// Titles of choices, several choices and defaults in forms, and a form's dialect.
    RichForms,
    /// Icons, website and description.
    Icons,
    /// Tools in sampling requests.
    SamplingTools,
    /// Tasks, in either form: in the core of one revision, as an extension from the next one on.
    Tasks,
    /// Tasks inside the core protocol, and what only that form has.
    CoreTasks,
    /// `ttlMs` and `cacheScope`.
    CacheHints,
    /// The map of extensions in capabilities, and what only extensions have.
    Extensions,
    /// Resource not found has a code of its own, not "invalid params".
    ResourceNotFoundCode,
    /// Streams that begin with an event that has an id and no message.
    PrimedStreams,
    /// An error answer may leave `id` out when it could not be read.
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
