//! HTTP test server on this machine, on its own thread and runtime, as long as a connection or its transport exists.

use std::pin::Pin;
use std::sync::Arc;
use std::thread;

use linchpin_protocol::Revision;
use tokio::sync::oneshot;

use crate::Service;
use crate::transport::http::Http;
use crate::transport::{Line, Opening, Transport, Wire};

/// Transport to an HTTP test server.
pub(super) struct Site {
    http: Http,
    running: Arc<Running>,
}

/// Dropping it stops the server.
struct Running {
    _end: oneshot::Sender<()>,
}

/// Starts a server, and returns the transport for clients of `revision`.
pub(super) fn site(service: &Service, revision: Revision) -> Site {
    let (end, ended) = oneshot::channel::<()>();
    let (bound, url) = std::sync::mpsc::sync_channel(1);
    let service = service.clone();
    let serve = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("failed to create a runtime").block_on(async {
            let endpoint = service.http().legacy_sse().bind("127.0.0.1:0").await;
            let endpoint = endpoint.unwrap_or_else(|error| panic!("failed to bind: {error}"));
            let _ = bound.send(endpoint.url()); // the receiver is gone if the test has failed
            let end = async { drop(ended.await) };
            endpoint.run_until(end).await.unwrap_or_else(|error| panic!("the server failed: {error}"));
        });
    };
    thread::Builder::new().name("linchpin-site".into()).spawn(serve).expect("failed to spawn a thread");
    let url = url.recv().expect("the server reports its URL");
    let is_first = revision == Revision::ALL[0];
    let http = if is_first { Http::sse(url) } else { Http::new(url) };
    Site { http, running: Arc::new(Running { _end: end }) }
}

impl Transport for Site {
    fn open(&self, wire: Wire) -> Opening<'_> {
        Box::pin(async move {
            let line = self.http.open(wire).await?;
            Ok(Box::new(SiteLine { line, _running: self.running.clone() }) as Box<dyn Line>)
        })
    }

    fn name(&self) -> String {
        self.http.name()
    }
}

struct SiteLine {
    line: Box<dyn Line>,
    _running: Arc<Running>,
}

impl Line for SiteLine {
    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.line.close()
    }

    fn flush(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.line.flush()
    }
}
