//! Completion handlers for prompt arguments and template variables.

use std::collections::{BTreeMap, HashMap};
use std::marker::PhantomData;
use std::sync::Arc;

use linchpin_protocol::model::{CompleteParams, CompleteResult, Completion};

use super::handler::Handler;
use crate::server::BoxFuture;
use crate::server::request::scope::RequestScope;
use crate::{Error, Result};

/// Maximum number of values in one completion result, set by the protocol.
const MAX_VALUES: usize = 100;

/// Completion request: the typed text and the arguments that are already chosen.
#[derive(Debug, Clone)]
pub struct CompletionRequest {
    /// Text that the user has typed so far.
    pub value: String,
    /// Values of the other arguments, by name.
    pub arguments: BTreeMap<String, String>,
}

/// Input of a completion handler: the typed text, or the whole request.
#[diagnostic::on_unimplemented(
    message = "a completion handler cannot take `{Self}`",
    note = "it takes `String`, the text typed so far, or `server::Completing`, which also has the other arguments"
)]
pub trait CompletionInput: Send {
    #[doc(hidden)]
    fn from_request(request: CompletionRequest) -> Self;
}

impl CompletionInput for String {
    fn from_request(request: CompletionRequest) -> Self {
        request.value
    }
}

impl CompletionInput for CompletionRequest {
    fn from_request(request: CompletionRequest) -> Self {
        request
    }
}

/// Type that a completion handler may return: the suggested values.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be returned from a completion handler",
    note = "return a Vec of String or &str, or a Result of one"
)]
pub trait CompletionOutput {
    #[doc(hidden)]
    fn into_values(self) -> Result<Vec<String>>;
}

impl<S: Into<String>> CompletionOutput for Vec<S> {
    fn into_values(self) -> Result<Vec<String>> {
        Ok(self.into_iter().map(Into::into).collect())
    }
}

impl<S: Into<String>> CompletionOutput for Result<Vec<S>, Error> {
    fn into_values(self) -> Result<Vec<String>> {
        self?.into_values()
    }
}

trait CompletionHandler: Send + Sync {
    fn complete(
        &self,
        request: CompletionRequest,
        scope: &RequestScope<'_>,
    ) -> BoxFuture<Result<Vec<String>>>;
}

struct TypedCompletion<H, Form>(H, PhantomData<fn() -> Form>);

impl<H, Form> CompletionHandler for TypedCompletion<H, Form>
where
    H: Handler<Form>,
    H::Args: CompletionInput,
    H::Output: CompletionOutput,
{
    fn complete(
        &self,
        request: CompletionRequest,
        scope: &RequestScope<'_>,
    ) -> BoxFuture<Result<Vec<String>>> {
        let work = self.0.call(H::Args::from_request(request), scope);
        Box::pin(async move { work.await.into_values() })
    }
}

/// Completer that forwards completion requests to a remote server.
pub(in crate::server) trait RemoteCompleter: Send + Sync {
    fn complete(&self, params: CompleteParams, scope: &RequestScope<'_>)
    -> BoxFuture<Result<CompleteResult>>;
}

/// Completion handlers of one prompt or template, by argument.
#[derive(Clone, Default)]
pub(crate) struct Completers {
    by_argument: HashMap<String, Arc<dyn CompletionHandler>>,
    remote: Option<Arc<dyn RemoteCompleter>>,
}

impl Completers {
    pub(in crate::server) fn remote(to: Arc<dyn RemoteCompleter>) -> Self {
        Completers { by_argument: HashMap::new(), remote: Some(to) }
    }

    pub(crate) fn add<Form, H>(&mut self, argument: String, handler: H)
    where
        H: Handler<Form>,
        H::Args: CompletionInput,
        H::Output: CompletionOutput,
        Form: 'static,
    {
        self.by_argument.insert(argument, Arc::new(TypedCompletion(handler, PhantomData)));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_argument.is_empty() && self.remote.is_none()
    }

    pub(crate) fn arguments(&self) -> impl Iterator<Item = &str> {
        self.by_argument.keys().map(|argument| &**argument)
    }

    /// Completes an argument with its registered completion handler. An argument without a handler has no values, which
    /// is not an error.
    pub(crate) fn complete(
        &self,
        params: CompleteParams,
        scope: &RequestScope<'_>,
    ) -> BoxFuture<Result<CompleteResult>> {
        if let Some(forward) = &self.remote {
            return forward.complete(params, scope);
        }
        let Some(completer) = self.by_argument.get(&params.argument.name) else {
            return Box::pin(async { Ok(truncated_result(Vec::new())) });
        };
        let arguments = params.context.and_then(|context| context.arguments).unwrap_or_default();
        let work = completer.complete(CompletionRequest { value: params.argument.value, arguments }, scope);
        Box::pin(async move { work.await.map(truncated_result) })
    }
}

fn truncated_result(mut values: Vec<String>) -> CompleteResult {
    let total = values.len();
    values.truncate(MAX_VALUES);
    let has_more = Some(total > MAX_VALUES);
    CompleteResult { completion: Completion { values, total: Some(total as u64), has_more }, meta: None }
}
