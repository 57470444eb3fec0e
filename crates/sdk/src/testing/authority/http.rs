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
use super::observed::{Place, SeenRequest};
use super::shared::Shared;
use crate::server::{Body as McpBody, bind};
use crate::{Error, Result};

/// Maximum size of a request body.
const MAX_BODY: usize = 1 << 20;

/// Body of a response.
pub(super) enum Content {
    Whole(Bytes),
    Mcp(McpBody),
    /// A body without end.
    Endless,
}

pub(super) type Reply = Response<Content>;

pub(super) fn reply(status: u16, kind: &'static str, body: impl Into<Bytes>) -> Reply {
    let mut reply = Response::new(Content::Whole(body.into()));
    *reply.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    reply.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply
}

pub(super) fn json(status: u16, value: &Value) -> Reply {
    reply(status, "application/json", value.to_string())
}

pub(super) fn html(status: u16) -> Reply {
    reply(
        status,
        "text/html",
        "<!doctype html><title>Oops</title><script>alert(1)</script><h1>\u{1b}[31mOops</h1>",
    )
}

pub(super) fn nothing_here() -> Reply {
    reply(404, "text/plain", "not found")
}

pub(super) fn redirect(status: u16, url: &str) -> Reply {
    let mut reply = reply(status, "text/plain", "");
    if let Ok(url) = HeaderValue::try_from(url) {
        reply.headers_mut().insert(LOCATION, url);
    }
    reply
}

pub(super) fn endless() -> Reply {
    let mut reply = json(200, &Value::Null);
    *reply.body_mut() = Content::Endless;
    reply
}

impl HttpBody for Content {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Content::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
            }
            Content::Mcp(body) => Pin::new(body).poll_frame(cx),
            Content::Endless => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b' '; 16 << 10]))))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Content::Whole(bytes) => bytes.is_empty(),
            Content::Mcp(body) => body.is_end_stream(),
            Content::Endless => false,
        }
    }
}

/// Addresses of the servers: endpoint, authority, and the canary that clients must never connect to.
pub(super) type Addresses = [SocketAddr; 3];

/// Starts the servers on their own thread. They stop when the returned sender is dropped.
pub(super) async fn start(
    make: impl FnOnce(Addresses) -> Result<Shared> + Send + 'static,
) -> Result<(Arc<Shared>, oneshot::Sender<()>)> {
    let (end, ended) = oneshot::channel();
    let (tell, told) = oneshot::channel();
    let work = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("failed to create a runtime").block_on(serve(make, tell, ended));
    };
    std::thread::Builder::new().name("linchpin-authority".into()).spawn(work)?;
    let shared = told.await.map_err(|_| Error::setup("the authority failed to start"))??;
    Ok((shared, end))
}

async fn serve(
    make: impl FnOnce(Addresses) -> Result<Shared>,
    tell: oneshot::Sender<Result<Arc<Shared>>>,
    mut ended: oneshot::Receiver<()>,
) {
    let open = async {
        let [resource, authority, canary] =
            [bind("127.0.0.1:0").await?, bind("127.0.0.1:0").await?, bind("127.0.0.1:0").await?];
        let addresses = [resource.local_addr()?, authority.local_addr()?, canary.local_addr()?];
        Result::Ok((resource, authority, canary, Arc::new(make(addresses)?)))
    };
    let (resource, authority, canary, shared) = match open.await {
        Ok(open) => open,
        Err(error) => return drop(tell.send(Err(error))),
    };
    let _ = tell.send(Ok(shared.clone())); // if the receiver is gone, `ended` fires, too
    let mut connections = JoinSet::new();
    loop {
        let (accepted, place) = tokio::select! {
            _ = &mut ended => return,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            accepted = resource.accept() => (accepted, Place::Resource),
            accepted = authority.accept() => (accepted, Place::Authority),
            accepted = canary.accept() => {
                shared.lock().seen.canary += 1;
                drop(accepted); // close only after counting
                continue;
            }
        };
        let Ok((stream, _)) = accepted else { continue };
        let _ = stream.set_nodelay(true); // only an optimization
        let shared = shared.clone();
        connections.spawn(async move {
            let service = service_fn(|request| handle(&shared, place, request));
            // Some tests drop the connection on purpose.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn handle(
    shared: &Arc<Shared>,
    place: Place,
    request: Request<Incoming>,
) -> std::result::Result<Reply, Infallible> {
    let (parts, body) = request.into_parts();
    let Some(body) = read(body).await else {
        return Ok(reply(413, "text/plain", "the request is too large"));
    };
    let request = Arc::new(SeenRequest {
        place,
        method: parts.method.clone(),
        path: parts.uri.path().to_owned(),
        query: form::decode(parts.uri.query().unwrap_or_default()),
        headers: parts.headers.clone(),
        body,
    });
    shared.lock().seen.requests.push(request.clone());
    shared.news.notify_waiters();
    let Some(reply) = super::routes::answer(shared, &request, parts).await else {
        shared.lock().seen.unanswered += 1;
        shared.news.notify_waiters();
        return std::future::pending().await;
    };
    Ok(reply)
}

async fn read(mut body: Incoming) -> Option<Bytes> {
    let mut whole = Vec::new();
    while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        whole.extend_from_slice(frame.ok()?.data_ref().map_or(&[][..], |data| data));
        if whole.len() > MAX_BODY {
            return None;
        }
    }
    Some(whole.into())
}
