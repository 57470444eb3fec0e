//! Server requests from inside a handler (elicitation, sampling, roots), with one API for every revision. In the
//! session era they are sent as requests of the server; in the stateless era they travel in an `input_required` result.

use std::time::Duration;

use linchpin_jsonrpc::CallError;
use linchpin_protocol::encode::{Encode, Encoder, to_value};
use linchpin_protocol::model::{
    CreateMessageParams, CreateMessageResult, ElicitAction, ElicitMode, ElicitParams, ElicitResult, Root,
};
use linchpin_protocol::wire::{InvalidValue, decode};
use linchpin_protocol::{Era, Method, Revision};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::elicitation_form;
use super::mailbox::PendingResponse;
use super::url_elicitation::UrlElicitation;
use crate::server::definitions::args::Args;
use crate::server::definitions::derived_schema;
use crate::server::request::context::with_related_task;
use crate::server::{Context, Validator};
use crate::server_request::{ClientResult, ServerRequest};
use crate::{Error, Result};

impl Context {
    /// Elicits a value of a type with `#[args]` from the user, in a form.
    ///
    /// # Errors
    ///
    /// Fails if the client lacks the capability, which the error names, or if the user declines or cancels.
    pub async fn elicit<T: Args>(&self, message: impl Into<String>) -> Result<T> {
        self.unnamed().elicit(message).await
    }

    /// Like [`Self::elicit`], but returns `default` if the client cannot elicit input or the user declines or cancels.
    pub async fn try_elicit<T: Args>(&self, message: impl Into<String>, default: T) -> Result<T> {
        self.unnamed().try_elicit(message, default).await
    }

    /// Sends the user to a web page, for data that must not pass through the client: a secret, a payment, a consent.
    /// Returns when the user agrees to open the page. Call [`UrlElicitation::complete`] once the user has finished
    /// there.
    pub async fn elicit_url(
        &self,
        message: impl Into<String>,
        url: impl Into<String>,
    ) -> Result<UrlElicitation> {
        self.unnamed().elicit_url(message, url).await
    }

    /// Returns the elicitation by URL with this id that was sent with [`Self::send_server_request`], to report its end.
    pub fn url_elicitation(&self, id: impl Into<String>) -> UrlElicitation {
        UrlElicitation::new(self, id.into())
    }

    /// Elicits input from the user with full control over the parameters and the result.
    pub async fn elicit_with(&self, params: ElicitParams) -> Result<ElicitResult> {
        self.unnamed().elicit_with(params).await
    }

    /// Samples the client's model with a text or a conversation.
    pub async fn sample(&self, params: impl Into<CreateMessageParams>) -> Result<CreateMessageResult> {
        self.unnamed().sample(params).await
    }

    /// Requests the root folders from the client.
    pub async fn roots(&self) -> Result<Vec<Root>> {
        self.unnamed().roots().await
    }

    /// Sets the name of the next server request, which identifies it to clients without a session. Clients without a
    /// session see and answer the input request under this name; a client that knows the name may send the response
    /// with the call itself. A name can be used once per call.
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
    pub fn named<'a>(&'a self, name: &'a str) -> NamedRequest<'a> {
        NamedRequest { cx: self, name: Some(name) }
    }

