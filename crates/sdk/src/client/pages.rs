//! Paginated lists, read on demand and bounded. Malformed or unusable entries are skipped with the reason, and do
//! not affect the others.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::marker::PhantomData;

use linchpin_jsonrpc::CallError;
use linchpin_protocol::encode::to_vec;
use linchpin_protocol::model::{
    ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListSkillsResult, ListToolsResult,
    PageParams, Prompt, ReadResourceDirectoryParams, Resource, ResourceTemplate, Skill, Tool, extension,
};
use linchpin_protocol::wire::{self, InvalidValue};
use linchpin_protocol::{Era, Method};
use serde::de::{DeserializeOwned, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::call::decode_result;
use super::core::{ClientCore, RequestOptions};
use super::rounds::result_type;
use super::{Client, ClientError};

/// Maximum number of items of one list.
const MAX_ITEMS: usize = 100_000;
/// Maximum total size of the pages of one list in bytes.
const MAX_BYTES: usize = 256 << 20;
/// Maximum number of skipped entries that the client reports per list.
const MAX_SKIPPED: usize = 1_000;
/// Maximum length of the reported name of a skipped entry, in characters.
const MAX_NAME_CHARS: usize = 200;

/// Type of the entries of a server's list, such as a tool or prompt.
pub trait Item: Sized + Send {
    #[doc(hidden)]
    type Page: DeserializeOwned;
    #[doc(hidden)]
    const METHOD: Method;
    /// Name of the member of a page that contains the entries, such as `tools`.
    #[doc(hidden)]
    const MEMBER: &'static str;
    #[doc(hidden)]
    fn into_parts(page: Self::Page) -> (Vec<Self>, Option<String>);
    /// Decodes one entry of a list from its JSON text.
    #[doc(hidden)]
    fn decode_entry(text: &str) -> Result<Self, InvalidValue>;
    #[doc(hidden)]
    fn inspect_page(_: &PageObserver<'_>, _: &mut Vec<Self>, _: &mut Vec<SkippedEntry>) {}
    /// Returns whether the server declares the capability for this list. Undeclared lists must not be requested.
    #[doc(hidden)]
    fn is_supported(_: &Client) -> bool {
        true
    }
}

/// Malformed or unusable entry of a server's list, with the reason why the client skipped it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SkippedEntry {
    /// Name or URI of the entry; its position in the list if it has neither.
    pub name: String,
    /// Why the entry was skipped.
    pub reason: String,
}

impl SkippedEntry {
    /// Creates the entry of a list item that the client skips, with the reason. Names are truncated to 200 characters.
    pub fn new(name: &str, reason: impl Into<String>) -> Self {
        SkippedEntry { name: name.chars().take(MAX_NAME_CHARS).collect(), reason: reason.into() }
    }
}

/// Complete list of a server, such as its tools, from all pages.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Listing<T> {
    /// Valid entries of the list.
    pub items: Vec<T>,
    /// Skipped entries of the list, with the reasons. At most 1,000.
    pub skipped: Vec<SkippedEntry>,
}

impl<T> Default for Listing<T> {
    fn default() -> Self {
        Listing { items: Vec::new(), skipped: Vec::new() }
    }
}

/// Access to the client for an item type that checks and records the items of a received page.
#[doc(hidden)]
pub struct PageObserver<'a>(&'a ClientCore);

macro_rules! items {
    ($( $item:ident in $page:ident.$field:ident $member:literal by $method:ident $({ $seen:item })?; )*) => {$(
        impl Item for $item {
            type Page = $page;
            const METHOD: Method = Method::$method;
            const MEMBER: &'static str = $member;

            fn into_parts(page: $page) -> (Vec<Self>, Option<String>) {
                (page.$field, page.next_cursor)
            }

            fn decode_entry(text: &str) -> Result<Self, InvalidValue> {
                wire::decode(text)
            }

            $( $seen )?
        }
    )*};
}

