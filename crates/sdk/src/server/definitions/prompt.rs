//! Prompts of a server: builder, registered entry and handler.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use linchpin_protocol::model::{self, GetPromptResult, PromptArgument};
use linchpin_protocol::wire::InvalidValue;

use super::args::Args;
use super::common_fields::describe;
use super::completion::{Completers, CompletionInput, CompletionOutput};
use super::derived_schema;
use super::handler::Handler;
use super::output::IntoPrompt;
use super::shared_state::{RequiredState, StateMap};
use super::string_args::StringArgs;
use crate::server::catalog::{CatalogEntry, CatalogItem, Register};
use crate::server::request::scope::RequestScope;
use crate::server::{BoxFuture, DefinitionRef};
use crate::{Error, Result};

/// Builder of a prompt. [`Prompt::handler`] completes it.
#[must_use = "a prompt does nothing until it is added to a server"]
pub struct Prompt {
    definition: model::Prompt,
    arguments: Vec<PromptArgument>,
    /// Titles of the prompt arguments, by argument name.
    titles: Vec<(String, String)>,
    completers: Completers,
}

/// For prompts whose arguments are declared with [`Prompt::argument`].
impl Args for BTreeMap<String, String> {}

impl Prompt {
    /// Creates a prompt with a name.
    pub fn new(name: impl Into<String>) -> Self {
        let definition = model::Prompt { name: name.into(), ..model::Prompt::default() };
        Prompt { definition, arguments: Vec::new(), titles: Vec::new(), completers: Completers::default() }
    }

    describe!();

    /// Declares an argument by hand; the handler then takes a `BTreeMap<String, String>`.
    pub fn argument(
        mut self,
        name: impl Into<String>,
        description: impl Into<String>,
        required: bool,
    ) -> Self {
        self.arguments.push(PromptArgument {
            name: name.into(),
            title: None,
            description: Some(description.into()),
            required: Some(required),
        });
        self
    }

    /// Sets the title of an argument, which clients show instead of its name. In a struct of arguments, write
    /// `#[schemars(title = "…")]` on the field.
    pub fn argument_title(mut self, argument: impl Into<String>, title: impl Into<String>) -> Self {
        self.titles.push((argument.into(), title.into()));
        self
    }

    /// Adds a completion handler for an argument.
    pub fn complete<Form, H>(mut self, argument: impl Into<String>, handler: H) -> Self
    where
        H: Handler<Form>,
        H::Args: CompletionInput,
        H::Output: CompletionOutput,
        Form: 'static,
    {
        self.completers.add(argument.into(), handler);
        self
    }

    /// Sets the handler that returns the messages, and completes the prompt.
    pub fn handler<Form, H>(self, handler: H) -> impl Register
    where
        H: Handler<Form>,
        H::Args: Args,
        H::Output: IntoPrompt,
        Form: 'static,
    {
        let texts = StringArgs::new(&derived_schema::input_schema::<H::Args>());
        self.finish(texts, |texts| {
            Arc::new(TypedPromptHandler { handler, texts, form: PhantomData::<fn() -> Form> })
        })
    }

    fn finish(
        mut self,
        texts: Result<StringArgs, String>,
        make_handler: impl FnOnce(StringArgs) -> Arc<dyn PromptHandler>,
    ) -> Result<CatalogItem> {
        let name: Arc<str> = (&*self.definition.name).into();
        let refuse =
            |reason: String| Error::setup(format!("the prompt `{name}` cannot be registered: {reason}"));
        if name.is_empty() {
            return Err(refuse("its name is empty".into()));
        }
        let texts = texts.map_err(refuse)?;
        let typed_arguments = texts.fields.iter().map(|field| PromptArgument {
            name: field.name.clone(),
            title: field.title.clone(),
            description: field.description.clone(),
            required: Some(field.required),
        });
        let mut arguments: Vec<_> = typed_arguments.chain(self.arguments).collect();
        for (argument, title) in self.titles {
            let Some(found) = arguments.iter_mut().find(|other| other.name == argument) else {
                return Err(refuse(format!(
                    "`argument_title` names `{argument}`, which is not an argument of the prompt"
                )));
            };
            found.title = Some(title);
        }
        for (index, argument) in arguments.iter().enumerate() {
            if argument.name.is_empty() {
                return Err(refuse("one of its arguments has an empty name".into()));
            }
            if arguments[..index].iter().any(|other| other.name == argument.name) {
                return Err(refuse(format!("the argument `{}` is declared twice", argument.name)));
            }
        }
        if let Some(unknown) =
            self.completers.arguments().find(|name| !arguments.iter().any(|a| a.name == *name))
        {
            return Err(refuse(format!(
                "there is a completion for `{unknown}`, which is not an argument of the prompt"
            )));
        }
        self.definition.arguments = (!arguments.is_empty()).then_some(arguments);
        let (definition, completers) = (self.definition, self.completers);
        Ok(CatalogItem::Prompt(Arc::new(PromptEntry {
            name,
            definition,
            handler: make_handler(texts),
            completers,
            state: None,
            required_state: Vec::new(),
        })))
    }
}

