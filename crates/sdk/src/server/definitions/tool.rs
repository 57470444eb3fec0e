//! Tools of a server: builder, registered entry and calls of the handler.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use linchpin_protocol::model::{
    self, CallToolResult, OutputSchema, TaskSupport, ToolAnnotations, ToolExecution,
};
use linchpin_protocol::wire::{InvalidValue, decode};
use serde_json::Value;

use super::args::Args;
use super::common_fields::describe;
use super::derived_schema;
use super::handler::Handler;
use super::output::IntoToolOutput;
use super::shared_state::{RequiredState, StateMap};
use super::validator::Validator;
use crate::http::header_annotation;
use crate::server::catalog::{CatalogItem, Register, check_name};
use crate::server::identity::check_scope_name;
use crate::server::request::scope::RequestScope;
use crate::server::{BoxFuture, DefinitionRef};
use crate::{Error, Result};

/// Builder of a tool. [`Tool::handler`] completes it.
///
/// ```
/// # use linchpin::{Tool, args};
/// #[args] struct Sleep { seconds: u64 }
///
/// let tool = Tool::new("nap")
///     .description("Sleeps for a while")
///     .read_only()
///     .timeout(std::time::Duration::from_secs(60))
///     .handler(|Sleep { seconds }| async move { format!("slept {seconds} s") });
/// ```
#[must_use = "a tool does nothing until it is added to a server"]
pub struct Tool {
    definition: model::Tool,
    timeout: Option<Duration>,
    requests_input_first: bool,
    raw: bool,
    /// Parameters that are mirrored into headers, with the header names.
    headers: Vec<(String, String)>,
    scopes: Vec<String>,
}

impl Tool {
    /// Creates a tool whose schema is derived from the arguments of its handler.
    pub fn new(name: impl Into<String>) -> Self {
        let definition = model::Tool {
            name: name.into(),
            title: None,
            description: None,
            input_schema: Value::Null,
            output_schema: None,
            annotations: None,
            execution: None,
            icons: None,
            meta: None,
        };
        Tool {
            definition,
            timeout: None,
            requests_input_first: false,
            raw: false,
            headers: Vec::new(),
            scopes: Vec::new(),
        }
    }

    /// Creates a tool with a hand-written schema; its handler takes a JSON object.
    pub fn raw(name: impl Into<String>, input_schema: Value) -> Self {
        let mut tool = Self::new(name);
        tool.definition.input_schema = input_schema;
        tool.raw = true;
        tool
    }

    describe!();

    /// Sets a hand-written schema of the structured result.
    pub fn output_schema(mut self, schema: Value) -> Self {
        self.definition.output_schema = Some(OutputSchema(schema));
        self
    }

    fn annotate(mut self, set: impl FnOnce(&mut ToolAnnotations)) -> Self {
        set(self.definition.annotations.get_or_insert_default());
        self
    }

    /// Hints that the tool does not modify its environment.
    pub fn read_only(self) -> Self {
        self.annotate(|annotations| annotations.read_only = Some(true))
    }

    /// Hints whether the tool may perform destructive updates.
    pub fn destructive(self, destructive: bool) -> Self {
        self.annotate(|annotations| annotations.destructive = Some(destructive))
    }

    /// Hints that repeated calls with the same arguments have no additional effect.
    pub fn idempotent(self) -> Self {
        self.annotate(|annotations| annotations.idempotent = Some(true))
    }

    /// Hints whether the tool interacts with external entities.
    pub fn open_world(self, open: bool) -> Self {
        self.annotate(|annotations| annotations.open_world = Some(open))
    }

    /// Sets whether a call of this tool may or must run as a task, which is created immediately and polled later. For
    /// work that takes minutes.
    pub fn task(mut self, support: TaskSupport) -> Self {
        self.definition.execution = Some(ToolExecution { task_support: Some(support) });
        self
    }

    /// Sends the server requests at the start of the handler in the response to the call itself; the call becomes a
    /// task when it first waits for something else. So a user who declines has not started a task. For clients without
    /// a session; see [`Self::task`].
    pub fn requests_input_first(mut self) -> Self {
        self.requests_input_first = true;
        self
    }

