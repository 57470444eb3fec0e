//! HTTP on hyper and axum, and the accept loop of all three HTTP stacks.

use std::{convert::Infallible, sync::Arc};

use axum::{Router, extract::DefaultBodyLimit, http::HeaderMap, routing::post};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{
    Method, Request, Response, StatusCode, body::Incoming, server::conn::http1, service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, TcpStream},
    signal::unix::{SignalKind, signal},
};

use crate::{
    http_raw,
    responder::{App, ResponseKind},
};

const SESSION: &str = "mcp-session-id";
const MAX_BODY_BYTES: usize = 16 << 20;

/// HTTP implementation.
#[derive(Clone, Copy)]
pub enum Stack {
    /// `httparse` only.
    Bare,
    Hyper,
    Axum,
}

/// Serves until SIGTERM, then returns: callgrind writes its file only on a regular exit.
pub async fn serve(app: Arc<App>, stack: Stack, port: u16) -> anyhow::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let mut terminate = signal(SignalKind::terminate())?;
    let serving = async {
        match stack {
            Stack::Axum => serve_axum(app, listener).await,
            Stack::Bare | Stack::Hyper => accept(app, stack, listener).await,
        }
    };
    tokio::select! { result = serving => result, _ = terminate.recv() => Ok(()) }
}

async fn accept(app: Arc<App>, stack: Stack, listener: TcpListener) -> anyhow::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let app = app.clone();
        if matches!(stack, Stack::Bare) {
            tokio::spawn(http_raw::serve(app, stream));
        } else {
            tokio::spawn(async move {
                let service = service_fn(move |request| on_request(app.clone(), request));
                let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    }
}

async fn serve_axum(app: Arc<App>, listener: TcpListener) -> anyhow::Result<()> {
    let (posted, deleted) = (app.clone(), app);
    let on_post = move |headers: HeaderMap, body: Bytes| {
        let app = posted.clone();
        async move {
            match headers.get(SESSION) {
                Some(session) if !app.knows_session(session.as_bytes()) => empty(StatusCode::NOT_FOUND),
                _ => reply(&app, &body),
            }
        }
    };
    let on_delete = move |headers: HeaderMap| {
        if let Some(session) = headers.get(SESSION) {
            deleted.close_session(session.as_bytes());
        }
        async {}
    };
    let router = Router::new()
        .route("/mcp", post(on_post).delete(on_delete))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES));
    let listener = axum::serve::ListenerExt::tap_io(listener, |stream: &mut TcpStream| {
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, router).await?;
    Ok(())
}

async fn on_request(app: Arc<App>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let session = head.headers.get(SESSION);
    if head.method == Method::DELETE {
        if let Some(session) = session {
            app.close_session(session.as_bytes());
        }
        return Ok(Response::new(Full::default()));
    }
    if head.method != Method::POST {
        return Ok(empty(StatusCode::METHOD_NOT_ALLOWED));
    }
    if session.is_some_and(|session| !app.knows_session(session.as_bytes())) {
        return Ok(empty(StatusCode::NOT_FOUND));
    }
    let Ok(body) = body.collect().await else { return Ok(empty(StatusCode::BAD_REQUEST)) };
    Ok(reply(&app, &body.to_bytes()))
}

fn reply(app: &App, body: &[u8]) -> Response<Full<Bytes>> {
    let mut out = Vec::with_capacity(body.len() + 128);
    let kind = app.body(body, &mut out);
    if kind == ResponseKind::Nothing {
        return empty(StatusCode::ACCEPTED);
    }
    let mut response = Response::builder().header("content-type", app.content_type());
    if kind == ResponseKind::Initialized {
        response = response.header(SESSION, format!("{:016x}", app.open_session()));
    }
    response.body(Full::new(out.into())).unwrap()
}

fn empty(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}
