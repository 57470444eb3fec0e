//! Resources and resource templates: how they are described and read.

use std::marker::PhantomData;
use std::sync::Arc;

use linchpin_protocol::model::{self, Annotations, ReadResourceResult};
use linchpin_protocol::wire::Invalid;

use super::args::{Args, NoArgs};
use super::catalog::{Entry, Item, Register};
use super::completion::{Completers, CompletionInput, CompletionOutput};
use super::describe::describe;
use super::handler::Handler;
use super::output::IntoResource;
use super::scope::Scope;
use super::state::{RequiredState, StateMap};
use super::strings::Texts;
use super::template::UriTemplate;
use super::{BoxFuture, Context, Listed, schema};
use crate::{Error, Result};

/// A resource that is being described. [`Resource::handler`] finishes it.
#[must_use = "a resource does nothing until it is added to a server"]
pub struct Resource {
    definition: model::Resource,
}

/// What both builders share with each other and not with the rest.
macro_rules! describe_content {
    () => {
        /// Its type; `text/plain` for text, `application/octet-stream` for bytes and `application/json` for JSON
        /// when nothing is said.
        pub fn mime_type(mut self, mime_type: impl Into<String>) -> Self {
            self.definition.mime_type = Some(mime_type.into());
            self
        }

        /// For whom it is, and how important.
        pub fn annotations(mut self, annotations: Annotations) -> Self {
            self.definition.annotations = Some(annotations);
            self
        }
    };
}

impl Resource {
    /// A resource at a URI.
    pub fn new(uri: impl Into<String>, name: impl Into<String>) -> Self {
        let definition = model::Resource { uri: uri.into(), name: name.into(), ..model::Resource::default() };
        Resource { definition }
    }

    describe!();
    describe_content!();

    /// Its size in bytes.
    pub fn size(mut self, bytes: u64) -> Self {
        self.definition.size = Some(bytes);
        self
    }

    /// The function that reads it: `|| async { … }` or `|cx: Context| async { … }`.
    pub fn handler<Form, H>(self, handler: H) -> impl Register
    where
        H: Handler<Form>,
        H::Args: ResourceArgs,
        H::Output: IntoResource,
        Form: 'static,
    {
        let uri: Arc<str> = (&*self.definition.uri).into();
        if !uri.contains(':') {
            return Err(Error::setup(format!(
                "the resource `{uri}` cannot be registered: its URI has no scheme"
            )));
        }
        let mime_type = self.definition.mime_type.clone();
        let read = Arc::new(Plain { handler, mime_type, form: PhantomData::<fn() -> Form> });
        Ok(Item::Resource(Arc::new(ResourceEntry {
            uri,
            definition: self.definition,
            read,
            of_skill: false,
            state: None,
            required_state: Vec::new(),
        })))
    }
}

/// What the handler of a plain resource may take.
#[diagnostic::on_unimplemented(
    message = "the handler of a resource cannot take `{Self}`",
    label = "this handler takes `{Self}`",
    note = "it takes nothing or a `Context`; use `resource_template` for a URI with variables"
)]
pub trait ResourceArgs: Send {
    #[doc(hidden)]
    fn from_scope(scope: &Scope<'_>) -> Self;
}

impl ResourceArgs for NoArgs {
    fn from_scope(_: &Scope<'_>) -> Self {
        NoArgs {}
    }
}

impl ResourceArgs for Context {
    fn from_scope(scope: &Scope<'_>) -> Self {
        scope.context()
    }
}

/// What reading gives, once it is done.
pub(crate) type Reading = BoxFuture<Result<ReadResourceResult>>;

pub(super) trait Read: Send + Sync {
    fn read(&self, uri: &str, scope: &Scope<'_>) -> Reading;
}

struct Plain<H, Form> {
    handler: H,
    mime_type: Option<String>,
    form: PhantomData<fn() -> Form>,
}

impl<H, Form> Read for Plain<H, Form>
where
    H: Handler<Form>,
    H::Args: ResourceArgs,
    H::Output: IntoResource,
{
    fn read(&self, uri: &str, scope: &Scope<'_>) -> Reading {
        let work = self.handler.call(H::Args::from_scope(scope), scope);
        let (uri, mime_type) = (uri.to_owned(), self.mime_type.clone());
        Box::pin(async move { work.await.into_result(&uri, mime_type.as_deref()) })
    }
}

/// A registered resource.
#[derive(Clone)]
pub struct ResourceEntry {
    pub(crate) uri: Arc<str>,
    pub(crate) definition: model::Resource,
    read: Arc<dyn Read>,
    /// Whether it is a file of a skill, with which it comes and goes.
    pub(crate) of_skill: bool,
    pub(crate) state: Option<Arc<StateMap>>,
    /// The types of state that its handler takes.
    pub(crate) required_state: Vec<RequiredState>,
}

impl ResourceEntry {
    /// A resource of another server.
    pub(super) fn remote(definition: model::Resource, read: Arc<dyn Read>) -> Self {
        let uri = (&*definition.uri).into();
        ResourceEntry { uri, definition, read, of_skill: false, state: None, required_state: Vec::new() }
    }

