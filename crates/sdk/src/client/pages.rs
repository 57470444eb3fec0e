//! Lists that come in pages, read as they are wanted and never without end. An entry that is malformed, or that cannot be
//! used, is left out with the reason; the others are not affected.

use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::marker::PhantomData;

use linchpin_jsonrpc::CallError;
use linchpin_protocol::encode::to_vec;
use linchpin_protocol::model::{
    ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListSkillsResult, ListToolsResult,
    PageParams, Prompt, ReadResourceDirectoryParams, Resource, ResourceTemplate, Skill, Tool, extension,
};
use linchpin_protocol::wire::{self, Invalid};
use linchpin_protocol::{Era, Method};
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::call::decoded;
use super::core::{Core, Options};
use super::rounds::kind;
use super::{Client, ClientError};

/// Items of one list that are read at most, and bytes of all its pages.
const MAX_ITEMS: usize = 100_000;
const MAX_BYTES: usize = 256 << 20;
/// Entries left out of one list that are reported, and the characters of their names.
const MAX_LEFT_OUT: usize = 1_000;
const MAX_NAME: usize = 200;

/// Something that servers list.
pub trait Item: Sized + Send {
    #[doc(hidden)]
    type Page: DeserializeOwned;
    #[doc(hidden)]
    const METHOD: Method;
    /// The member of a page with the entries.
    #[doc(hidden)]
    const MEMBER: &'static str;
    #[doc(hidden)]
    fn open(page: Self::Page) -> (Vec<Self>, Option<String>);
    /// Decodes one entry.
    #[doc(hidden)]
    fn entry(text: &str) -> Result<Self, Invalid>;
    #[doc(hidden)]
    fn seen(_: &Seen<'_>, _: &mut Vec<Self>, _: &mut Vec<LeftOut>) {}
    /// Whether the server offers it: what is not offered must not be asked for.
    #[doc(hidden)]
    fn offered(_: &Client) -> bool {
        true
    }
}

/// An entry of a list that is not used.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeftOut {
    /// Its name, or its URI; its position in the list if it has neither.
    pub name: String,
    /// Why it is not used.
    pub reason: String,
}

impl LeftOut {
    /// An entry that is not used. Names are cut after 200 characters.
    pub fn new(name: &str, reason: impl Into<String>) -> Self {
        LeftOut { name: name.chars().take(MAX_NAME).collect(), reason: reason.into() }
    }
}

/// A complete list.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Listing<T> {
    /// The entries.
    pub items: Vec<T>,
    /// The entries that are not used, with the reason. At most 1,000.
    pub left_out: Vec<LeftOut>,
}

impl<T> Default for Listing<T> {
    fn default() -> Self {
        Listing { items: Vec::new(), left_out: Vec::new() }
    }
}

/// Who has seen a page.
#[doc(hidden)]
pub struct Seen<'a>(&'a Core);

macro_rules! items {
    ($( $item:ident in $page:ident.$field:ident $member:literal by $method:ident $({ $seen:item })?; )*) => {$(
        impl Item for $item {
            type Page = $page;
            const METHOD: Method = Method::$method;
            const MEMBER: &'static str = $member;

            fn open(page: $page) -> (Vec<Self>, Option<String>) {
                (page.$field, page.next_cursor)
            }

            fn entry(text: &str) -> Result<Self, Invalid> {
                wire::decode(text)
            }

            $( $seen )?
        }
    )*};
}

items! {
    Tool in ListToolsResult.tools "tools" by ListTools {
        fn seen(by: &Seen<'_>, tools: &mut Vec<Self>, left_out: &mut Vec<LeftOut>) {
            if let Some(carrier) = by.0.carrier().filter(|_| by.0.revision().era() == Era::Stateless) {
                tools.retain(|tool| match carrier.admit(tool) {
                    Ok(()) => true,
                    Err(reason) => {
                        left_out.push(LeftOut::new(&tool.name, reason));
                        false
                    }
                });
            }
            by.0.outputs.note(tools);
        }
    };
    Resource in ListResourcesResult.resources "resources" by ListResources;
    ResourceTemplate in ListResourceTemplatesResult.resource_templates "resourceTemplates" by ListResourceTemplates;
    Prompt in ListPromptsResult.prompts "prompts" by ListPrompts;
    Skill in ListSkillsResult.skills "skills" by ListSkills {
        fn offered(client: &Client) -> bool {
            client.offers(extension::SKILLS)
        }
    };
}

/// Decodes a page. If that fails, each entry is decoded by itself, and the malformed ones are left out.
fn decode_page<T: Item>(
    text: &str,
    left_out: &mut Vec<LeftOut>,
) -> Result<(Vec<T>, Option<String>), ClientError> {
    let method = T::METHOD.name();
    let malformed = match decoded(method, text) {
        Ok(page) => return Ok(T::open(page)),
        Err(error) => error,
    };
    // Raw text, so that the entries are decoded from the bytes that were received.
    let Ok(mut page) = serde_json::from_str::<BTreeMap<String, &RawValue>>(text) else {
        return Err(malformed);
    };
    let entries = page.remove(T::MEMBER).map(|entries| serde_json::from_str::<Vec<&RawValue>>(entries.get()));
    let Some(Ok(entries)) = entries else { return Err(malformed) };
    let none = RawValue::from_string("[]".to_owned()).map_err(|_| malformed)?;
    page.insert(T::MEMBER.to_owned(), &none);
    let (mut items, next) = T::open(decoded(method, &serde_json::to_string(&page).unwrap_or_default())?);
    for (index, entry) in entries.into_iter().enumerate() {
        match T::entry(entry.get()) {
            Ok(item) => items.push(item),
            Err(Invalid { path, reason }) => {
                let at = if path.is_empty() { String::new() } else { format!(" at \"{path}\"") };
                left_out.push(LeftOut::new(&name(entry, index), format!("it is malformed{at}: {reason}")));
            }
        }
    }
    Ok((items, next))
}

