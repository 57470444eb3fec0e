//! Lists that come in pages, read as they are wanted and never without end.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::marker::PhantomData;

use linchpin_jsonrpc::CallError;
use linchpin_protocol::encode::to_vec;
use linchpin_protocol::model::{
    ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListSkillsResult, ListToolsResult,
    PageParams, Prompt, ReadResourceDirectoryParams, Resource, ResourceTemplate, Skill, Tool, extension,
};
use linchpin_protocol::{Era, Method};
use serde::de::DeserializeOwned;

use super::call::decoded;
use super::core::{Core, Options};
use super::rounds::kind;
use super::{Client, ClientError};

/// Items of one list that are read at most, and bytes of all its pages.
const MAX_ITEMS: usize = 100_000;
const MAX_BYTES: usize = 256 << 20;

/// Something that servers list.
pub trait Item: Sized + Send {
    #[doc(hidden)]
    type Page: DeserializeOwned;
    #[doc(hidden)]
    const METHOD: Method;
    #[doc(hidden)]
    fn open(page: Self::Page) -> (Vec<Self>, Option<String>);
    #[doc(hidden)]
    fn seen(_: &Seen<'_>, _: &mut Vec<Self>) {}
    /// Whether the server offers it: what is not offered must not be asked for.
    #[doc(hidden)]
    fn offered(_: &Client) -> bool {
        true
    }
}

/// Who has seen a page.
#[doc(hidden)]
pub struct Seen<'a>(&'a Core);

macro_rules! items {
    ($( $item:ident in $page:ident.$field:ident by $method:ident $({ $seen:item })?; )*) => {$(
        impl Item for $item {
            type Page = $page;
            const METHOD: Method = Method::$method;

            fn open(page: $page) -> (Vec<Self>, Option<String>) {
                (page.$field, page.next_cursor)
            }

            $( $seen )?
        }
    )*};
}

items! {
    Tool in ListToolsResult.tools by ListTools {
        fn seen(by: &Seen<'_>, tools: &mut Vec<Self>) {
            if let Some(carrier) = by.0.carrier().filter(|_| by.0.revision().era() == Era::Stateless) {
                tools.retain(|tool| carrier.admit(tool));
            }
            by.0.outputs.note(tools);
        }
    };
    Resource in ListResourcesResult.resources by ListResources;
    ResourceTemplate in ListResourceTemplatesResult.resource_templates by ListResourceTemplates;
    Prompt in ListPromptsResult.prompts by ListPrompts;
    Skill in ListSkillsResult.skills by ListSkills {
        fn offered(client: &Client) -> bool {
            client.offers(extension::SKILLS)
        }
    };
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

    /// Everything.
    pub async fn all(mut self) -> Result<Vec<T>, ClientError> {
        let mut all = Vec::new();
        while let Some(page) = self.next_page().await? {
            all.extend(page);
        }
        Ok(all)
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
        let (mut items, next) = T::open(decoded(method, &text)?);
        T::seen(&Seen(core), &mut items);
        self.read += 1;
        self.items += items.len();
        self.bytes += text.len();
        match next {
            None => self.done = true,
            Some(next) if !self.seen.insert(mark(&next)) => {
                self.done = true;
                return Err(endless);
            }
            next => self.cursor = next,
        }
        Ok(Some(items))
    }
}
