//! Scripted HTTP server on real sockets: it sees every byte that a client sends, and responds with any bytes, cut
//! anywhere.
#![allow(clippy::allow_attributes, dead_code, reason = "each test file uses a part of it")]

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use linchpin::client::RevisionCache;
use linchpin::transport::http::HttpTransport;
use linchpin::{Client, ClientBuilder, Content, Revision, ToolOutput};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

/// Timeout for things that happen at once. Only a failing test reaches it.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// A received request.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedRequest {
    pub(crate) verb: String,
    pub(crate) path: String,
    /// By name in lower case; repeated headers are joined by commas.
    pub(crate) headers: BTreeMap<String, String>,
    /// The body as JSON, or null.
    pub(crate) body: Value,
    /// Number of its connection, from 1.
    pub(crate) connection: usize,
}

impl ReceivedRequest {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    /// Returns the method of the message, or the HTTP method if there is none.
    pub(crate) fn method(&self) -> &str {
        self.body["method"].as_str().unwrap_or(if self.body.is_null() { &self.verb } else { "a response" })
    }

    pub(crate) fn is(&self, method: &str) -> bool {
        self.method() == method
    }

    /// Creates the response to this request.
    pub(crate) fn answer(&self, result: &Value) -> Value {
        json!({ "jsonrpc": "2.0", "id": self.body["id"], "result": result })
    }

    /// Creates the acknowledgement of this listen request, with the accepted notifications.
    pub(crate) fn acknowledgement(&self, notifications: &Value) -> Value {
        let meta = json!({ "io.modelcontextprotocol/subscriptionId": self.body["id"] });
        json!({
            "jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
            "params": { "_meta": meta, "notifications": notifications },
        })
    }

    pub(crate) fn error(&self, code: i64, message: &str) -> Value {
        json!({ "jsonrpc": "2.0", "id": self.body["id"], "error": { "code": code, "message": message } })
    }
}

#[derive(Debug, Clone)]
enum Step {
    Bytes(Vec<u8>),
    /// Waits until the test notifies.
    Wait(Arc<Notify>),
    /// Waits until the client closes the connection, and notifies the test.
    AwaitClose(Arc<Notify>),
    /// Sends messages of the test as events.
    Stream(MessageStream),
}

/// A stream on which the test sends messages.
#[derive(Debug, Clone, Default)]
pub(crate) struct MessageStream(Arc<Mutex<Option<mpsc::Sender<Option<Value>>>>>);

impl MessageStream {
    /// Sends a message to the listening client.
    pub(crate) fn send(&self, message: &Value) {
        self.0.lock().unwrap().as_ref().unwrap().try_send(Some(message.clone())).unwrap();
    }

    /// Closes the connection.
    pub(crate) fn cut(&self) {
        self.0.lock().unwrap().take().unwrap().try_send(None).unwrap();
    }

    fn listen(&self) -> mpsc::Receiver<Option<Value>> {
        let (say, said) = mpsc::channel(1_000);
        *self.0.lock().unwrap() = Some(say);
        said
    }
}

/// Reaction of the server to one request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reply {
    steps: Vec<Step>,
    /// Whether the connection is closed at the end.
    close: bool,
    /// Closes the connection after this many bytes.
    cut: Option<usize>,
}

impl Reply {
    /// Creates a reply with head and body.
    pub(crate) fn new(status: u16, headers: &[(&str, &str)], body: &[u8]) -> Self {
        let mut head = format!("HTTP/1.1 {status} Something\r\ncontent-length: {}\r\n", body.len());
        head += &lines(headers);
        let bytes = [head.as_bytes(), b"\r\n", body].concat();
        Reply { steps: vec![Step::Bytes(bytes)], ..Reply::default() }
    }

    pub(crate) fn status(status: u16) -> Self {
        Self::new(status, &[], b"")
    }

    pub(crate) fn json(body: &Value) -> Self {
        Self::json_with(200, &[], body)
    }

    pub(crate) fn json_with(status: u16, headers: &[(&str, &str)], body: &Value) -> Self {
        let headers = [headers, &[("content-type", "application/json")]].concat();
        Self::new(status, &headers, body.to_string().as_bytes())
    }

    /// Creates an event stream, to which events are added. It uses chunked encoding.
    pub(crate) fn events() -> Self {
        Self::events_with(&[])
    }

