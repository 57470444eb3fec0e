//! Resources and resource templates of a server: builders, registered entries and handlers.

use std::marker::PhantomData;
use std::sync::Arc;

use linchpin_protocol::model::{self, Annotations, ReadResourceResult};
use linchpin_protocol::wire::InvalidValue;

use super::args::{Args, NoArgs};
use super::common_fields::describe;
use super::completion::{Completers, CompletionInput, CompletionOutput};
use super::derived_schema;
use super::handler::Handler;
use super::output::IntoResource;
use super::shared_state::{RequiredState, StateMap};
use super::string_args::StringArgs;
use super::uri_template::UriTemplate;
use crate::server::catalog::{CatalogEntry, CatalogItem, Register};
use crate::server::request::scope::RequestScope;
use crate::server::{BoxFuture, Context, DefinitionRef};
use crate::{Error, Result};

/// Builder of a resource. [`Resource::handler`] completes it.
#[must_use = "a resource does nothing until it is added to a server"]
pub struct Resource {
    definition: model::Resource,
}

/// Generates the methods that only the builders of resources and resource templates share.
macro_rules! describe_content {
    () => {
        /// Sets the MIME type of the resource. Default: `text/plain` for text, `application/octet-stream` for bytes,
        /// `application/json` for JSON.
        pub fn mime_type(mut self, mime_type: impl Into<String>) -> Self {
            self.definition.mime_type = Some(mime_type.into());
            self
        }

        /// Sets the annotations of the resource: audience and priority.
        pub fn annotations(mut self, annotations: Annotations) -> Self {
            self.definition.annotations = Some(annotations);
            self
        }
    };
}

impl Resource {
    /// Creates a resource at a URI.
    pub fn new(uri: impl Into<String>, name: impl Into<String>) -> Self {
        let definition = model::Resource { uri: uri.into(), name: name.into(), ..model::Resource::default() };
        Resource { definition }
    }

    describe!();
    describe_content!();

    /// Sets the size of the resource in bytes.
    pub fn size(mut self, bytes: u64) -> Self {
        self.definition.size = Some(bytes);
        self
    }

    /// Sets the handler that reads the resource, and completes it: `|| async { … }` or `|cx: Context| async { … }`.
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
                "the resource `{uri}` cannot be registered: the URI has no scheme"
            )));
        }
        let mime_type = self.definition.mime_type.clone();
        let read = Arc::new(PlainResourceHandler { handler, mime_type, form: PhantomData::<fn() -> Form> });
        Ok(CatalogItem::Resource(Arc::new(ResourceEntry {
            uri,
            definition: self.definition,
            read,
            is_skill_file: false,
            state: None,
            required_state: Vec::new(),
        })))
    }
}

/// Parameters that the handler of a resource without variables may take: none, or the context.
#[diagnostic::on_unimplemented(
    message = "the handler of a resource cannot take `{Self}`",
    label = "this handler takes `{Self}`",
    note = "it takes nothing or a `Context`; use `resource_template` for a URI with variables"
)]
pub trait ResourceArgs: Send {
    #[doc(hidden)]
    fn from_scope(scope: &RequestScope<'_>) -> Self;
}

impl ResourceArgs for NoArgs {
    fn from_scope(_: &RequestScope<'_>) -> Self {
        NoArgs {}
    }
}

impl ResourceArgs for Context {
    fn from_scope(scope: &RequestScope<'_>) -> Self {
        scope.context()
    }
}

/// Future of the result of a resource handler.
pub(crate) type ResourceFuture = BoxFuture<Result<ReadResourceResult>>;

pub(in crate::server) trait ResourceHandler: Send + Sync {
    fn read(&self, uri: &str, scope: &RequestScope<'_>) -> ResourceFuture;
}

struct PlainResourceHandler<H, Form> {
    handler: H,
    mime_type: Option<String>,
    form: PhantomData<fn() -> Form>,
}

impl<H, Form> ResourceHandler for PlainResourceHandler<H, Form>
where
    H: Handler<Form>,
    H::Args: ResourceArgs,
    H::Output: IntoResource,
{
    fn read(&self, uri: &str, scope: &RequestScope<'_>) -> ResourceFuture {
        let work = self.handler.call(H::Args::from_scope(scope), scope);
        let (uri, mime_type) = (uri.to_owned(), self.mime_type.clone());
        Box::pin(async move { work.await.into_result(&uri, mime_type.as_deref()) })
    }
}

/// Resource with its definition and handler, as registered at a server.
#[derive(Clone)]
pub struct ResourceEntry {
    pub(crate) uri: Arc<str>,
    pub(crate) definition: model::Resource,
    read: Arc<dyn ResourceHandler>,
    /// Whether the resource is a file of a skill, added and removed with it.
    pub(crate) is_skill_file: bool,
    pub(crate) state: Option<Arc<StateMap>>,
    /// Types of shared state that the handler takes.
    pub(crate) required_state: Vec<RequiredState>,
}

impl ResourceEntry {
    /// Creates the catalog entry of a resource of a remote server.
    pub(in crate::server) fn remote(definition: model::Resource, read: Arc<dyn ResourceHandler>) -> Self {
        let uri = (&*definition.uri).into();
        ResourceEntry { uri, definition, read, is_skill_file: false, state: None, required_state: Vec::new() }
    }