    /// A file of a skill.
    #[cfg(feature = "skills")]
    pub(super) fn of_skill(definition: model::Resource, read: Arc<dyn Read>) -> Self {
        ResourceEntry { of_skill: true, ..Self::remote(definition, read) }
    }

    pub(crate) fn read(&self, scope: &Scope<'_>) -> Reading {
        self.read.read(&self.uri, scope)
    }

    pub(crate) fn mounted(self: Arc<Self>, state: &Arc<StateMap>) -> Self {
        let mut entry = Self::clone(&self);
        entry.state.get_or_insert_with(|| state.clone());
        entry
    }
}

impl Entry for ResourceEntry {
    fn key(&self) -> &Arc<str> {
        &self.uri
    }

    fn listed(&self) -> Listed<'_> {
        Listed::Resource(&self.definition)
    }

    fn required_state(&self) -> (&[RequiredState], Option<&StateMap>) {
        (&self.required_state, self.state.as_deref())
    }
}

/// A resource template that is being described. [`ResourceTemplate::handler`] finishes it.
#[must_use = "a resource template does nothing until it is added to a server"]
pub struct ResourceTemplate {
    definition: model::ResourceTemplate,
    completers: Completers,
}

impl ResourceTemplate {
    /// A pattern such as `users://{id}/profile`.
    pub fn new(uri_template: impl Into<String>, name: impl Into<String>) -> Self {
        let definition = model::ResourceTemplate {
            uri_template: uri_template.into(),
            name: name.into(),
            ..model::ResourceTemplate::default()
        };
        ResourceTemplate { definition, completers: Completers::default() }
    }

    describe!();
    describe_content!();

    /// Proposals for a variable while the user types.
    pub fn complete<Form, H>(mut self, variable: impl Into<String>, handler: H) -> Self
    where
        H: Handler<Form>,
        H::Args: CompletionInput,
        H::Output: CompletionOutput,
        Form: 'static,
    {
        self.completers.add(variable.into(), handler);
        self
    }

    /// The function that reads a resource of this pattern; its arguments are the variables.
    pub fn handler<Form, H>(self, handler: H) -> impl Register
    where
        H: Handler<Form>,
        H::Args: Args,
        H::Output: IntoResource,
        Form: 'static,
    {
        let texts = Texts::new(&schema::of_input::<H::Args>());
        let mime_type = self.definition.mime_type.clone();
        self.finish(texts, |texts| {
            Arc::new(Variables { handler, texts, mime_type, form: PhantomData::<fn() -> Form> })
        })
    }