    pub(crate) fn events_with(headers: &[(&str, &str)]) -> Self {
        Self::chunked(&[headers, &[("content-type", "text/event-stream")]].concat())
    }

    pub(crate) fn chunked(headers: &[(&str, &str)]) -> Self {
        let mut head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n".to_owned();
        head += &lines(headers);
        Reply { steps: vec![Step::Bytes((head + "\r\n").into_bytes())], ..Reply::default() }
    }

    /// Replaces or adds a header.
    pub(crate) fn with_header(mut self, name: &str, value: &str) -> Self {
        if let Some(Step::Bytes(bytes)) = self.steps.first_mut() {
            let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
            let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
            let others: Vec<_> =
                head.split("\r\n").filter(|line| !line.starts_with(&format!("{name}:"))).collect();
            *bytes =
                [others.join("\r\n").as_bytes(), format!("\r\n{name}: {value}").as_bytes(), &bytes[end..]]
                    .concat();
        }
        self
    }

    /// Adds raw bytes.
    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.steps.push(Step::Bytes(bytes.to_vec()));
        self
    }

    /// Adds a chunk of a chunked body.
    pub(crate) fn chunk(self, data: &[u8]) -> Self {
        self.bytes(&[format!("{:x}\r\n", data.len()).as_bytes(), data, b"\r\n"].concat())
    }

    pub(crate) fn event(self, message: &Value) -> Self {
        self.chunk(format!("data: {message}\n\n").as_bytes())
    }

    pub(crate) fn event_with_id(self, id: &str, message: &Value) -> Self {
        self.chunk(format!("id: {id}\ndata: {message}\n\n").as_bytes())
    }

    /// Ends a chunked body.
    pub(crate) fn end(self) -> Self {
        self.bytes(b"0\r\n\r\n")
    }

    /// Closes the connection.
    pub(crate) fn close(mut self) -> Self {
        self.close = true;
        self
    }

    /// Sends this many bytes and closes the connection.
    pub(crate) fn cut_after(mut self, bytes: usize) -> Self {
        self.cut = Some(bytes);
        self
    }

    /// Returns the total number of bytes.
    pub(crate) fn len(&self) -> usize {
        let length = |step: &Step| if let Step::Bytes(bytes) = step { bytes.len() } else { 0 };
        self.steps.iter().map(length).sum()
    }

    /// Continues when the test notifies.
    pub(crate) fn wait(mut self, until: &Arc<Notify>) -> Self {
        self.steps.push(Step::Wait(until.clone()));
        self
    }

    /// Starts when the test notifies.
    pub(crate) fn after(mut self, until: &Arc<Notify>) -> Self {
        self.steps.insert(0, Step::Wait(until.clone()));
        self
    }

    /// Continues with messages of the test, as long as the connection exists.
    pub(crate) fn then_stream(mut self, stream: &MessageStream) -> Self {
        self.steps.push(Step::Stream(stream.clone()));
        self
    }

    /// Returns the body of a reply as JSON, if it has one.
    pub(crate) fn body_json(&self) -> Option<Value> {
        let Some(Step::Bytes(bytes)) = self.steps.first() else { return None };
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
        serde_json::from_slice(&bytes[end + 4..]).ok()
    }

    /// Stops here; the test is notified when the client closes the connection.
    pub(crate) fn until_closed(mut self, gone: &Arc<Notify>) -> Self {
        self.steps.push(Step::AwaitClose(gone.clone()));
        self
    }
}

/// Formats headers as lines.
fn lines(headers: &[(&str, &str)]) -> String {
    let lines: Vec<_> = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    lines.concat()
}

type Handler = dyn Fn(&ReceivedRequest) -> Reply + Send + Sync;

/// The server. It stops on drop.
pub(crate) struct HttpScript {
    pub(crate) address: std::net::SocketAddr,
    seen: Arc<Mutex<Vec<ReceivedRequest>>>,
    arrived: Arc<Notify>,
    connections: Arc<AtomicUsize>,
    /// When the responses to tool calls were cut, by tool.
    cuts: Arc<Mutex<HashMap<String, Instant>>>,
    accepting: JoinHandle<()>,
}

