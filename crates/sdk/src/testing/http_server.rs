//! HTTP test server on this machine, on its own thread and runtime, as long as a connection or its transport exists.

use std::pin::Pin;
use std::sync::Arc;
use std::thread;

use linchpin_protocol::Revision;
use tokio::sync::oneshot;

use crate::Service;
use crate::transport::http::HttpTransport;
use crate::transport::{OpenFuture, Transport, TransportHandle, Wire};

/// Transport to an HTTP test server, which it starts in this process.
pub(super) struct HttpTestServer {
    http: HttpTransport,
    running: Arc<ServerGuard>,
}

/// Guard that stops the HTTP test server when it is dropped.
struct ServerGuard {
    _shutdown: oneshot::Sender<()>,
}

/// Starts an HTTP test server, and returns the transport for clients of `revision`.
pub(super) fn start_http_server(service: &Service, revision: Revision) -> HttpTestServer {
    let (end, shutdown) = oneshot::channel::<()>();
    let (url_sender, url) = std::sync::mpsc::sync_channel(1);
    let service = service.clone();
    let serve = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("failed to create a runtime").block_on(async {
            let endpoint = service.http().legacy_sse().bind("127.0.0.1:0").await;
            let endpoint = endpoint.unwrap_or_else(|error| panic!("failed to bind: {error}"));
            let _ = url_sender.send(endpoint.url()); // the receiver is gone if the test has failed
            let end = async { drop(shutdown.await) };
            endpoint.run_until(end).await.unwrap_or_else(|error| panic!("the server failed: {error}"));
        });
    };
    thread::Builder::new().name("linchpin-site".into()).spawn(serve).expect("failed to spawn a thread");
    let url = url.recv().expect("the server reports its URL");
    let is_first = revision == Revision::ALL[0];
    let http = if is_first { HttpTransport::sse(url) } else { HttpTransport::new(url) };
    HttpTestServer { http, running: Arc::new(ServerGuard { _shutdown: end }) }
}

impl Transport for HttpTestServer {
    fn open(&self, wire: Wire) -> OpenFuture<'_> {
        Box::pin(async move {
            let line = self.http.open(wire).await?;
            Ok(Box::new(HttpTestServerHandle { handle: line, _running: self.running.clone() })
                as Box<dyn TransportHandle>)
        })
    }

    fn name(&self) -> String {
        self.http.name()
    }
}

struct HttpTestServerHandle {
    handle: Box<dyn TransportHandle>,
    _running: Arc<ServerGuard>,
}

impl TransportHandle for HttpTestServerHandle {
    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.handle.close()
    }

    fn flush(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.handle.flush()
    }
}
