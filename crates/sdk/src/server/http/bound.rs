//! Endpoint bound to an address.

use std::net::SocketAddr;
use std::sync::Arc;

use ::http::Request;
use hyper::body::Incoming;
use tokio::net::TcpListener;

use super::body::Body;
use super::endpoint::Endpoint;
use super::listener::{Answer, Listener, Origin};
use super::responses::Reply;
use crate::Result;

/// HTTP endpoint bound to an address. [`Listening::run`] serves it.
#[must_use = "nothing is served until it runs"]
pub struct Listening {
    listener: Listener,
    endpoint: Arc<Endpoint>,
}

impl Answer for Arc<Endpoint> {
    type Body = Body;

    async fn answer(self, request: Request<Incoming>, origin: Origin) -> Reply {
        self.handle(request, Some(origin)).await
    }
}

impl Listening {
    pub(super) fn new(socket: TcpListener, endpoint: Arc<Endpoint>) -> Result<Self> {
        let patience = endpoint.service.settings().shutdown_timeout;
        Ok(Listening { listener: Listener::new(socket, endpoint.options.connections, patience)?, endpoint })
    }

    /// Returns the bound address.
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Returns the URL for clients on this machine.
    pub fn url(&self) -> String {
        format!("{}{}", self.listener.origin(), self.endpoint.options.path)
    }

    /// Serves until the process receives Ctrl-C or SIGTERM, then until all running requests are done.
    pub async fn run(self) -> Result<()> {
        self.run_until(super::listener::shutdown_signal::asked_to_end()).await
    }

    /// Serves until `end` completes, then until all running requests are done.
    pub async fn run_until(self, end: impl Future<Output = ()>) -> Result<()> {
        let Listening { listener, endpoint } = self;
        let end = async {
            end.await;
            endpoint.close();
        };
        listener.accept(end, endpoint.clone()).await;
        Ok(())
    }
}