    /// Creates the resource entry of a skill file.
    #[cfg(feature = "skills")]
    pub(in crate::server) fn skill_file(definition: model::Resource, read: Arc<dyn ResourceHandler>) -> Self {
        ResourceEntry { is_skill_file: true, ..Self::remote(definition, read) }
    }

    pub(crate) fn read(&self, scope: &RequestScope<'_>) -> ResourceFuture {
        self.read.read(&self.uri, scope)
    }

    pub(crate) fn mounted(self: Arc<Self>, state: &Arc<StateMap>) -> Self {
        let mut entry = Self::clone(&self);
        entry.state.get_or_insert_with(|| state.clone());
        entry
    }
}

impl CatalogEntry for ResourceEntry {
    fn key(&self) -> &Arc<str> {
        &self.uri
    }

    fn definition(&self) -> DefinitionRef<'_> {
        DefinitionRef::Resource(&self.definition)
    }

    fn required_state(&self) -> (&[RequiredState], Option<&StateMap>) {
        (&self.required_state, self.state.as_deref())
    }
}

/// Builder of a resource template. [`ResourceTemplate::handler`] completes it.
#[must_use = "a resource template does nothing until it is added to a server"]
pub struct ResourceTemplate {
    definition: model::ResourceTemplate,
    completers: Completers,
}

impl ResourceTemplate {
    /// Creates a template, such as `users://{id}/profile`.
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

    /// Adds a completion handler for a variable.
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

    /// Sets the handler that reads a matching resource, and completes the template. The variables are its arguments.
    pub fn handler<Form, H>(self, handler: H) -> impl Register
    where
        H: Handler<Form>,
        H::Args: Args,
        H::Output: IntoResource,
        Form: 'static,
    {
        let texts = StringArgs::new(&derived_schema::input_schema::<H::Args>());
        let mime_type = self.definition.mime_type.clone();
        self.finish(texts, |texts| {
            Arc::new(TypedTemplateHandler { handler, texts, mime_type, form: PhantomData::<fn() -> Form> })
        })
    }