    fn unnamed(&self) -> NamedRequest<'_> {
        NamedRequest { cx: self, name: None }
    }

    /// Runs a step of the handler once per call and logs its result, so that a replay does not repeat it. If the
    /// handler is replayed from its start, because the response to one of its server requests reached another instance,
    /// the logged result is returned instead. A name can be used once per call.
    pub async fn step<T, Fut>(&self, name: &str, work: impl FnOnce() -> Fut) -> Result<T>
    where
        T: Serialize + DeserializeOwned,
        Fut: Future<Output = Result<T>>,
    {
        if let Some(logged) = self.mailbox().find_step(name)? {
            return Ok(serde_json::from_str(&logged)?);
        }
        let result = work().await?;
        self.mailbox().record_step(name, serde_json::to_string(&result)?);
        Ok(result)
    }

    /// Returns whether the client supports this server request and can be reached now.
    pub fn can_request(&self, request: &ServerRequest) -> bool {
        request.missing_capability(self.capabilities(), self.revision()).is_none()
            && request.unsupported_field(self.revision()).is_none()
            && self.check_reachable().is_ok()
    }

    /// Sends a request of another server to the client, under the name that it has there, if it has one and the name was
    /// not used in this call.
    pub async fn forward_server_request(
        &self,
        request: ServerRequest,
        name: Option<&str>,
    ) -> Result<ClientResult> {
        let name = name.filter(|name| !self.mailbox().has_name(name));
        self.send_named_request(name, request).await
    }

    /// Sends a server request of any kind to the client.
    pub async fn send_server_request(&self, request: ServerRequest) -> Result<ClientResult> {
        self.send_named_request(None, request).await
    }

    async fn send_named_request(
        &self,
        name: Option<&str>,
        mut question: ServerRequest,
    ) -> Result<ClientResult> {
        question.add_missing_id(self.revision(), crate::server::random_id);
        if let Some(required) = question.missing_capability(self.capabilities(), self.revision()) {
            return Err(self.missing_capability(&question, required));
        }
        if let Some(field) = question.unsupported_field(self.revision()) {
            return Err(Error::tool(format!(
                "cannot send the request to this client: the field `{field}` is a multiple choice, which its revision does not support"
            )));
        }
        self.check_reachable()?;
        let _waiting = self.mailbox().start_wait();
        match self.revision().era() {
            Era::Session => self.send_rpc(question).await,
            Era::Stateless => PendingResponse::new(self, question, name).await,
        }
    }

    fn missing_capability(&self, request: &ServerRequest, required: Value) -> Error {
        match self.revision().era() {
            Era::Stateless => Error::missing_capability(required),
            Era::Session => Error::tool(format!(
                "cannot send {} to this client: it lacks the capability {required}",
                request.method().name()
            )),
        }
    }

    /// Checks that a request of the server can reach this client and its response can come back.
    fn check_reachable(&self) -> Result<()> {
        match self.revision().era() {
            Era::Session if self.connection().is_none_or(|connection| connection.is_one_shot()) => {
                Err(Error::tool(
                    "cannot send a request to this client: it has no session, and only the response reaches it",
                ))
            }
            Era::Stateless if !self.may_request_input() => Err(Error::tool(
                "cannot request input here: only tools, prompts and resources can do so without a session",
            )),
            Era::Stateless if !cfg!(feature = "rounds") => Err(Error::tool(
                "cannot request input from this client: build the server with the feature `rounds` of linchpin",
            )),
            _ => Ok(()),
        }
    }

    /// Sends a server request as a JSON-RPC request and waits for the client's response.
    async fn send_rpc(&self, question: ServerRequest) -> Result<ClientResult> {
        let finished_error =
            || Error::tool("cannot send a request to the client: the call has already ended");
        let connection =
            self.connection().filter(|_| !self.cancellation().has_ended()).ok_or_else(finished_error)?;
        let method = question.method();
        if connection.is_full() {
            return Err(Error::tool(
                "cannot send a request to the client: it does not read earlier messages",
            ));
        }
        let revision = self.revision();
        let timeout: Duration = self.service().settings().input_timeout;
        let task = self.task_id();
        let call = connection.peer().request(method.name(), Duration::MAX, |_, out| {
            write_server_request(&question, task, revision, out);
        });
        let failed = |error: CallError| {
            Error::tool(format!("the client did not respond to {}: {error}", method.name()))
        };
        let answer = tokio::time::timeout(timeout, call.map_err(failed)?).await;
        let text = answer.unwrap_or(Err(CallError::TimedOut(timeout))).map_err(failed)?;
        question.decode_result(&text).map_err(|InvalidValue { path, reason }| {
            Error::tool(format!(
                "the client's response to {} is malformed at \"{path}\": {reason}",
                method.name()
            ))
        })
    }
}

/// Sender of server requests under a fixed name; see [`Context::named`].
#[derive(Clone, Copy)]
#[must_use = "no request is sent until a method is called and awaited"]
pub struct NamedRequest<'a> {
    cx: &'a Context,
    name: Option<&'a str>,
}