impl HttpScript {
    pub(crate) async fn start(handler: impl Fn(&ReceivedRequest) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, connections) =
            (Arc::<Mutex<Vec<ReceivedRequest>>>::default(), Arc::<AtomicUsize>::default());
        let (handler, arrived): (Arc<Handler>, _) = (Arc::new(handler), Arc::<Notify>::default());
        let (record, counter, told) = (seen.clone(), connections.clone(), arrived.clone());
        let cuts = Arc::<Mutex<HashMap<String, Instant>>>::default();
        let clock = cuts.clone();
        let accepting = spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                let number = counter.fetch_add(1, Ordering::SeqCst) + 1;
                let (handler, record, told) = (handler.clone(), record.clone(), told.clone());
                let clock = clock.clone();
                spawn(async move {
                    // Many tests disconnect the client on purpose.
                    if let Ok(Some(cut)) = serve(stream, number, &*handler, &record, &told).await {
                        clock.lock().unwrap().insert(cut, Instant::now());
                    }
                });
            }
        });
        HttpScript { address, seen, arrived, connections, cuts, accepting }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    pub(crate) fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the requests so far.
    pub(crate) fn received(&self) -> Vec<ReceivedRequest> {
        self.seen.lock().unwrap().clone()
    }

    /// Returns the methods of the requests so far.
    pub(crate) fn methods(&self) -> Vec<String> {
        self.received().iter().map(|seen| seen.method().to_owned()).collect()
    }

    /// Returns the requests of one method.
    pub(crate) fn of(&self, method: &str) -> Vec<ReceivedRequest> {
        self.received().into_iter().filter(|seen| seen.is(method)).collect()
    }

    /// Waits for this many requests of a method, and returns them.
    pub(crate) async fn wait_for(&self, method: &str, count: usize) -> Vec<ReceivedRequest> {
        let waiting = async {
            loop {
                let mut arrived = std::pin::pin!(self.arrived.notified());
                arrived.as_mut().enable();
                let of = self.of(method);
                if of.len() >= count {
                    return of;
                }
                arrived.await;
            }
        };
        let waited = tokio::time::timeout(TEST_TIMEOUT, waiting).await;
        waited.unwrap_or_else(|_| panic!("{method} did not come {count} times: {:?}", self.methods()))
    }

    /// Returns when the response to the call of a tool was cut.
    pub(crate) fn cut_at(&self, tool: &str) -> Option<Instant> {
        self.cuts.lock().unwrap().get(tool).copied()
    }

    /// Returns the number of connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Drop for HttpScript {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

#[expect(clippy::disallowed_methods, reason = "the runtime of a test ends with it")]
fn spawn(work: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    tokio::spawn(work)
}

/// Serves a connection. Returns the tool whose response was cut, if any.
async fn serve(
    mut stream: TcpStream,
    connection: usize,
    handler: &Handler,
    record: &Mutex<Vec<ReceivedRequest>>,
    told: &Notify,
) -> std::io::Result<Option<String>> {
    let mut buffer = Vec::new();
    while let Some(seen) = read_request(&mut stream, &mut buffer, connection).await? {
        let reply = handler(&seen);
        let tool = seen.body["params"]["name"].as_str().map(str::to_owned);
        record.lock().unwrap().push(seen);
        told.notify_waiters();
        let mut left = reply.cut.unwrap_or(usize::MAX);
        for step in &reply.steps {
            match step {
                Step::Bytes(bytes) => {
                    stream.write_all(&bytes[..bytes.len().min(left)]).await?;
                    left = left.saturating_sub(bytes.len());
                    if left == 0 {
                        stream.shutdown().await?;
                        return Ok(tool);
                    }
                }
                Step::Wait(until) => until.notified().await,
                Step::Stream(others) => {
                    let mut said = others.listen();
                    while let Some(Some(message)) = said.recv().await {
                        let event = format!("event: message\ndata: {message}\n\n");
                        let chunk = format!("{:x}\r\n{event}\r\n", event.len());
                        stream.write_all(chunk.as_bytes()).await?;
                    }
                    stream.shutdown().await?;
                    return Ok(None);
                }
                Step::AwaitClose(gone) => {
                    while stream.read(&mut [0; 1024]).await.is_ok_and(|count| count > 0) {}
                    gone.notify_one();
                    return Ok(None);
                }
            }
        }
        if reply.close || reply.cut.is_some() {
            stream.shutdown().await?;
            return Ok(tool);
        }
    }
    Ok(None)
}