    /// Sets the timeout of a call of this tool. A call that exceeds it ends with an error that the model sees.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Mirrors a parameter into the HTTP header `Mcp-Param-{name}` of the client's requests, so that intermediaries can
    /// route by it. Do not use it for secrets: headers end up in logs.
    ///
    /// The parameter must be a string, an integer or a boolean.
    ///
    /// ```
    /// # use linchpin::{Tool, args};
    /// #[args] struct Query { region: String, sql: String }
    ///
    /// let tool = Tool::new("query")
    ///     .header("region", "Region")
    ///     .handler(|Query { region, sql }| async move { format!("{sql} in {region}") });
    /// ```
    pub fn header(mut self, parameter: impl Into<String>, name: impl Into<String>) -> Self {
        self.headers.push((parameter.into(), name.into()));
        self
    }

    /// Requires scopes: a call whose identity lacks any of them is rejected before the handler runs, in every revision.
    /// Over HTTP, the challenge names the scopes that the client must request.
    ///
    /// Applies only to callers with an [`Identity`](crate::Identity). Callers on stdio and in memory have none and may
    /// call every tool.
    pub fn scopes(mut self, scopes: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.scopes.extend(scopes.into_iter().map(Into::into));
        self
    }

    /// Sets the handler of calls and completes the tool.
    pub fn handler<Form, H>(self, handler: H) -> impl Register
    where
        H: Handler<Form>,
        H::Args: Args,
        H::Output: IntoToolOutput,
        Form: 'static,
    {
        let typed_handler = TypedToolHandler { handler, form: PhantomData::<fn() -> Form> };
        let input = (!self.raw).then(derived_schema::input_schema::<H::Args>);
        let output = H::Output::output_schema();
        self.finish(Box::new(typed_handler), input, output)
    }

    /// Builds the catalog item: all steps that do not depend on the type of the handler, so that they are compiled
    /// once.
    fn finish(
        mut self,
        call: Box<dyn ToolHandler>,
        input: Option<derived_schema::DerivedSchema>,
        output: Option<derived_schema::DerivedSchema>,
    ) -> Result<CatalogItem> {
        let name: Arc<str> = (&*self.definition.name).into();
        let refuse =
            |reason: String| Error::setup(format!("the tool `{name}` cannot be registered: {reason}"));
        check_name("tool", &name)?;
        self.scopes.iter().try_for_each(|scope| check_scope_name(scope)).map_err(refuse)?;
        let input_check = match input {
            Some(derived) => {
                let check = Validator::for_typed(&derived).map_err(refuse)?;
                self.definition.input_schema = derived.schema;
                check
            }
            None if derived_schema::is_any_object(&self.definition.input_schema) => None,
            None => Some(
                Validator::new(&self.definition.input_schema, "hand-written input schema").map_err(refuse)?,
            ),
        };
        if self.definition.input_schema.get("type").is_none_or(|kind| kind != "object") {
            return Err(refuse(
                "the arguments must be a struct: the schema must have \"type\": \"object\"".into(),
            ));
        }
        for (parameter, name) in &self.headers {
            header_annotation::annotate(&mut self.definition.input_schema, parameter, name)
                .map_err(refuse)?;
        }
        header_annotation::find_annotations(&self.definition.input_schema).map_err(refuse)?;
        let mut output_proven = false;
        let output_check = match (&self.definition.output_schema, output) {
            (Some(by_hand), _) => {
                Some(Validator::new(&by_hand.0, "hand-written output schema").map_err(refuse)?)
            }
            (None, Some(derived)) => {
                output_proven = derived.unenforced.is_none();
                let check = Validator::for_typed(&derived)
                    .map_err(refuse)?
                    .or_else(|| Validator::for_non_finite(&derived));
                self.definition.output_schema = Some(OutputSchema(derived.schema));
                check
            }
            (None, None) => None,
        };
        Ok(CatalogItem::Tool(Arc::new(ToolEntry {
            name,
            #[cfg(feature = "http-server")]
            mirror: mirror(&self.definition),
            definition: self.definition,
            call,
            timeout: self.timeout,
            requests_input_first: self.requests_input_first,
            task_delay: Duration::ZERO,
            scopes: self.scopes.into(),
            input_check,
            output_check,
            output_guaranteed: output_proven,
            state: None,
            required_state: Vec::new(),
        })))
    }
}