    fn finish(
        self,
        texts: Result<StringArgs, String>,
        read: impl FnOnce(StringArgs) -> Arc<dyn TemplateHandler>,
    ) -> Result<CatalogItem> {
        let key: Arc<str> = (&*self.definition.uri_template).into();
        let refuse = |reason: String| {
            Error::setup(format!("the resource template `{key}` cannot be registered: {reason}"))
        };
        let template = UriTemplate::parse(&key).map_err(refuse)?;
        let texts = texts.map_err(refuse)?;
        let is_variable = |name: &str| template.variables().any(|variable| variable == name);
        if let Some(field) = texts.fields.iter().find(|field| field.required && !is_variable(&field.name)) {
            return Err(refuse(format!(
                "its handler takes `{}`, which is not a variable of the template",
                field.name
            )));
        }
        if let Some(argument) = self.completers.arguments().find(|argument| !is_variable(argument)) {
            return Err(refuse(format!(
                "there is a completion for `{argument}`, which is not a variable of the template"
            )));
        }
        Ok(CatalogItem::Template(Arc::new(TemplateEntry {
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

pub(in crate::server) type Values = std::collections::BTreeMap<String, String>;

pub(in crate::server) trait TemplateHandler: Send + Sync {
    fn read(
        &self,
        uri: &str,
        values: &Values,
        scope: &RequestScope<'_>,
    ) -> Result<ResourceFuture, InvalidValue>;
}

struct TypedTemplateHandler<H, Form> {
    handler: H,
    texts: StringArgs,
    mime_type: Option<String>,
    form: PhantomData<fn() -> Form>,
}

impl<H, Form> TemplateHandler for TypedTemplateHandler<H, Form>
where
    H: Handler<Form>,
    H::Args: Args,
    H::Output: IntoResource,
{
    fn read(
        &self,
        uri: &str,
        values: &Values,
        scope: &RequestScope<'_>,
    ) -> Result<ResourceFuture, InvalidValue> {
        let work = self.handler.call(self.texts.decode(values)?, scope);
        let (uri, mime_type) = (uri.to_owned(), self.mime_type.clone());
        Ok(Box::pin(async move { work.await.into_result(&uri, mime_type.as_deref()) }))
    }
}

/// Resource template with its definition and handler, as registered at a server.
#[derive(Clone)]
pub struct TemplateEntry {
    pub(crate) key: Arc<str>,
    pub(crate) definition: model::ResourceTemplate,
    template: UriTemplate,
    read: Arc<dyn TemplateHandler>,
    pub(crate) completers: Completers,
    pub(crate) state: Option<Arc<StateMap>>,
    /// Types of shared state that the handler takes.
    pub(crate) required_state: Vec<RequiredState>,
}

impl TemplateEntry {
    /// Creates the catalog entry of a resource template of a remote server. A template that this implementation cannot
    /// match is replaced by its literal prefix, and the remote server decides.
    pub(in crate::server) fn remote(
        definition: model::ResourceTemplate,
        read: Arc<dyn TemplateHandler>,
        completers: Completers,
    ) -> Result<Self> {
        let text = &definition.uri_template;
        let literal_prefix = || format!("{}{{+rest}}", text.split('{').next().unwrap_or_default());
        let template = UriTemplate::parse(text).or_else(|_| UriTemplate::parse(&literal_prefix()));
        let template = template.map_err(|reason| {
            Error::setup(format!("the resource template `{text}` cannot be registered: {reason}"))
        })?;
        let (key, required_state) = ((&**text).into(), Vec::new());
        Ok(TemplateEntry { key, definition, template, read, completers, state: None, required_state })
    }

    pub(crate) fn matches(&self, uri: &str) -> Option<Values> {
        self.template.matches(uri)
    }

    pub(crate) fn read(
        &self,
        uri: &str,
        values: &Values,
        scope: &RequestScope<'_>,
    ) -> Result<ResourceFuture, InvalidValue> {
        self.read.read(uri, values, scope)
    }

    pub(crate) fn mounted(self: Arc<Self>, state: &Arc<StateMap>) -> Self {
        let mut entry = Self::clone(&self);
        entry.state.get_or_insert_with(|| state.clone());
        entry
    }
}

impl CatalogEntry for TemplateEntry {
    fn key(&self) -> &Arc<str> {
        &self.key
    }

    fn definition(&self) -> DefinitionRef<'_> {
        DefinitionRef::ResourceTemplate(&self.definition)
    }

    fn required_state(&self) -> (&[RequiredState], Option<&StateMap>) {
        (&self.required_state, self.state.as_deref())
    }
}

/// Handler that reads resources whose URIs match no resource and no template.
pub(crate) trait FallbackReader: Send + Sync {
    fn read(&self, uri: &str, scope: &RequestScope<'_>) -> ResourceFuture;
}

pub(crate) struct FallbackHandler<H, Form>(pub(crate) H, pub(crate) PhantomData<fn() -> Form>);

impl<H, Form> FallbackReader for FallbackHandler<H, Form>
where
    H: Handler<Form, Args = String>,
    H::Output: IntoResource,
{
    fn read(&self, uri: &str, scope: &RequestScope<'_>) -> ResourceFuture {
        let work = self.0.call(uri.to_owned(), scope);
        let uri = uri.to_owned();
        Box::pin(async move { work.await.into_result(&uri, None) })
    }
}
