//! HTTP client without sockets: requests are passed to the endpoint, and responses are read frame by frame and
//! validated against the official schemas.
#![cfg(feature = "http-server")]

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body::{Body as _, Frame, SizeHint};
use linchpin::Revision;
use linchpin::server::{Body, HttpEndpoint, HttpService};
use serde_json::{Value, json};
use spec_check::Conversation;

use super::{STATELESS, fault, initialize, stateless_with};

pub(crate) const BOTH: &str = "application/json, text/event-stream";
/// Timeout for events. With a paused clock only a failing test reaches it, and it takes no real time.
const TEST_TIMEOUT: Duration = Duration::from_mins(10);

pub(crate) fn serve(http: HttpEndpoint) -> HttpService {
    http.into_service().unwrap()
}

/// Creates a request as clients send it, without a revision.
pub(crate) fn request(method: Method, path: &str) -> http::request::Builder {
    let request = Request::builder().method(&method).uri(path).header(HOST, "localhost:8080");
    match method {
        Method::POST => request.header(ACCEPT, BOTH).header(CONTENT_TYPE, "application/json"),
        Method::GET => request.header(ACCEPT, "text/event-stream"),
        _ => request,
    }
}

/// Creates a POST of a message, with additional or replaced headers; an empty value removes one.
pub(crate) fn post(message: impl ToString, headers: &[(&str, &str)]) -> Request<String> {
    with(request(Method::POST, "/mcp").body(message.to_string()).unwrap(), headers)
}

pub(crate) fn with<B>(mut request: Request<B>, headers: &[(&str, &str)]) -> Request<B> {
    for (name, _) in headers {
        request.headers_mut().remove(*name);
    }
    for (name, value) in headers.iter().filter(|(_, value)| !value.is_empty()) {
        let name: http::HeaderName = name.parse().unwrap();
        request.headers_mut().append(name, value.parse().unwrap());
    }
    request
}

/// Returns the headers that mirror the message (stateless era).
pub(crate) fn mirrored(message: &Value) -> Vec<(&'static str, String)> {
    let mut headers = vec![("mcp-protocol-version", STATELESS.as_str().to_owned())];
    let method = message["method"].as_str().unwrap_or_default();
    headers.push(("mcp-method", method.to_owned()));
    let member = match method {
        "tools/call" | "prompts/get" => "name",
        "resources/read" => "uri",
        "tasks/get" | "tasks/update" | "tasks/cancel" => "taskId",
        _ => return headers,
    };
    headers.extend(message["params"][member].as_str().map(|name| ("mcp-name", name.to_owned())));
    headers
}

/// Creates a stateless request and its headers.
pub(crate) fn modern(id: i64, method: &str, params: Value) -> (Value, Vec<(&'static str, String)>) {
    let params = stateless_with(params, &json!({}));
    let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
    let headers = mirrored(&message);
    (message, headers)
}

pub(crate) fn borrowed<'a>(headers: &'a [(&'static str, String)]) -> Vec<(&'a str, &'a str)> {
    headers.iter().map(|(name, value)| (*name, value.as_str())).collect()
}

/// A body in pieces; `None` is a pause without end.
pub(crate) struct ChunkedBody {
    pub(crate) pieces: VecDeque<Option<Bytes>>,
    /// The announced length.
    pub(crate) length: Option<u64>,
}

impl http_body::Body for ChunkedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.pieces.front().is_some_and(Option::is_none) {
            return Poll::Pending;
        }
        Poll::Ready(self.pieces.pop_front().flatten().map(|piece| Ok(Frame::data(piece))))
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// A response.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Body,
    conversation: Arc<Mutex<Conversation>>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn is_stream(&self) -> bool {
        self.header("content-type") == Some("text/event-stream")
    }

    /// Returns the whole body as text.
    pub(crate) async fn text(mut self) -> String {
        let mut all = Vec::new();
        while let Some(bytes) = frame(&mut self.body).await {
            all.extend_from_slice(&bytes);
        }
        String::from_utf8(all).unwrap()
    }

    /// Returns its only message.
    pub(crate) async fn message(self) -> Value {
        assert_eq!(self.header("content-type"), Some("application/json"), "{}", self.status);
        let (conversation, status) = (self.conversation.clone(), self.status);
        let text = self.text().await;
        heard(&conversation, &text, status)
    }

    /// Returns its messages as a stream.
    pub(crate) fn events(self) -> Events {
        assert!(self.is_stream(), "{} {:?}", self.status, self.headers);
        assert_eq!(self.status, StatusCode::OK);
        assert_eq!(self.header("cache-control"), Some("no-store"));
        assert_eq!(self.header("x-accel-buffering"), Some("no"));
        Events { body: self.body, text: String::new(), last: None, conversation: self.conversation }
    }

    /// Returns status and error code.
    pub(crate) async fn refusal(self) -> (u16, i64) {
        let status = self.status.as_u16();
        (status, fault(&self.message().await).0)
    }
}

async fn frame(body: &mut Body) -> Option<Bytes> {
    let next = std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx));
    let frame = tokio::time::timeout(TEST_TIMEOUT, next).await.expect("data, or the end of the stream");
    frame.map(|frame| frame.unwrap().into_data().unwrap())
}

