//! Asking the client from inside a handler, in one way for every revision: the question is sent as a request of
//! its own where there are sessions, and travels with the answer to the call where there are none.

use std::time::Duration;

use linchpin_jsonrpc::CallError;
use linchpin_protocol::encode::{Encode, Encoder, to_value};
use linchpin_protocol::model::{
    CreateMessageParams, CreateMessageResult, ElicitAction, ElicitMode, ElicitParams, ElicitResult, Root,
};
use linchpin_protocol::wire::{Invalid, decode};
use linchpin_protocol::{Era, Method, Revision};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::args::Args;
use super::context::related_to;
use super::questions::Asked;
use super::url_elicitation::UrlElicitation;
use super::{Context, Validator, form, schema};
use crate::question::{Question, Reply};
use crate::{Error, Result};

impl Context {
    /// Asks the user for a value of a type with `#[args]`, in a form. Ends in an error that names the capability
    /// when the client cannot ask, and in one that says so when the user declines.
    pub async fn elicit<T: Args>(&self, message: impl Into<String>) -> Result<T> {
        self.unnamed().elicit(message).await
    }

    /// As [`Self::elicit`], and gives `default` when the client cannot ask or the user gives no answer.
    pub async fn try_elicit<T: Args>(&self, message: impl Into<String>, default: T) -> Result<T> {
        self.unnamed().try_elicit(message, default).await
    }

    /// Sends the user to a web page, for what must not pass through the client: a secret, a payment, a consent.
    /// Returns when the user agrees to open it. Once the user has finished there, call [`UrlElicitation::complete`].
    pub async fn elicit_url(
        &self,
        message: impl Into<String>,
        url: impl Into<String>,
    ) -> Result<UrlElicitation> {
        self.unnamed().elicit_url(message, url).await
    }

    /// Asks the user with full control over the question and the answer.
    pub async fn elicit_with(&self, params: ElicitParams) -> Result<ElicitResult> {
        self.unnamed().elicit_with(params).await
    }

    /// Asks the client's model: a text, or a whole conversation.
    pub async fn sample(&self, params: impl Into<CreateMessageParams>) -> Result<CreateMessageResult> {
        self.unnamed().sample(params).await
    }

    /// The folders that the client works in.
    pub async fn roots(&self) -> Result<Vec<Root>> {
        self.unnamed().roots().await
    }

    /// Gives the next question a name, by which clients without a session see and answer it; a client that knows the
    /// name may send the answer with the call itself. Within a call each name is used once.
    ///
    /// ```
    /// # use linchpin::{Context, NoArgs, Result, args};
    /// #[args] struct Name { name: String }
    ///
    /// async fn greet(_: NoArgs, cx: Context) -> Result<String> {
    ///     let user = cx.named("user_name").elicit::<Name>("Who are you?").await?;
    ///     Ok(format!("Hello, {}!", user.name))
    /// }
    /// ```
    pub fn named<'a>(&'a self, name: &'a str) -> Asking<'a> {
        Asking { cx: self, name: Some(name) }
    }

