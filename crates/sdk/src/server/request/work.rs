//! Future behind a request: polled once on arrival, and driven in the background if it must wait.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::result::UnencodedResult;
use crate::server::BoxFuture;
use crate::server::definitions::tool::{self, ToolEntry};
use crate::{Error, ErrorKind, Result};

use linchpin_protocol::model::{CallToolResult, Content};

/// Future of a request, or its result if the request completed immediately.
pub(crate) enum RequestFuture {
    /// Request that completed immediately, with its result.
    Ready(Option<Result<UnencodedResult>>),
    /// Request that completed immediately, with its outcome.
    ReadyOutcome(Option<Box<RequestOutcome>>),
    /// Tool call; its result is checked when it completes.
    Tool(Arc<ToolEntry>, tool::ToolFuture),
    /// A boxed future of any other method that returns a result.
    WithResult(BoxFuture<Result<UnencodedResult>>),
    /// A boxed future of any other method that returns its outcome.
    WithOutcome(BoxFuture<RequestOutcome>),
}

impl RequestFuture {
    pub(crate) fn ready(result: Result<UnencodedResult>) -> Self {
        RequestFuture::Ready(Some(result))
    }

    pub(crate) fn ready_outcome(outcome: RequestOutcome) -> Self {
        RequestFuture::ReadyOutcome(Some(Box::new(outcome)))
    }

    pub(crate) fn pending<T>(
        future: impl Future<Output = Result<T>> + Send + 'static,
        into_result: impl FnOnce(T) -> UnencodedResult + Send + 'static,
    ) -> Self {
        RequestFuture::WithResult(Box::pin(async move { future.await.map(into_result) }))
    }

    /// Polls the request future. A panic of the handler becomes an error.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<RequestOutcome> {
        match self {
            RequestFuture::Ready(result) => {
                let result = result
                    .take()
                    .unwrap_or_else(|| Err(Error::setup("the future was polled after completion")));
                Poll::Ready(RequestOutcome::from(result))
            }
            RequestFuture::ReadyOutcome(outcome) => {
                let polled_again = || {
                    Box::new(RequestOutcome::from(Err(Error::setup(
                        "the future was polled after completion",
                    ))))
                };
                Poll::Ready(*outcome.take().unwrap_or_else(polled_again))
            }
            RequestFuture::Tool(entry, work) => {
                poll_catching_panics(work, cx).map(|result| finish_tool(entry, result))
            }
            RequestFuture::WithResult(work) => poll_catching_panics(work, cx).map(RequestOutcome::from),
            RequestFuture::WithOutcome(work) => work.as_mut().poll(cx),
        }
    }

    /// Polls the request future once, without waiting.
    pub(crate) fn try_finish(&mut self) -> Poll<RequestOutcome> {
        self.poll(&mut Context::from_waker(Waker::noop()))
    }
}

/// Calls `f` and turns a panic in it into an error.
pub(crate) fn catch_panic<T>(f: impl FnOnce() -> T) -> Result<T> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|panic| HandlerPanic::from(panic).into())
}

/// Calls `start` and turns a panic in it into an error.
pub(crate) fn start_catching_panics(start: impl FnOnce() -> RequestFuture) -> RequestFuture {
    catch_panic(start).unwrap_or_else(|panicked| RequestFuture::ready(Err(panicked)))
}

fn poll_catching_panics<T>(work: &mut BoxFuture<Result<T>>, cx: &mut Context<'_>) -> Poll<Result<T>> {
    catch_panic(|| work.as_mut().poll(cx)).unwrap_or_else(|panicked| Poll::Ready(Err(panicked)))
}

/// Runs a future and turns a panic in it into an error.
pub(crate) async fn run_catching_panics<T>(mut work: BoxFuture<Result<T>>) -> Result<T> {
    std::future::poll_fn(|cx| poll_catching_panics(&mut work, cx)).await
}

/// Runs a future that has no result; the returned error is a panic in it.
pub(crate) async fn run_unit_catching_panics(work: BoxFuture<()>) -> Result<()> {
    run_catching_panics(Box::pin(async move {
        work.await;
        Ok(())
    }))
    .await
}

/// Outcome of a request at a server: the response, and the details that are not sent to the client.
pub(crate) struct RequestOutcome {
    pub(crate) result: Result<UnencodedResult, linchpin_protocol::Error>,
    /// Error whose details are not sent to the client, for the error hook of the server.
    pub(crate) internal_error: Option<Error>,
    /// Whether a tool failed with an error that the model sees.
    pub(crate) tool_error: bool,
}

impl From<Result<UnencodedResult>> for RequestOutcome {
    fn from(result: Result<UnencodedResult>) -> Self {
        let error = match result {
            Ok(result) => {
                let tool_error =
                    matches!(&result, UnencodedResult::Tool(result) if result.is_error == Some(true));
                return RequestOutcome { result: Ok(result), internal_error: None, tool_error };
            }
            Err(error) => error,
        };
        match error.kind() {
            ErrorKind::Protocol(protocol) => {
                RequestOutcome { result: Err(protocol.clone()), internal_error: None, tool_error: false }
            }
            ErrorKind::Tool(text) => {
                let result = Err(linchpin_protocol::Error::Internal(text.clone()));
                RequestOutcome { result, internal_error: None, tool_error: false }
            }
            ErrorKind::Other(_) | ErrorKind::Setup(_) => {
                let result = Err(linchpin_protocol::Error::Internal("Internal error".into()));
                RequestOutcome { result, internal_error: Some(error), tool_error: false }
            }
        }
    }
}

/// Converts the result of a tool: a failure becomes a result that the model sees, unless it is a protocol error.
fn finish_tool(entry: &ToolEntry, result: Result<CallToolResult>) -> RequestOutcome {
    let checked = result.and_then(|mut result| {
        entry.check_output(&mut result)?;
        Ok(result)
    });
    let error = match checked {
        Ok(result) => return RequestOutcome::from(Ok(UnencodedResult::Tool(result))),
        Err(error) => error,
    };
    let (text, internal_error) = match error.kind() {
        ErrorKind::Protocol(_) => return RequestOutcome::from(Err(error)),
        ErrorKind::Tool(text) => (text.clone(), None),
        ErrorKind::Other(_) | ErrorKind::Setup(_) => {
            (format!("The tool `{}` failed because of an internal error.", entry.name), Some(error))
        }
    };
    RequestOutcome { result: Ok(tool_failure(text)), internal_error, tool_error: true }
}

/// Returns a failed tool result that the model sees.
pub(crate) fn tool_failure(text: String) -> UnencodedResult {
    UnencodedResult::Tool(CallToolResult {
        content: vec![Content::text(text)],
        structured_content: None,
        is_error: Some(true),
        meta: None,
    })
}

/// Error for a handler that panicked; the text is for the error hook.
#[derive(Debug)]
struct HandlerPanic(String);

impl From<Box<dyn Any + Send>> for HandlerPanic {
    fn from(panic: Box<dyn Any + Send>) -> Self {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        HandlerPanic(text.unwrap_or_else(|| "no message".into()))
    }
}

impl fmt::Display for HandlerPanic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the handler panicked: {}", self.0)
    }
}

impl std::error::Error for HandlerPanic {}