/// Future of the result of a prompt handler.
pub(crate) type PromptFuture = BoxFuture<Result<GetPromptResult>>;

pub(in crate::server) trait PromptHandler: Send + Sync {
    fn get(
        &self,
        arguments: &BTreeMap<String, String>,
        scope: &RequestScope<'_>,
    ) -> Result<PromptFuture, InvalidValue>;
}

struct TypedPromptHandler<H, Form> {
    handler: H,
    texts: StringArgs,
    form: PhantomData<fn() -> Form>,
}

impl<H, Form> PromptHandler for TypedPromptHandler<H, Form>
where
    H: Handler<Form>,
    H::Args: Args,
    H::Output: IntoPrompt,
{
    fn get(
        &self,
        arguments: &BTreeMap<String, String>,
        scope: &RequestScope<'_>,
    ) -> Result<PromptFuture, InvalidValue> {
        let work = self.handler.call(self.texts.decode(arguments)?, scope);
        Ok(Box::pin(async move { work.await.into_prompt() }))
    }
}

/// Prompt with its definition and handler, as registered at a server.
#[derive(Clone)]
pub struct PromptEntry {
    pub(crate) name: Arc<str>,
    pub(crate) definition: model::Prompt,
    handler: Arc<dyn PromptHandler>,
    pub(crate) completers: Completers,
    pub(crate) state: Option<Arc<StateMap>>,
    /// Types of shared state that the handler takes.
    pub(crate) required_state: Vec<RequiredState>,
}

impl PromptEntry {
    /// Creates the catalog entry of a prompt of a remote server.
    pub(in crate::server) fn remote(
        definition: model::Prompt,
        handler: Arc<dyn PromptHandler>,
        completers: Completers,
    ) -> Self {
        let name = (&*definition.name).into();
        PromptEntry { name, definition, handler, completers, state: None, required_state: Vec::new() }
    }

    /// Checks that all required arguments are present and calls the handler.
    pub(crate) fn start(
        &self,
        arguments: &BTreeMap<String, String>,
        scope: &RequestScope<'_>,
    ) -> Result<PromptFuture, InvalidValue> {
        let declared = self.definition.arguments.iter().flatten();
        for argument in declared.filter(|argument| argument.required == Some(true)) {
            if !arguments.contains_key(&argument.name) {
                let reason = format!("missing argument `{}`", argument.name);
                return Err(InvalidValue { path: String::new(), reason });
            }
        }
        self.handler.get(arguments, scope)
    }

    pub(crate) fn mounted(self: Arc<Self>, name: String, state: &Arc<StateMap>) -> Self {
        let mut entry = Self::clone(&self);
        entry.definition.name.clone_from(&name);
        entry.name = name.into();
        entry.state.get_or_insert_with(|| state.clone());
        entry
    }
}

impl CatalogEntry for PromptEntry {
    fn key(&self) -> &Arc<str> {
        &self.name
    }

    fn definition(&self) -> DefinitionRef<'_> {
        DefinitionRef::Prompt(&self.definition)
    }

    fn required_state(&self) -> (&[RequiredState], Option<&StateMap>) {
        (&self.required_state, self.state.as_deref())
    }
}