    fn unnamed(&self) -> Asking<'_> {
        Asking { cx: self, name: None }
    }

    /// Does something once, also when the handler is run again from its beginning because the answer to one of its
    /// questions has reached another instance: then the result is taken from before. A name is used once.
    pub async fn step<T, Fut>(&self, name: &str, work: impl FnOnce() -> Fut) -> Result<T>
    where
        T: Serialize + DeserializeOwned,
        Fut: Future<Output = Result<T>>,
    {
        if let Some(before) = self.questions().find_step(name)? {
            return Ok(serde_json::from_str(&before)?);
        }
        let result = work().await?;
        self.questions().note_step(name, serde_json::to_string(&result)?);
        Ok(result)
    }

    /// Whether the client can be asked this, here and now.
    pub(crate) fn can_ask(&self, question: &Question) -> bool {
        question.lacks(self.capabilities(), self.revision()).is_none()
            && question.unfit_field(self.revision()).is_none()
            && self.way_to_ask().is_ok()
    }

    pub(crate) async fn ask(&self, question: Question) -> Result<Reply> {
        self.ask_named(None, question).await
    }

    async fn ask_named(&self, name: Option<&str>, question: Question) -> Result<Reply> {
        if let Some(required) = question.lacks(self.capabilities(), self.revision()) {
            return Err(self.lacking(&question, required));
        }
        if let Some(field) = question.unfit_field(self.revision()) {
            return Err(Error::tool(format!(
                "this client cannot be asked: its revision has no choice of several things, as `{field}` is one"
            )));
        }
        self.way_to_ask()?;
        let _waiting = self.questions().wait();
        match self.revision().era() {
            Era::Session => self.push(question).await,
            Era::Stateless => Asked::new(self, question, name).await,
        }
    }

    fn lacking(&self, question: &Question, required: Value) -> Error {
        match self.revision().era() {
            Era::Stateless => Error::missing_capability(required),
            Era::Session => Error::tool(format!(
                "this client cannot be asked ({}): it lacks the capability {required}",
                question.method().name()
            )),
        }
    }

    /// Whether there is a way to the client and back.
    fn way_to_ask(&self) -> Result<()> {
        match self.revision().era() {
            Era::Session if self.connection().is_none_or(|connection| connection.is_one_shot()) => Err(
                Error::tool("this client cannot be asked: it has only one answer to read, and no session"),
            ),
            Era::Stateless if !self.may_take_rounds() => Err(Error::tool(
                "this client cannot be asked here: only calls of tools, prompts and resources can ask",
            )),
            Era::Stateless if !cfg!(feature = "rounds") => Err(Error::tool(
                "this client cannot be asked: the server was built without the feature `rounds` of linchpin",
            )),
            _ => Ok(()),
        }
    }

    /// Asks by a request of our own.
    async fn push(&self, question: Question) -> Result<Reply> {
        let over = || Error::tool("the client cannot be asked any more: the request has ended");
        let connection = self.connection().filter(|_| !self.end().is_over()).ok_or_else(over)?;
        let method = question.method();
        if connection.is_full() {
            return Err(Error::tool("the client cannot be asked: it does not read what it was sent before"));
        }
        let revision = self.revision();
        let timeout: Duration = self.service().settings().question_timeout;
        let task = self.task_id();
        let call = connection.peer().request(method.name(), Duration::MAX, |_, out| {
            write_question(&question, task, revision, out);
        });
        let failed =
            |error: CallError| Error::tool(format!("the client did not answer {}: {error}", method.name()));
        let answer = tokio::time::timeout(timeout, call.map_err(failed)?).await;
        let text = answer.unwrap_or(Err(CallError::TimedOut(timeout))).map_err(failed)?;
        question.reply(&text).map_err(|Invalid { path, reason }| {
            Error::tool(format!(
                "the client's answer to {} is malformed at \"{path}\": {reason}",
                method.name()
            ))
        })
    }
}

/// A question that is about to be asked, see [`Context::named`].
#[derive(Clone, Copy)]
#[must_use = "nothing is asked yet"]
pub struct Asking<'a> {
    cx: &'a Context,
    name: Option<&'a str>,
}