/// Returns the tool parameters that clients mirror into headers, or none if a remote tool declares them wrongly.
#[cfg(feature = "http-server")]
fn mirror(definition: &model::Tool) -> crate::http::param_headers::ParamHeaders {
    crate::http::param_headers::ParamHeaders::from_schema(&definition.input_schema).unwrap_or_default()
}

/// Tool with its definition and handler, as registered at a server.
pub struct ToolEntry {
    pub(crate) name: Arc<str>,
    pub(crate) definition: model::Tool,
    call: Box<dyn ToolHandler>,
    timeout: Option<Duration>,
    pub(crate) requests_input_first: bool,
    /// Scopes that a client must have to call the tool.
    pub(crate) scopes: Box<[String]>,
    input_check: Option<Validator>,
    output_check: Option<Validator>,
    /// Time after which a call becomes a task if the server decides that.
    pub(crate) task_delay: Duration,
    /// Whether the Rust type guarantees that results match the output schema, as long as no number has become `null`.
    output_guaranteed: bool,
    /// Parameters of the tool that clients mirror into HTTP headers.
    #[cfg(feature = "http-server")]
    pub(crate) mirror: crate::http::param_headers::ParamHeaders,
    /// Shared state of the mounted server that the tool comes from; `None` for a tool of the server itself.
    pub(crate) state: Option<Arc<StateMap>>,
    /// Types of shared state that the handler takes.
    pub(crate) required_state: Vec<RequiredState>,
}

impl ToolEntry {
    /// Creates the catalog entry of a tool of a remote server, which does its own checks.
    pub(in crate::server) fn remote(definition: model::Tool, call: Box<dyn ToolHandler>) -> ToolEntry {
        ToolEntry {
            name: (&*definition.name).into(),
            #[cfg(feature = "http-server")]
            mirror: mirror(&definition),
            definition,
            call,
            timeout: None,
            requests_input_first: false,
            task_delay: Duration::ZERO,
            scopes: Box::default(),
            input_check: None,
            output_check: None,
            output_guaranteed: true,
            state: None,
            required_state: Vec::new(),
        }
    }

    /// Returns the tool with a time after which its calls become tasks.
    pub(in crate::server) fn with_task_delay(self, delay: Duration) -> Self {
        ToolEntry { task_delay: delay, ..self }
    }

    /// Returns the tool under another name, with the shared state of the mounted server that it comes from.
    pub(crate) fn mounted(self: Arc<Self>, name: String, state: &Arc<StateMap>) -> ToolEntry {
        let mut definition = self.definition.clone();
        definition.name.clone_from(&name);
        let state = Some(self.state.clone().unwrap_or_else(|| state.clone()));
        ToolEntry {
            name: name.into(),
            #[cfg(feature = "http-server")]
            mirror: mirror(&definition),
            definition,
            requests_input_first: self.requests_input_first,
            task_delay: self.task_delay,
            scopes: self.scopes.clone(),
            required_state: self.required_state.clone(),
            call: Box::new(MountedTool(self)),
            timeout: None,
            input_check: None,
            output_check: None,
            output_guaranteed: true,
            state,
        }
    }

    /// Returns whether calls of this tool may or must run as tasks.
    pub(crate) fn task_support(&self) -> TaskSupport {
        let declared_support =
            self.definition.execution.as_ref().and_then(|execution| execution.task_support);
        declared_support.unwrap_or(TaskSupport::Forbidden)
    }

    /// Returns whether the author declared the tool safe to run twice.
    pub(crate) fn may_run_twice(&self) -> bool {
        let annotations = self.definition.annotations.as_ref();
        let value = |hint: fn(&ToolAnnotations) -> Option<bool>| annotations.and_then(hint);
        value(|hints| hints.read_only) == Some(true)
            || value(|hints| hints.idempotent) == Some(true)
            || value(|hints| hints.destructive) == Some(false)
    }

