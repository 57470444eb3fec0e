//! Future behind a request: polled once on arrival, and driven in the background if it must wait.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::result::Answer;
use crate::server::BoxFuture;
use crate::server::definitions::tool::{self, ToolEntry};
use crate::{Error, ErrorKind, Result};

use linchpin_protocol::model::{CallToolResult, Content};

/// Future behind a request.
pub(crate) enum Work {
    /// Completed immediately.
    Done(Option<Result<Answer>>),
    /// Completed immediately, with its outcome.
    Finished(Option<Box<Outcome>>),
    /// Tool call; its result is checked when it completes.
    Tool(Arc<ToolEntry>, tool::Work),
    /// Any other future.
    Other(BoxFuture<Result<Answer>>),
    /// Any other future that returns its outcome.
    Whole(BoxFuture<Outcome>),
}

impl Work {
    pub(crate) fn done(result: Result<Answer>) -> Self {
        Work::Done(Some(result))
    }

    pub(crate) fn finished(outcome: Outcome) -> Self {
        Work::Finished(Some(Box::new(outcome)))
    }

    pub(crate) fn wait<T>(
        future: impl Future<Output = Result<T>> + Send + 'static,
        answer: impl FnOnce(T) -> Answer + Send + 'static,
    ) -> Self {
        Work::Other(Box::pin(async move { future.await.map(answer) }))
    }

    /// Polls the future. A panic of the handler becomes an error.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Outcome> {
        match self {
            Work::Done(result) => {
                let result = result.take().unwrap_or_else(|| Err(Error::setup("polled after completion")));
                Poll::Ready(Outcome::from(result))
            }
            Work::Finished(outcome) => {
                let again = || Box::new(Outcome::from(Err(Error::setup("polled after completion"))));
                Poll::Ready(*outcome.take().unwrap_or_else(again))
            }
            Work::Tool(entry, work) => poll_caught(work, cx).map(|result| finish_tool(entry, result)),
            Work::Other(work) => poll_caught(work, cx).map(Outcome::from),
            Work::Whole(work) => work.as_mut().poll(cx),
        }
    }

    /// Polls once, without waiting.
    pub(crate) fn try_finish(&mut self) -> Poll<Outcome> {
        self.poll(&mut Context::from_waker(Waker::noop()))
    }
}

/// Calls `f` and turns a panic in it into an error.
pub(crate) fn caught<T>(f: impl FnOnce() -> T) -> Result<T> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|panic| Panicked::from(panic).into())
}

/// Calls `begin` and turns a panic in it into an error.
pub(crate) fn begin_caught(begin: impl FnOnce() -> Work) -> Work {
    caught(begin).unwrap_or_else(|panicked| Work::done(Err(panicked)))
}

fn poll_caught<T>(work: &mut BoxFuture<Result<T>>, cx: &mut Context<'_>) -> Poll<Result<T>> {
    caught(|| work.as_mut().poll(cx)).unwrap_or_else(|panicked| Poll::Ready(Err(panicked)))
}

/// Runs a future and turns a panic in it into an error.
pub(crate) async fn caught_future<T>(mut work: BoxFuture<Result<T>>) -> Result<T> {
    std::future::poll_fn(|cx| poll_caught(&mut work, cx)).await
}

/// Runs a future without a result; the error is a panic in it.
pub(crate) async fn run_caught(work: BoxFuture<()>) -> Result<()> {
    caught_future(Box::pin(async move {
        work.await;
        Ok(())
    }))
    .await
}

/// Outcome of a request: the response and the details that must not be sent.
pub(crate) struct Outcome {
    pub(crate) answer: Result<Answer, linchpin_protocol::Error>,
    /// Error for the error hook.
    pub(crate) hidden: Option<Error>,
    /// Whether a tool failed with an error that the model sees.
    pub(crate) tool_error: bool,
}

impl From<Result<Answer>> for Outcome {
    fn from(result: Result<Answer>) -> Self {
        let error = match result {
            Ok(answer) => {
                let tool_error = matches!(&answer, Answer::Tool(result) if result.is_error == Some(true));
                return Outcome { answer: Ok(answer), hidden: None, tool_error };
            }
            Err(error) => error,
        };
        match error.kind() {
            ErrorKind::Protocol(protocol) => {
                Outcome { answer: Err(protocol.clone()), hidden: None, tool_error: false }
            }
            ErrorKind::Tool(text) => {
                let answer = Err(linchpin_protocol::Error::Internal(text.clone()));
                Outcome { answer, hidden: None, tool_error: false }
            }
            ErrorKind::Foreign(_) | ErrorKind::Setup(_) => {
                let answer = Err(linchpin_protocol::Error::Internal("Internal error".into()));
                Outcome { answer, hidden: Some(error), tool_error: false }
            }
        }
    }
}

/// Converts the result of a tool: a failure becomes a result that the model sees, unless it is a protocol error.
fn finish_tool(entry: &ToolEntry, result: Result<CallToolResult>) -> Outcome {
    let checked = result.and_then(|mut result| {
        entry.check_output(&mut result)?;
        Ok(result)
    });
    let error = match checked {
        Ok(result) => return Outcome::from(Ok(Answer::Tool(result))),
        Err(error) => error,
    };
    let (text, hidden) = match error.kind() {
        ErrorKind::Protocol(_) => return Outcome::from(Err(error)),
        ErrorKind::Tool(text) => (text.clone(), None),
        ErrorKind::Foreign(_) | ErrorKind::Setup(_) => {
            (format!("The tool `{}` failed because of an internal error.", entry.name), Some(error))
        }
    };
    Outcome { answer: Ok(tool_failure(text)), hidden, tool_error: true }
}

/// Returns a failed tool result that the model sees.
pub(crate) fn tool_failure(text: String) -> Answer {
    Answer::Tool(CallToolResult {
        content: vec![Content::text(text)],
        structured_content: None,
        is_error: Some(true),
        meta: None,
    })
}

/// Panic of a handler; the text is for the error hook.
#[derive(Debug)]
struct Panicked(String);

impl From<Box<dyn Any + Send>> for Panicked {
    fn from(panic: Box<dyn Any + Send>) -> Self {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Panicked(text.unwrap_or_else(|| "no message".into()))
    }
}

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the handler panicked: {}", self.0)
    }
}

impl std::error::Error for Panicked {}