    fn finish(
        self,
        texts: Result<Texts, String>,
        read: impl FnOnce(Texts) -> Arc<dyn ReadMatch>,
    ) -> Result<Item> {
        let key: Arc<str> = (&*self.definition.uri_template).into();
        let refuse = |reason: String| {
            Error::setup(format!("the resource template `{key}` cannot be registered: {reason}"))
        };
        let template = UriTemplate::parse(&key).map_err(refuse)?;
        let texts = texts.map_err(refuse)?;
        let known = |name: &str| template.variables().any(|variable| variable == name);
        if let Some(field) = texts.fields.iter().find(|field| field.required && !known(&field.name)) {
            return Err(refuse(format!("its handler wants `{}`, which is no variable of it", field.name)));
        }
        if let Some(argument) = self.completers.arguments().find(|argument| !known(argument)) {
            return Err(refuse(format!(
                "there is a completion for `{argument}`, which is no variable of it"
            )));
        }
        Ok(Item::Template(Arc::new(TemplateEntry {
            key,
            definition: self.definition,
            template,
            read: read(texts),
            completers: self.completers,
            state: None,
            required_state: Vec::new(),
        })))
    }
}

pub(super) type Values = std::collections::BTreeMap<String, String>;

pub(super) trait ReadMatch: Send + Sync {
    fn read(&self, uri: &str, values: &Values, scope: &Scope<'_>) -> Result<Reading, Invalid>;
}

struct Variables<H, Form> {
    handler: H,
    texts: Texts,
    mime_type: Option<String>,
    form: PhantomData<fn() -> Form>,
}

impl<H, Form> ReadMatch for Variables<H, Form>
where
    H: Handler<Form>,
    H::Args: Args,
    H::Output: IntoResource,
{
    fn read(&self, uri: &str, values: &Values, scope: &Scope<'_>) -> Result<Reading, Invalid> {
        let work = self.handler.call(self.texts.decode(values)?, scope);
        let (uri, mime_type) = (uri.to_owned(), self.mime_type.clone());
        Ok(Box::pin(async move { work.await.into_result(&uri, mime_type.as_deref()) }))
    }
}

/// A registered resource template.
#[derive(Clone)]
pub struct TemplateEntry {
    pub(crate) key: Arc<str>,
    pub(crate) definition: model::ResourceTemplate,
    template: UriTemplate,
    read: Arc<dyn ReadMatch>,
    pub(crate) completers: Completers,
    pub(crate) state: Option<Arc<StateMap>>,
    /// The types of state that its handler takes.
    pub(crate) required_state: Vec<RequiredState>,
}

impl TemplateEntry {
    /// A template of another server. One of a kind that is not matched here stands for everything that begins as
    /// it does: the other server decides.
    pub(super) fn remote(
        definition: model::ResourceTemplate,
        read: Arc<dyn ReadMatch>,
        completers: Completers,
    ) -> Result<Self> {
        let text = &definition.uri_template;
        let begins = || format!("{}{{+rest}}", text.split('{').next().unwrap_or_default());
        let template = UriTemplate::parse(text).or_else(|_| UriTemplate::parse(&begins()));
        let template = template.map_err(|reason| {
            Error::setup(format!("the resource template `{text}` cannot be registered: {reason}"))
        })?;
        let (key, required_state) = ((&**text).into(), Vec::new());
        Ok(TemplateEntry { key, definition, template, read, completers, state: None, required_state })
    }

    pub(crate) fn matches(&self, uri: &str) -> Option<Values> {
        self.template.matches(uri)
    }

    pub(crate) fn read(&self, uri: &str, values: &Values, scope: &Scope<'_>) -> Result<Reading, Invalid> {
        self.read.read(uri, values, scope)
    }

    pub(crate) fn mounted(self: Arc<Self>, state: &Arc<StateMap>) -> Self {
        let mut entry = Self::clone(&self);
        entry.state.get_or_insert_with(|| state.clone());
        entry
    }
}

impl Entry for TemplateEntry {
    fn key(&self) -> &Arc<str> {
        &self.key
    }

    fn listed(&self) -> Listed<'_> {
        Listed::ResourceTemplate(&self.definition)
    }

    fn required_state(&self) -> (&[RequiredState], Option<&StateMap>) {
        (&self.required_state, self.state.as_deref())
    }
}

/// Reads whatever no resource and no template stands for.
pub(crate) trait CatchAll: Send + Sync {
    fn read(&self, uri: &str, scope: &Scope<'_>) -> Reading;
}

pub(crate) struct CatchAllHandler<H, Form>(pub(crate) H, pub(crate) PhantomData<fn() -> Form>);

impl<H, Form> CatchAll for CatchAllHandler<H, Form>
where
    H: Handler<Form, Args = String>,
    H::Output: IntoResource,
{
    fn read(&self, uri: &str, scope: &Scope<'_>) -> Reading {
        let work = self.0.call(uri.to_owned(), scope);
        let uri = uri.to_owned();
        Box::pin(async move { work.await.into_result(&uri, None) })
    }
}