impl Asking<'_> {
    /// Asks the user for a value of a type with `#[args]`, in a form. Ends in an error that names the capability
    /// when the client cannot ask, and in one that says so when the user declines.
    pub async fn elicit<T: Args>(self, message: impl Into<String>) -> Result<T> {
        let result = self.elicit_with(form_params::<T>(message.into())?).await?;
        match result.action {
            ElicitAction::Accept => filled_in(result),
            ElicitAction::Decline => Err(Error::tool("the user declined to answer")),
            ElicitAction::Cancel => Err(Error::tool("the user closed the question without an answer")),
        }
    }

    /// As [`Self::elicit`], and gives `default` when the client cannot ask or the user gives no answer.
    pub async fn try_elicit<T: Args>(self, message: impl Into<String>, default: T) -> Result<T> {
        let params = form_params::<T>(message.into())?;
        if !self.cx.can_ask(&Question::Elicit(Box::new(params.clone()))) {
            return Ok(default);
        }
        let result = self.elicit_with(params).await?;
        if result.action == ElicitAction::Accept { filled_in(result) } else { Ok(default) }
    }

    /// Sends the user to a web page, for what must not pass through the client: a secret, a payment, a consent.
    /// Returns when the user agrees to open it. Once the user has finished there, call [`UrlElicitation::complete`].
    pub async fn elicit_url(
        self,
        message: impl Into<String>,
        url: impl Into<String>,
    ) -> Result<UrlElicitation> {
        let url = url.into();
        if !is_safe(&url) {
            return Err(Error::setup(format!("the page at {url} is not safe to send a user to: use https")));
        }
        let id = super::unguessable();
        let params = ElicitParams {
            mode: Some(ElicitMode::Url),
            message: message.into(),
            requested_schema: None,
            elicitation_id: Some(id.clone()),
            url: Some(url),
            task: None,
            meta: None,
        };
        match self.elicit_with(params).await?.action {
            ElicitAction::Accept => Ok(UrlElicitation::new(self.cx, id)),
            ElicitAction::Decline => Err(Error::tool("the user declined to open the page")),
            ElicitAction::Cancel => Err(Error::tool("the user closed the question without an answer")),
        }
    }

    /// Asks the user with full control over the question and the answer.
    pub async fn elicit_with(self, params: ElicitParams) -> Result<ElicitResult> {
        match self.cx.ask_named(self.name, Question::Elicit(Box::new(params))).await? {
            Reply::Elicit(result) => Ok(result),
            _ => Err(mismatch()),
        }
    }

    /// Asks the client's model: a text, or a whole conversation.
    pub async fn sample(self, params: impl Into<CreateMessageParams>) -> Result<CreateMessageResult> {
        match self.cx.ask_named(self.name, Question::Sample(Box::new(params.into()))).await? {
            Reply::Sample(result) => Ok(*result),
            _ => Err(mismatch()),
        }
    }

    /// The folders that the client works in.
    pub async fn roots(self) -> Result<Vec<Root>> {
        match self.cx.ask_named(self.name, Question::Roots).await? {
            Reply::Roots(result) => Ok(result.roots),
            _ => Err(mismatch()),
        }
    }
}

/// Appends the parameters of a question; one that belongs to a task says so.
fn write_question(question: &Question, task: Option<&str>, revision: Revision, out: &mut Vec<u8>) {
    let Some(task) = task else { return question.encode(&mut Encoder { out, revision }) };
    related_to(task, to_value(question, revision)).encode(&mut Encoder { out, revision });
}

fn form_params<T: Args>(message: String) -> Result<ElicitParams> {
    Ok(ElicitParams {
        mode: Some(ElicitMode::Form),
        message,
        requested_schema: Some(form::of::<T>()?),
        url: None,
        elicitation_id: None,
        task: None,
        meta: None,
    })
}

/// What the user filled in, as the type that was asked for.
fn filled_in<T: Args>(result: ElicitResult) -> Result<T> {
    let content = Value::Object(result.content.unwrap_or_default());
    let check = Validator::for_typed(&schema::of_input::<T>()).map_err(Error::setup)?;
    if let Some(check) = check {
        check
            .check(&content)
            .map_err(|fault| Error::tool(format!("what the user filled in does not fit: {fault}")))?;
    }
    decode(&content.to_string()).map_err(|Invalid { path, reason }| {
        let place = if path.is_empty() { String::new() } else { format!(" at {path}") };
        Error::tool(format!("what the user filled in does not fit{place}: {reason}"))
    })
}

fn mismatch() -> Error {
    Error::setup("the answer is of another kind than the question")
}

/// Whether nobody on the way to a page can read along: what travels encrypted, or stays on this machine.
fn is_safe(url: &str) -> bool {
    let local = ["http://localhost", "http://127.0.0.1", "http://[::1]"];
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let ends = |rest: &str| {
        let end = rest.split(['/', '?', '#']).next().unwrap_or_default();
        end.is_empty() || end.strip_prefix(':').is_some_and(is_port)
    };
    url.starts_with("https://") || local.iter().any(|host| url.strip_prefix(host).is_some_and(ends))
}

/// The methods whose answers may ask for input.
pub(crate) fn takes_rounds(method: &str) -> bool {
    Method::find(method).is_some_and(Method::takes_input)
}

#[cfg(test)]
mod tests {
    use super::is_safe;

    #[test]
    fn users_are_sent_only_to_safe_pages() {
        for url in ["https://example.com/pay", "http://localhost", "http://127.0.0.1:80/a?b", "http://[::1]/"]
        {
            assert!(is_safe(url), "{url}");
        }
        let unsafe_pages = [
            "http://example.com",
            "http://localhost.example.com",
            "http://localhost:1@example.com",
            "file:///etc",
            "",
        ];
        for url in unsafe_pages {
            assert!(!is_safe(url), "{url}");
        }
    }
}