items! {
    Tool in ListToolsResult.tools "tools" by ListTools {
        fn inspect_page(by: &PageObserver<'_>, tools: &mut Vec<Self>, skipped: &mut Vec<SkippedEntry>) {
            if let Some(carrier) = by.0.per_request_transport().filter(|_| by.0.revision().era() == Era::Stateless) {
                tools.retain(|tool| match carrier.accept_tool(tool) {
                    Ok(()) => true,
                    Err(reason) => {
                        skipped.push(SkippedEntry::new(&tool.name, reason));
                        false
                    }
                });
            }
            by.0.output_schemas.insert(tools);
        }
    };
    Resource in ListResourcesResult.resources "resources" by ListResources;
    ResourceTemplate in ListResourceTemplatesResult.resource_templates "resourceTemplates" by ListResourceTemplates;
    Prompt in ListPromptsResult.prompts "prompts" by ListPrompts;
    Skill in ListSkillsResult.skills "skills" by ListSkills {
        fn is_supported(client: &Client) -> bool {
            client.has_extension(extension::SKILLS)
        }
    };
}

/// Decoded page of a server's list, with the skipped entries.
struct Page<T> {
    items: Vec<T>,
    next: Option<String>,
    /// Number of entries on the page, including skipped ones.
    entries: usize,
    /// Skipped entries of the page to report, with the reasons.
    skipped: Vec<SkippedEntry>,
}

/// Raw JSON entries of one page of a list: at most one more than the whole list may have.
struct Entries<'a>(Vec<&'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for Entries<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bounded;

        impl<'de> Visitor<'de> for Bounded {
            type Value = Vec<&'de RawValue>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while entries.len() <= MAX_ITEMS {
                    let Some(entry) = seq.next_element()? else { return Ok(entries) };
                    entries.push(entry);
                }
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(entries)
            }
        }

        deserializer.deserialize_seq(Bounded).map(Entries)
    }
}

/// Returns a name for a malformed list entry, for error messages.
fn entry_name(entry: &RawValue, index: usize) -> String {
    let entry: Value = serde_json::from_str(entry.get()).unwrap_or_default();
    let name = ["name", "uri", "uriTemplate"].iter().find_map(|key| entry.get(key)?.as_str());
    name.map_or_else(|| format!("entry {index}"), str::to_owned)
}

fn cursor_hash(cursor: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    cursor.hash(&mut hasher);
    hasher.finish()
}

/// List of a server, such as its tools, that is read page by page. Pages are requested on demand.
#[must_use = "nothing is requested until `all` or `next_page` is called"]
pub struct Pages<T> {
    client: Client,
    /// URI of the directory to list, if this lists a directory.
    folder: Option<String>,
    cursor: Option<String>,
    /// Hashes of the cursors so far: the cursors themselves may be long.
    seen_cursors: HashSet<u64>,
    fetched: usize,
    items: usize,
    bytes: usize,
    is_finished: bool,
    skipped: Vec<SkippedEntry>,
    /// Number of skipped entries, including unreported ones.
    skipped_count: usize,
    options: RequestOptions,
    item: PhantomData<fn() -> T>,
}

impl<T: Item> Pages<T> {
    pub(super) fn new(client: Client) -> Self {
        let (cursor, seen_cursors) = (None, HashSet::new());
        Pages {
            client,
            folder: None,
            cursor,
            seen_cursors,
            fetched: 0,
            items: 0,
            bytes: 0,
            is_finished: false,
            skipped: Vec::new(),
            skipped_count: 0,
            options: RequestOptions::default(),
            item: PhantomData,
        }
    }

    pub(super) fn in_directory(client: Client, folder: String) -> Self {
        Pages { folder: Some(folder), ..Self::new(client) }
    }

    fn params(&self) -> Vec<u8> {
        let (cursor, meta, revision) = (self.cursor.clone(), None, self.client.revision());
        match self.folder.clone() {
            None => to_vec(&PageParams { cursor, meta }, revision),
            Some(uri) => to_vec(&ReadResourceDirectoryParams { uri, cursor, meta }, revision),
        }
    }

    /// Requests the list from the server even if it is cached.
    pub fn fresh(mut self) -> Self {
        self.options.bypass_cache = true;
        self
    }

    /// Reads all pages and returns the usable entries. [`Self::listing`] also returns the skipped ones.
    pub async fn all(self) -> Result<Vec<T>, ClientError> {
        self.listing().await.map(|listing| listing.items)
    }

    /// Reads all pages and returns the usable entries, and the skipped ones with the reasons.
    pub async fn listing(mut self) -> Result<Listing<T>, ClientError> {
        let mut items = Vec::new();
        while let Some(page) = self.next_page().await? {
            items.extend(page);
        }
        Ok(Listing { items, skipped: self.skipped })
    }

    /// Returns the skipped entries of the pages read so far, with the reasons. At most 1,000.
    pub fn skipped(&self) -> &[SkippedEntry] {
        &self.skipped
    }