/// Records and validates a message. A transport error has no id, which old schemas do not allow.
fn heard(conversation: &Mutex<Conversation>, text: &str, status: StatusCode) -> Value {
    let message: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text:?}"));
    let is_refusal = status.as_u16() >= 400 && message.get("error").is_some() && message.get("id").is_none();
    if is_refusal {
        assert_eq!(message["jsonrpc"], "2.0", "{text}");
        fault(&message);
    } else {
        let checked = conversation.lock().unwrap().check_received(text);
        checked.unwrap_or_else(|fault| panic!("invalid in its revision: {fault}"));
    }
    message
}

/// An event of a stream.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Event {
    pub(crate) id: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) data: Option<String>,
    pub(crate) retry: Option<u64>,
    pub(crate) is_comment: bool,
}

/// An event stream.
pub(crate) struct Events {
    body: Body,
    text: String,
    /// Id of the last event with an id.
    pub(crate) last: Option<String>,
    conversation: Arc<Mutex<Conversation>>,
}

impl Events {
    /// Reads the next event; `None` at the end.
    pub(crate) async fn event(&mut self) -> Option<Event> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (parse(event), rest.to_owned());
                self.text = rest;
                self.last = event.id.clone().or(self.last.take());
                return Some(event);
            }
            let Some(bytes) = frame(&mut self.body).await else {
                assert_eq!(self.text, "", "the stream ends with an event");
                return None;
            };
            self.text.push_str(std::str::from_utf8(&bytes).unwrap());
        }
    }

    /// Reads the next message; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            let event = self.event().await?;
            if let Some(data) = event.data.filter(|data| !data.is_empty()) {
                return Some(heard(&self.conversation, &data, StatusCode::OK));
            }
        }
    }

    /// Reads the next message, which must exist.
    pub(crate) async fn message(&mut self) -> Value {
        self.next().await.expect("one more message")
    }

    /// Reads all messages to the end.
    pub(crate) async fn rest(mut self) -> Vec<Value> {
        let mut all = Vec::new();
        while let Some(message) = self.next().await {
            all.push(message);
        }
        all
    }

    /// Returns whether nothing arrives within this time of a paused clock.
    pub(crate) async fn is_quiet(&mut self, time: Duration) -> bool {
        tokio::time::advance(Duration::ZERO).await;
        let next = std::future::poll_fn(|cx| Pin::new(&mut self.body).poll_frame(cx));
        let found = tokio::time::timeout(time, next).await;
        assert!(found.is_err() || !self.text.is_empty(), "{found:?}");
        self.text.is_empty()
    }
}

fn parse(text: &str) -> Event {
    let mut event = Event::default();
    for line in text.split('\n') {
        let (field, value) = line.split_once(':').unwrap_or_else(|| panic!("no field: {text:?}"));
        let value = value.strip_prefix(' ').unwrap_or(value).to_owned();
        match field {
            "" => event.is_comment = true,
            "id" => event.id = Some(value),
            "event" => event.name = Some(value),
            "data" => assert!(event.data.replace(value).is_none(), "one line of data: {text:?}"),
            "retry" => event.retry = Some(value.parse().unwrap()),
            _ => panic!("an unknown field: {text:?}"),
        }
    }
    event
}

/// A client, with a session if its revision has sessions.
#[derive(Clone)]
pub(crate) struct TestClient {
    pub(crate) web: HttpService,
    pub(crate) revision: Revision,
    pub(crate) session: Option<String>,
    /// Headers of every request, such as credentials.
    pub(crate) always: Vec<(&'static str, String)>,
    capabilities: Value,
    conversation: Arc<Mutex<Conversation>>,
    next: Arc<Mutex<i64>>,
}

pub(crate) fn everything() -> Value {
    json!({"elicitation": {}, "sampling": {}, "roots": {}})
}

impl TestClient {
    /// Creates a client that has sent nothing.
    pub(crate) fn new(web: &HttpService, revision: Revision) -> Self {
        TestClient {
            web: web.clone(),
            revision,
            session: None,
            always: Vec::new(),
            capabilities: everything(),
            conversation: Arc::default(),
            next: Arc::default(),
        }
    }

    /// Creates a client with an open session, if the revision has sessions.
    pub(crate) async fn open(web: &HttpService, revision: Revision) -> Self {
        let mut guest = TestClient::new(web, revision);
        guest.initialize().await;
        guest
    }

    /// Like [`Self::open`], with an identity.
    pub(crate) async fn open_as(web: &HttpService, revision: Revision, who: &str) -> Self {
        let mut guest = TestClient::new(web, revision);
        guest.always.push(("x-user", who.to_owned()));
        guest.initialize().await;
        guest
    }