async fn read_request(
    stream: &mut TcpStream,
    buffer: &mut Vec<u8>,
    connection: usize,
) -> std::io::Result<Option<ReceivedRequest>> {
    let head_end = loop {
        if let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    };
    let head = String::from_utf8(buffer[..head_end].to_vec()).unwrap();
    let mut lines = head.split("\r\n");
    let mut first = lines.next().unwrap().split(' ');
    let (verb, path) = (first.next().unwrap().to_owned(), first.next().unwrap().to_owned());
    let mut headers = BTreeMap::<String, String>::new();
    for line in lines {
        let (name, value) = line.split_once(':').unwrap();
        let (name, value) = (name.to_ascii_lowercase(), value.trim());
        headers.entry(name).and_modify(|all| *all = format!("{all},{value}")).or_insert(value.to_owned());
    }
    let length: usize = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let end = head_end + 4 + length;
    while buffer.len() < end {
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
    let body = buffer[head_end + 4..end].to_vec();
    buffer.drain(..end);
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    Ok(Some(ReceivedRequest { verb, path, headers, body, connection }))
}

/// Creates a client of the script with an empty revision cache.
pub(crate) fn client(script: &HttpScript) -> ClientBuilder<HttpTransport> {
    Client::http(script.url()).revision_cache(RevisionCache::new())
}

pub(crate) async fn connect(script: &HttpScript) -> Client {
    client(script).connect().await.unwrap()
}

/// Starts a plain server, except for what `special` handles.
pub(crate) async fn server(
    revision: Revision,
    special: impl Fn(&ReceivedRequest) -> Option<Reply> + Send + Sync + 'static,
) -> HttpScript {
    HttpScript::start(move |seen| special(seen).unwrap_or_else(|| plain_reply(revision, seen))).await
}

/// Returns the text of a tool result.
pub(crate) fn said(result: &ToolOutput) -> &str {
    match &result.content[..] {
        [Content::Text(text)] => &text.text,
        other => panic!("{other:?} is no text"),
    }
}

pub(crate) fn text(text: &str) -> Value {
    json!({ "resultType": "complete", "content": [{ "type": "text", "text": text }] })
}

/// Id of the session that [`plain_reply`] opens.
pub(crate) const SESSION: &str = "5e55-10n-1d";

/// Response of a plain server of a revision: it has tools and resources, and every tool returns its name.
pub(crate) fn plain_reply(revision: Revision, seen: &ReceivedRequest) -> Reply {
    let stateless = revision == Revision::LATEST;
    let capabilities =
        json!({ "tools": {}, "resources": { "subscribe": true }, "prompts": {}, "logging": {} });
    match seen.method() {
        "server/discover" if stateless => Reply::json(&seen.answer(&json!({
            "resultType": "complete", "supportedVersions": [revision.as_str()], "capabilities": capabilities,
            "ttlMs": 0, "cacheScope": "private",
        }))),
        "server/discover" => Reply::json_with(400, &[], &seen.error(-32000, "Bad Request: no session")),
        "initialize" if !stateless => {
            let result = json!({
                "protocolVersion": revision.as_str(), "capabilities": capabilities,
                "serverInfo": { "name": "script", "version": "1" },
            });
            Reply::json_with(200, &[("mcp-session-id", SESSION)], &seen.answer(&result))
        }
        "tools/list" => Reply::json(&seen.answer(&json!({
            "resultType": "complete", "tools": [{ "name": "echo", "inputSchema": { "type": "object" } }],
            "ttlMs": 0, "cacheScope": "private",
        }))),
        "tools/call" => Reply::json(&seen.answer(&text(seen.body["params"]["name"].as_str().unwrap()))),
        "resources/read" => {
            let uri = &seen.body["params"]["uri"];
            Reply::json(&seen.answer(&json!({
                "resultType": "complete", "contents": [{ "uri": uri, "text": "read" }],
                "ttlMs": 0, "cacheScope": "private",
            })))
        }
        "GET" => Reply::status(405),
        "DELETE" => Reply::status(200),
        _ if seen.body.get("id").is_none() || seen.body.get("method").is_none() => Reply::status(202),
        _ if stateless => Reply::json_with(404, &[], &seen.error(-32601, "Method not found")),
        _ => Reply::json(&seen.answer(&json!({}))),
    }
}