    /// Reads the next page of the list. Returns `None` after the last one.
    pub async fn next_page(&mut self) -> Result<Option<Vec<T>>, ClientError> {
        if self.is_finished {
            return Ok(None);
        }
        let (core, method) = (&self.client.core, T::METHOD.name());
        let list_error = ClientError::ListTooLong { method, pages: self.fetched };
        if self.fetched >= core.settings.max_pages || self.items >= MAX_ITEMS || self.bytes >= MAX_BYTES {
            self.is_finished = true;
            return Err(list_error);
        }
        if !T::is_supported(&self.client) {
            self.is_finished = true;
            return Err(ClientError::UnsupportedByServer { method });
        }
        let text = self.fetch().await?;
        let Page { mut items, next, entries, mut skipped } = match self.decode(&text) {
            Err(error @ ClientError::ListTooLong { .. }) => {
                self.is_finished = true;
                return Err(error);
            }
            page => page?,
        };
        T::inspect_page(&PageObserver(core), &mut items, &mut skipped);
        self.fetched += 1;
        self.items += entries;
        self.bytes += text.len();
        self.skipped_count += entries - items.len();
        self.skipped.extend(skipped);
        self.skipped.truncate(MAX_SKIPPED);
        match next {
            None => self.is_finished = true,
            Some(next) if !self.seen_cursors.insert(cursor_hash(&next)) => {
                self.is_finished = true;
                return Err(list_error);
            }
            next => self.cursor = next,
        }
        // Names and reasons are not logged: the server chooses them.
        if self.is_finished && self.skipped_count > 0 {
            let (server, count) = (self.client.core.server_label(), self.skipped_count);
            tracing::warn!(server, method, count, "skipped unusable list entries");
        }
        Ok(Some(items))
    }

    /// Requests the page of the list at the current cursor.
    async fn fetch(&self) -> Result<String, ClientError> {
        let (core, revision) = (&self.client.core, self.client.revision());
        let text = match core.request_cached(revision, T::METHOD, &self.params(), &self.options).await {
            // The cursor may come from a stale cached page.
            Err(error @ CallError::Rejected(_)) if self.cursor.is_some() => {
                core.cache.invalidate(T::METHOD);
                return Err(error.into());
            }
            result => result?,
        };
        if revision.era() == Era::Stateless && result_type(&text) != "complete" {
            let (method, kind) = (T::METHOD.name().to_owned(), result_type(&text).into_owned());
            return Err(ClientError::UnexpectedResult { method, kind });
        }
        Ok(text)
    }

    /// Decodes a page of a list. If that fails, decodes each entry separately and skips the malformed ones.
    fn decode(&self, text: &str) -> Result<Page<T>, ClientError> {
        let method = T::METHOD.name();
        let malformed = match decode_result(method, text) {
            Ok(page) => {
                let (items, next) = T::into_parts(page);
                return Ok(Page { entries: items.len(), items, next, skipped: Vec::new() });
            }
            Err(error) => error,
        };
        // Raw text, so that entries are decoded from the received bytes.
        let Ok(mut page) = serde_json::from_str::<BTreeMap<String, &RawValue>>(text) else {
            return Err(malformed);
        };
        let entries = page.remove(T::MEMBER).map(|entries| serde_json::from_str(entries.get()));
        let Some(Ok(Entries(entries))) = entries else { return Err(malformed) };
        if self.items + entries.len() > MAX_ITEMS {
            return Err(ClientError::ListTooLong { method, pages: self.fetched + 1 });
        }
        let none = RawValue::from_string("[]".to_owned()).map_err(|_| malformed)?;
        page.insert(T::MEMBER.to_owned(), &none);
        let (mut items, next) =
            T::into_parts(decode_result(method, &serde_json::to_string(&page).unwrap_or_default())?);
        let (count, mut skipped) = (entries.len(), Vec::new());
        for (index, entry) in entries.into_iter().enumerate() {
            match T::decode_entry(entry.get()) {
                Ok(item) => items.push(item),
                Err(InvalidValue { path, reason }) if self.skipped.len() + skipped.len() < MAX_SKIPPED => {
                    let at = if path.is_empty() { String::new() } else { format!(" at \"{path}\"") };
                    let name = entry_name(entry, self.items + index);
                    skipped.push(SkippedEntry::new(&name, format!("malformed{at}: {reason}")));
                }
                Err(_) => {}
            }
        }
        Ok(Page { items, next, entries: count, skipped })
    }
}
