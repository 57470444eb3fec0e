//! HTTP endpoint as a `tower` service, for use inside another HTTP server.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::http::{Request, Response};
use bytes::Buf;
use http_body::Body as HttpBody;

use super::super::BoxFuture;
use super::body::Body;
use super::endpoint::Endpoint;

/// HTTP endpoint as a `tower` service. Cheap to clone; clones share sessions.
#[derive(Clone)]
pub struct HttpService(Arc<Endpoint>);

impl HttpService {
    pub(super) fn new(endpoint: Arc<Endpoint>) -> Self {
        HttpService(endpoint)
    }

    #[cfg(feature = "axum")]
    pub(super) fn paths(&self) -> impl Iterator<Item = &str> {
        let options = &self.0.options;
        let metadata = options.auth.iter().flat_map(|auth| auth.metadata_paths()).map(String::as_str);
        std::iter::once(&*options.path).chain(options.legacy.as_deref()).chain(metadata)
    }

    /// Serves one HTTP request.
    pub async fn handle<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: HttpBody<Data: Buf> + Send,
    {
        self.0.handle(request, None).await
    }

    /// Ends all sessions in this process and cancels their requests, for example because their principal has lost its
    /// access. Their clients must open new ones.
    pub fn end_sessions(&self) {
        self.0.end_sessions();
    }

    /// Ends all streams gracefully, for shutdown. Otherwise they stay open for as long as their clients read.
    pub fn close_streams(&self) {
        self.0.close();
    }
}

impl<B> tower_service::Service<Request<B>> for HttpService
where
    B: HttpBody<Data: Buf> + Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { Ok(service.handle(request).await) })
    }
}