    /// Checks the arguments and starts the call. The error describes invalid arguments for the model.
    pub(crate) fn start(
        self: &Arc<Self>,
        arguments: &str,
        scope: &RequestScope<'_>,
    ) -> Result<ToolFuture, InvalidValue> {
        if let Some(check) = &self.input_check {
            let value: Value = decode(arguments)?;
            check.check(&value).map_err(|reason| InvalidValue { path: String::new(), reason })?;
        }
        let work = self.call.call(arguments, scope)?;
        let Some(timeout) = self.timeout else { return Ok(work) };
        let (name, context) = (self.name.clone(), scope.context.get().cloned());
        Ok(Box::pin(async move {
            let mut work = work;
            let started = tokio::time::Instant::now();
            let mut deadline = started + timeout;
            loop {
                if let Ok(result) = tokio::time::timeout_at(deadline, &mut work).await {
                    return result;
                }
                // The time that the client takes to respond does not count against the tool.
                let waited =
                    context.as_ref().map_or(Duration::ZERO, |context| context.mailbox().total_wait());
                if started + timeout + waited <= deadline {
                    return Err(Error::tool(format!("the tool `{name}` did not finish within {timeout:?}")));
                }
                deadline = started + timeout + waited;
            }
        }))
    }

    /// Checks a tool result against the output schema of the tool.
    pub(crate) fn check_output(&self, result: &mut CallToolResult) -> Result<()> {
        let Some(schema) = &self.definition.output_schema else { return Ok(()) };
        if result.is_error == Some(true) {
            return Ok(());
        }
        let Some(structured) = &mut result.structured_content else {
            return Err(self.output_mismatch("the tool returned no structured content"));
        };
        structured.object_schema = schema.is_object();
        let is_guaranteed = self.output_guaranteed && !structured.json.get().contains("null");
        if let Some(check) = self.output_check.as_ref().filter(|_| !is_guaranteed) {
            let value = serde_json::from_str(structured.json.get())?;
            check.check(&value).map_err(|fault| self.output_mismatch(&fault))?;
        }
        Ok(())
    }

    fn output_mismatch(&self, fault: &str) -> Error {
        Error::setup(format!(
            "the result of the tool `{}` does not match its output schema: {fault}",
            self.name
        ))
    }
}

/// Future of the result of a tool handler.
pub(crate) type ToolFuture = BoxFuture<Result<CallToolResult>>;

/// Type-erased handler of a tool.
pub(in crate::server) trait ToolHandler: Send + Sync {
    fn call(&self, arguments: &str, scope: &RequestScope<'_>) -> Result<ToolFuture, InvalidValue>;
}

struct TypedToolHandler<H, Form> {
    handler: H,
    form: PhantomData<fn() -> Form>,
}

impl<Form, H> ToolHandler for TypedToolHandler<H, Form>
where
    H: Handler<Form>,
    H::Args: Args,
    H::Output: IntoToolOutput,
{
    fn call(&self, arguments: &str, scope: &RequestScope<'_>) -> Result<ToolFuture, InvalidValue> {
        let work = self.handler.call(decode(arguments)?, scope);
        Ok(Box::pin(async move { work.await.into_output() }))
    }
}

/// Handler of a tool of a mounted server, which applies the tool's own checks and timeout.
struct MountedTool(Arc<ToolEntry>);

impl ToolHandler for MountedTool {
    fn call(&self, arguments: &str, scope: &RequestScope<'_>) -> Result<ToolFuture, InvalidValue> {
        let entry = self.0.clone();
        let work = entry.start(arguments, scope)?;
        Ok(Box::pin(async move {
            let mut result = work.await?;
            entry.check_output(&mut result)?;
            Ok(result)
        }))
    }
}

impl crate::server::catalog::CatalogEntry for ToolEntry {
    fn key(&self) -> &Arc<str> {
        &self.name
    }

    fn definition(&self) -> DefinitionRef<'_> {
        DefinitionRef::Tool(&self.definition)
    }

    fn required_state(&self) -> (&[RequiredState], Option<&StateMap>) {
        (&self.required_state, self.state.as_deref())
    }
}
