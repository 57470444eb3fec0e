//! HTTP endpoint that is bound to an address and ready to run.

use std::net::SocketAddr;
use std::sync::Arc;

use ::http::Request;
use hyper::body::Incoming;
use tokio::net::TcpListener;

use super::body::Body;
use super::endpoint::Endpoint;
use super::listener::{HttpHandler, Listener, RequestOrigin};
use super::responses::HttpResponse;
use crate::Result;

/// HTTP endpoint bound to an address. [`BoundEndpoint::run`] serves it.
#[must_use = "a bound endpoint serves nothing until it runs"]
pub struct BoundEndpoint {
    listener: Listener,
    endpoint: Arc<Endpoint>,
}

impl HttpHandler for Arc<Endpoint> {
    type Body = Body;

    async fn handle(self, request: Request<Incoming>, origin: RequestOrigin) -> HttpResponse {
        Endpoint::handle(&self, request, Some(origin)).await
    }
}

impl BoundEndpoint {
    pub(super) fn new(socket: TcpListener, endpoint: Arc<Endpoint>) -> Result<Self> {
        let timeout = endpoint.service.settings().shutdown_timeout;
        Ok(BoundEndpoint {
            listener: Listener::new(socket, endpoint.options.connections, timeout)?,
            endpoint,
        })
    }

    /// Returns the socket address that the server is bound to.
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Returns the URL of the endpoint for clients on this machine.
    pub fn url(&self) -> String {
        format!("{}{}", self.listener.origin(), self.endpoint.options.path)
    }

    /// Serves HTTP clients until the process receives Ctrl-C or SIGTERM, then until all running requests are done.
    pub async fn run(self) -> Result<()> {
        self.run_until(super::listener::shutdown_signal::shutdown_signal()).await
    }

    /// Serves HTTP clients until `end` completes, then until all running requests are done.
    pub async fn run_until(self, end: impl Future<Output = ()>) -> Result<()> {
        let BoundEndpoint { listener, endpoint } = self;
        let end = async {
            end.await;
            endpoint.close();
        };
        listener.accept(end, endpoint.clone()).await;
        Ok(())
    }
}