    pub(crate) async fn initialize(&mut self) {
        if self.revision == STATELESS {
            return;
        }
        let answer = self.ask("initialize", initialize(self.revision.as_str(), &self.capabilities)).await;
        assert_eq!(answer.status, StatusCode::OK);
        self.session = answer.header("mcp-session-id").map(str::to_owned);
        let opened = answer.message().await;
        assert_eq!(opened["result"]["protocolVersion"], self.revision.as_str());
        let noted = self.notify("notifications/initialized", Value::Null).await;
        assert_eq!(noted.status, StatusCode::ACCEPTED);
    }

    /// Returns the headers for a message of this client.
    pub(crate) fn headers(&self, message: &Value) -> Vec<(&'static str, String)> {
        let mut headers = self.always.clone();
        if self.revision == STATELESS {
            headers.extend(mirrored(message));
        } else if let Some(session) = &self.session {
            headers.push(("mcp-session-id", session.clone()));
            if self.revision >= Revision::V2025_06_18 {
                headers.push(("mcp-protocol-version", self.revision.as_str().to_owned()));
            }
        }
        headers
    }

    pub(crate) fn message(&self, method: &str, params: Value) -> Value {
        let mut next = self.next.lock().unwrap();
        *next += 1;
        let mut message = json!({"jsonrpc": "2.0", "id": *next, "method": method});
        let params =
            if self.revision == STATELESS { stateless_with(params, &self.capabilities) } else { params };
        if !params.is_null() {
            message["params"] = params;
        }
        message
    }

    /// Sends a message unchanged.
    pub(crate) async fn send(&self, message: &Value) -> Answer {
        self.conversation.lock().unwrap().record_sent(message.to_string());
        let headers = self.headers(message);
        self.handle(post(message, &borrowed(&headers))).await
    }

    pub(crate) async fn handle(&self, request: Request<String>) -> Answer {
        let (head, body) = self.web.handle(request).await.into_parts();
        Answer { status: head.status, headers: head.headers, body, conversation: self.conversation.clone() }
    }

    /// Sends a request.
    pub(crate) async fn ask(&self, method: &str, params: Value) -> Answer {
        self.send(&self.message(method, params)).await
    }

    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Answer {
        self.ask("tools/call", json!({"name": tool, "arguments": arguments})).await
    }

    /// Like [`Self::call`], with a progress token.
    pub(crate) async fn watch(&self, tool: &str, arguments: Value) -> Answer {
        let meta = json!({"progressToken": "t"});
        self.ask("tools/call", json!({"name": tool, "arguments": arguments, "_meta": meta})).await
    }

    /// Calls a tool and returns the text of its immediate response.
    pub(crate) async fn call_text(&self, tool: &str, arguments: Value) -> String {
        let answer = self.call(tool, arguments).await;
        assert_eq!(answer.status, StatusCode::OK);
        super::text(&answer.message().await["result"])
    }

    pub(crate) async fn notify(&self, method: &str, params: Value) -> Answer {
        let mut message = json!({"jsonrpc": "2.0", "method": method});
        if !params.is_null() {
            message["params"] = params;
        }
        self.send(&message).await
    }

    /// Responds to a server request.
    pub(crate) async fn reply(&self, question: &Value, result: Value) {
        let answer = self.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": result})).await;
        assert_eq!(answer.status, StatusCode::ACCEPTED);
        assert_eq!(answer.text().await, "");
    }

    /// Opens the standalone stream, or resumes any stream after an event.
    pub(crate) async fn get(&self, last: Option<&str>) -> Answer {
        let mut headers = self.headers(&Value::Null);
        headers.retain(|(name, _)| *name != "mcp-method");
        headers.extend(last.map(|last| ("last-event-id", last.to_owned())));
        let request = request(Method::GET, "/mcp").body(String::new()).unwrap();
        self.handle(with(request, &borrowed(&headers))).await
    }

    pub(crate) async fn delete(&self) -> Answer {
        let mut headers = self.headers(&Value::Null);
        headers.retain(|(name, _)| *name != "mcp-method");
        let request = request(Method::DELETE, "/mcp").body(String::new()).unwrap();
        self.handle(with(request, &borrowed(&headers))).await
    }

    /// Records a sent message, whose response will be validated.
    pub(crate) fn record_sent(&self, message: &Value) {
        self.conversation.lock().unwrap().record_sent(message.to_string());
    }
}

/// Returns the text of a result in a response.
pub(crate) fn text_of(answer: &Value) -> String {
    super::text(&answer["result"])
}

/// Returns header values by name, for comparison.
pub(crate) fn header_map(headers: &HeaderMap) -> HashMap<String, String> {
    headers.iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect()
}

/// A background task that is aborted at the end of the test.
pub(crate) struct BackgroundTask<T>(tokio::task::JoinSet<T>);

impl<T: Send + 'static> BackgroundTask<T> {
    pub(crate) fn start(work: impl Future<Output = T> + Send + 'static) -> Self {
        let mut set = tokio::task::JoinSet::new();
        set.spawn(work);
        BackgroundTask(set)
    }

    /// Waits for its output.
    pub(crate) async fn end(mut self) -> T {
        self.0.join_next().await.unwrap().unwrap()
    }
}