impl NamedRequest<'_> {
    /// Elicits a value of a type with `#[args]` from the user, in a form.
    ///
    /// # Errors
    ///
    /// Fails if the client lacks the capability, which the error names, or if the user declines or cancels.
    pub async fn elicit<T: Args>(self, message: impl Into<String>) -> Result<T> {
        let result = self.elicit_with(form_params::<T>(message.into())?).await?;
        match result.action {
            ElicitAction::Accept => decode_content(result),
            ElicitAction::Decline => Err(Error::tool("the user declined the elicitation")),
            ElicitAction::Cancel => Err(Error::tool("the user cancelled the elicitation")),
        }
    }

    /// Like [`Self::elicit`], but returns `default` if the client cannot elicit input or the user declines or cancels.
    pub async fn try_elicit<T: Args>(self, message: impl Into<String>, default: T) -> Result<T> {
        let params = form_params::<T>(message.into())?;
        if !self.cx.can_request(&ServerRequest::Elicit(Box::new(params.clone()))) {
            return Ok(default);
        }
        let result = self.elicit_with(params).await?;
        if result.action == ElicitAction::Accept { decode_content(result) } else { Ok(default) }
    }

    /// Sends the user to a web page, for data that must not pass through the client: a secret, a payment, a consent.
    /// Returns when the user agrees to open the page. Call [`UrlElicitation::complete`] once the user has finished
    /// there.
    pub async fn elicit_url(
        self,
        message: impl Into<String>,
        url: impl Into<String>,
    ) -> Result<UrlElicitation> {
        let url = url.into();
        if !is_safe_url(&url) {
            return Err(Error::setup(format!("the URL {url} is not safe for an elicitation: use https")));
        }
        let id = crate::server::random_id();
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
            ElicitAction::Cancel => Err(Error::tool("the user cancelled the elicitation")),
        }
    }

    /// Elicits input from the user with full control over the parameters and the result.
    pub async fn elicit_with(self, params: ElicitParams) -> Result<ElicitResult> {
        match self.cx.send_named_request(self.name, ServerRequest::Elicit(Box::new(params))).await? {
            ClientResult::Elicit(result) => Ok(result),
            _ => Err(kind_mismatch()),
        }
    }

    /// Sends a server request of any kind to the client.
    pub async fn send_server_request(self, request: ServerRequest) -> Result<ClientResult> {
        self.cx.send_named_request(self.name, request).await
    }

    /// Samples the client's model with a text or a conversation.
    pub async fn sample(self, params: impl Into<CreateMessageParams>) -> Result<CreateMessageResult> {
        match self.cx.send_named_request(self.name, ServerRequest::Sample(Box::new(params.into()))).await? {
            ClientResult::Sample(result) => Ok(*result),
            _ => Err(kind_mismatch()),
        }
    }

    /// Requests the root folders from the client.
    pub async fn roots(self) -> Result<Vec<Root>> {
        match self.cx.send_named_request(self.name, ServerRequest::Roots).await? {
            ClientResult::Roots(result) => Ok(result.roots),
            _ => Err(kind_mismatch()),
        }
    }
}

/// Appends the parameters of a server request, with a reference to its task if it has one.
fn write_server_request(request: &ServerRequest, task: Option<&str>, revision: Revision, out: &mut Vec<u8>) {
    let Some(task) = task else { return request.encode(&mut Encoder { out, revision }) };
    with_related_task(task, to_value(request, revision)).encode(&mut Encoder { out, revision });
}

fn form_params<T: Args>(message: String) -> Result<ElicitParams> {
    Ok(ElicitParams {
        mode: Some(ElicitMode::Form),
        message,
        requested_schema: Some(elicitation_form::form_of::<T>()?),
        url: None,
        elicitation_id: None,
        task: None,
        meta: None,
    })
}

/// Decodes the content of an accepted elicitation.
fn decode_content<T: Args>(result: ElicitResult) -> Result<T> {
    let content = Value::Object(result.content.unwrap_or_default());
    let check = Validator::for_typed(&derived_schema::input_schema::<T>()).map_err(Error::setup)?;
    if let Some(check) = check {
        check
            .check(&content)
            .map_err(|fault| Error::tool(format!("the elicited content is invalid: {fault}")))?;
    }
    decode(&content.to_string()).map_err(|InvalidValue { path, reason }| {
        let location = if path.is_empty() { String::new() } else { format!(" at {path}") };
        Error::tool(format!("the elicited content is invalid{location}: {reason}"))
    })
}

fn kind_mismatch() -> Error {
    Error::setup("the response of the client belongs to another kind of server request")
}

/// Returns whether the URL of a page uses `https` or leads to this machine.
fn is_safe_url(url: &str) -> bool {
    let local = ["http://localhost", "http://127.0.0.1", "http://[::1]"];
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let is_host_end = |rest: &str| {
        let end = rest.split(['/', '?', '#']).next().unwrap_or_default();
        end.is_empty() || end.strip_prefix(':').is_some_and(is_port)
    };
    url.starts_with("https://") || local.iter().any(|host| url.strip_prefix(host).is_some_and(is_host_end))
}

/// Returns whether the result of a method may be `input_required`.
pub(crate) fn supports_input_requests(method: &str) -> bool {
    Method::find(method).is_some_and(Method::supports_input_requests)
}

#[cfg(test)]
mod tests {
    use super::is_safe_url;

    #[test]
    fn users_are_sent_only_to_safe_pages() {
        for url in ["https://example.com/pay", "http://localhost", "http://127.0.0.1:80/a?b", "http://[::1]/"]
        {
            assert!(is_safe_url(url), "{url}");
        }
        let unsafe_pages = [
            "http://example.com",
            "http://localhost.example.com",
            "http://localhost:1@example.com",
            "file:///etc",
            "",
        ];
        for url in unsafe_pages {
            assert!(!is_safe_url(url), "{url}");
        }
    }
}
