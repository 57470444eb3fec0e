//! Sockets of the test authority: one accept loop for its servers, on its own thread.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, LOCATION};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::{Body as HttpBody, Frame};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::form;
use super::observed::{AuthorityHost, RecordedRequest};
use super::shared::AuthorityShared;
use crate::server::{Body as McpBody, bind};
use crate::{Error, Result};

/// Maximum size of a request body that the test authority reads.
const MAX_BODY: usize = 1 << 20;

/// Body of a response of the test authority.
pub(super) enum ReplyBody {
    Bytes(Bytes),
    Mcp(McpBody),
    /// Body that never ends.
    Endless,
}

pub(super) type AuthorityReply = Response<ReplyBody>;

pub(super) fn reply(status: u16, kind: &'static str, body: impl Into<Bytes>) -> AuthorityReply {
    let mut reply = Response::new(ReplyBody::Bytes(body.into()));
    *reply.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    reply.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply
}

pub(super) fn json(status: u16, value: &Value) -> AuthorityReply {
    reply(status, "application/json", value.to_string())
}

pub(super) fn html(status: u16) -> AuthorityReply {
    reply(
        status,
        "text/html",
        "<!doctype html><title>Oops</title><script>alert(1)</script><h1>\u{1b}[31mOops</h1>",
    )
}

pub(super) fn not_found() -> AuthorityReply {
    reply(404, "text/plain", "not found")
}

pub(super) fn redirect(status: u16, url: &str) -> AuthorityReply {
    let mut reply = reply(status, "text/plain", "");
    if let Ok(url) = HeaderValue::try_from(url) {
        reply.headers_mut().insert(LOCATION, url);
    }
    reply
}

pub(super) fn endless_reply() -> AuthorityReply {
    let mut reply = json(200, &Value::Null);
    *reply.body_mut() = ReplyBody::Endless;
    reply
}

impl HttpBody for ReplyBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            ReplyBody::Bytes(bytes) => {
                let bytes = std::mem::take(bytes);
                Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
            }
            ReplyBody::Mcp(body) => Pin::new(body).poll_frame(cx),
            ReplyBody::Endless => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b' '; 16 << 10]))))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            ReplyBody::Bytes(bytes) => bytes.is_empty(),
            ReplyBody::Mcp(body) => body.is_end_stream(),
            ReplyBody::Endless => false,
        }
    }
}

/// Addresses of the test servers: the MCP server, the authorization server, and the canary, which clients must never
/// connect to.
pub(super) type Addresses = [SocketAddr; 3];

/// Starts the simulated HTTP servers on their own thread. They stop when the returned sender is dropped.
pub(super) async fn start(
    make: impl FnOnce(Addresses) -> Result<AuthorityShared> + Send + 'static,
) -> Result<(Arc<AuthorityShared>, oneshot::Sender<()>)> {
    let (end, shutdown) = oneshot::channel();
    let (started, is_started) = oneshot::channel();
    let work = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("failed to create a runtime").block_on(serve(make, started, shutdown));
    };
    std::thread::Builder::new().name("linchpin-authority".into()).spawn(work)?;
    let shared = is_started.await.map_err(|_| Error::setup("the authority failed to start"))??;
    Ok((shared, end))
}

async fn serve(
    make: impl FnOnce(Addresses) -> Result<AuthorityShared>,
    started: oneshot::Sender<Result<Arc<AuthorityShared>>>,
    mut shutdown: oneshot::Receiver<()>,
) {
    let open = async {
        let [resource, authority, canary] =
            [bind("127.0.0.1:0").await?, bind("127.0.0.1:0").await?, bind("127.0.0.1:0").await?];
        let addresses = [resource.local_addr()?, authority.local_addr()?, canary.local_addr()?];
        Result::Ok((resource, authority, canary, Arc::new(make(addresses)?)))
    };
    let (resource, authority, canary, shared) = match open.await {
        Ok(open) => open,
        Err(error) => return drop(started.send(Err(error))),
    };
    let _ = started.send(Ok(shared.clone())); // if the receiver is gone, `ended` fires, too
    let mut connections = JoinSet::new();
    loop {
        let (accepted, host) = tokio::select! {
            _ = &mut shutdown => return,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            accepted = resource.accept() => (accepted, AuthorityHost::Resource),
            accepted = authority.accept() => (accepted, AuthorityHost::Authority),
            accepted = canary.accept() => {
                shared.lock().observed.canary_connections += 1;
                drop(accepted); // close only after counting
                continue;
            }
        };
        let Ok((stream, _)) = accepted else { continue };
        let _ = stream.set_nodelay(true); // only an optimization
        let shared = shared.clone();
        connections.spawn(async move {
            let service = service_fn(|request| handle(&shared, host, request));
            // Some tests drop the connection on purpose.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn handle(
    shared: &Arc<AuthorityShared>,
    host: AuthorityHost,
    request: Request<Incoming>,
) -> std::result::Result<AuthorityReply, Infallible> {
    let (parts, body) = request.into_parts();
    let Some(body) = read(body).await else {
        return Ok(reply(413, "text/plain", "the request is too large"));
    };
    let request = Arc::new(RecordedRequest {
        host,
        method: parts.method.clone(),
        path: parts.uri.path().to_owned(),
        query: form::decode(parts.uri.query().unwrap_or_default()),
        headers: parts.headers.clone(),
        body,
    });
    shared.lock().observed.requests.push(request.clone());
    shared.changed.notify_waiters();
    let Some(reply) = super::endpoints::route(shared, &request, parts).await else {
        shared.lock().observed.unanswered += 1;
        shared.changed.notify_waiters();
        return std::future::pending().await;
    };
    Ok(reply)
}

async fn read(mut body: Incoming) -> Option<Bytes> {
    let mut collected = Vec::new();
    while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        collected.extend_from_slice(frame.ok()?.data_ref().map_or(&[][..], |data| data));
        if collected.len() > MAX_BODY {
            return None;
        }
    }
    Some(collected.into())
}