/// The name of a malformed entry.
fn name(entry: &RawValue, index: usize) -> String {
    let entry: Value = serde_json::from_str(entry.get()).unwrap_or_default();
    let name = ["name", "uri", "uriTemplate"].iter().find_map(|key| entry.get(key)?.as_str());
    name.map_or_else(|| format!("entry {index}"), str::to_owned)
}

fn mark(cursor: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    cursor.hash(&mut hasher);
    hasher.finish()
}

/// A list of a server. Nothing is asked before a page is wanted.
#[must_use = "a list is read with `all` or `next_page`"]
pub struct Pages<T> {
    client: Client,
    /// The folder that is looked into, if it is one.
    folder: Option<String>,
    cursor: Option<String>,
    /// Marks of the cursors so far: the cursors themselves may be long.
    seen: HashSet<u64>,
    read: usize,
    items: usize,
    bytes: usize,
    done: bool,
    left_out: Vec<LeftOut>,
    options: Options,
    of: PhantomData<fn() -> T>,
}

impl<T: Item> Pages<T> {
    pub(super) fn new(client: Client) -> Self {
        let (cursor, seen) = (None, HashSet::new());
        Pages {
            client,
            folder: None,
            cursor,
            seen,
            read: 0,
            items: 0,
            bytes: 0,
            done: false,
            left_out: Vec::new(),
            options: Options::default(),
            of: PhantomData,
        }
    }

    pub(super) fn within(client: Client, folder: String) -> Self {
        Pages { folder: Some(folder), ..Self::new(client) }
    }

    fn params(&self) -> Vec<u8> {
        let (cursor, meta, revision) = (self.cursor.clone(), None, self.client.revision());
        match self.folder.clone() {
            None => to_vec(&PageParams { cursor, meta }, revision),
            Some(uri) => to_vec(&ReadResourceDirectoryParams { uri, cursor, meta }, revision),
        }
    }

    /// Asks the server, also where a page is known that counts as fresh.
    pub fn fresh(mut self) -> Self {
        self.options.fresh = true;
        self
    }

    /// Everything that can be used. [`Self::listing`] also has what cannot.
    pub async fn all(self) -> Result<Vec<T>, ClientError> {
        self.listing().await.map(|listing| listing.items)
    }

    /// Everything, with the entries that are not used and the reasons.
    pub async fn listing(mut self) -> Result<Listing<T>, ClientError> {
        let mut items = Vec::new();
        while let Some(page) = self.next_page().await? {
            items.extend(page);
        }
        Ok(Listing { items, left_out: self.left_out })
    }

    /// The entries of the pages read so far that are not used, with the reasons. At most 1,000.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// The next page; `None` after the last one.
    pub async fn next_page(&mut self) -> Result<Option<Vec<T>>, ClientError> {
        if self.done {
            return Ok(None);
        }
        let (core, method) = (&self.client.core, T::METHOD.name());
        let endless = ClientError::EndlessList { method, pages: self.read };
        if self.read >= core.settings.max_pages || self.items >= MAX_ITEMS || self.bytes >= MAX_BYTES {
            self.done = true;
            return Err(endless);
        }
        if !T::offered(&self.client) {
            self.done = true;
            return Err(ClientError::NotServed { method });
        }
        let revision = self.client.revision();
        let text = match core.ask_kept(revision, T::METHOD, &self.params(), &self.options).await {
            // The cursor may come from a page that was kept for too long.
            Err(error @ CallError::Rejected(_)) if self.cursor.is_some() => {
                core.cache.forget(T::METHOD);
                return Err(error.into());
            }
            answer => answer?,
        };
        if revision.era() == Era::Stateless && kind(&text) != "complete" {
            return Err(ClientError::UnexpectedResult {
                method: method.to_owned(),
                kind: kind(&text).into_owned(),
            });
        }
        let mut left_out = Vec::new();
        let (mut items, next) = decode_page(&text, &mut left_out)?;
        T::seen(&Seen(core), &mut items, &mut left_out);
        self.read += 1;
        self.items += items.len() + left_out.len();
        self.bytes += text.len();
        match next {
            None => self.done = true,
            Some(next) if !self.seen.insert(mark(&next)) => {
                self.done = true;
                return Err(endless);
            }
            next => self.cursor = next,
        }
        self.report(left_out);
        Ok(Some(items))
    }

    fn report(&mut self, left_out: Vec<LeftOut>) {
        let (server, method) = (self.client.core.server_label(), T::METHOD.name());
        for LeftOut { name, reason } in left_out.iter().take(MAX_LEFT_OUT - self.left_out.len()) {
            tracing::warn!(server, method, name, reason, "an entry of a list is left out");
        }
        self.left_out.extend(left_out);
        self.left_out.truncate(MAX_LEFT_OUT);
    }
}
