//! Gateway in front of the server under test of the official conformance suite, for `cargo xtask conformance`.
//!
//! `conformance_gateway --upstream URL` serves that server under its own names, prints the URL of the gateway when it is
//! ready, and adds the token to each request, since the suite has none.
#![expect(clippy::print_stdout, reason = "the parent process waits for the address")]

use std::sync::Arc;
use std::task::{Context, Poll};

use anyhow::{Context as _, bail};
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request};
use linchpin::egress::Egress;
use linchpin::server::web::Listener;
use linchpin_hub_core::hub::{Hub, HubOptions, LOCAL, LOCAL_USER};
use linchpin_hub_core::platform::SystemPlatform;
use linchpin_hub_core::vault::KeyFile;
use linchpin_hub_core::{Actor, Subject};
use linchpin_hub_http::{HttpOptions, HubService};
use linchpin_hub_store::Sqlite;
use serde_json::json;
use tower_service::Service;

/// Slug of the server under test.
const SLUG: &str = "conformance";

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [option, upstream] = &*arguments else { bail!("usage: conformance_gateway --upstream URL") };
    if option != "--upstream" {
        bail!("unknown option {option}: use --upstream URL");
    }
    let directory = tempfile::tempdir().context("cannot create a data directory")?;
    let store = Arc::new(Sqlite::open(&directory.path().join("hub.db"))?);
    let (keys, _) = KeyFile::open(&directory.path().join("keys"), &SystemPlatform)?;
    let hub = Hub::new(Arc::new(SystemPlatform), store, keys, Egress::default(), HubOptions::default());
    let hub = Arc::new(hub);
    hub.identity().ensure_local_user().await?;
    let user = Actor::new(LOCAL, Subject::User(LOCAL_USER));
    hub.registry().add_server(user, json!({ "name": SLUG, "url": upstream })).await?;
    hub.registry().sync_server(user, SLUG, None).await?;
    let web = HubService::new(hub.clone(), Arc::new(SystemPlatform), HttpOptions::default());
    let gateway = web.gateway().clone();
    let listener = Listener::bind("127.0.0.1:0").await.map_err(|error| anyhow::anyhow!("{error:?}"))?;
    println!("{}/mcp/servers/{SLUG}", listener.origin());
    let authorization = format!("Bearer {}", hub.identity().process_token().expose());
    let service = WithToken { inner: web.service(), authorization: authorization.parse()? };
    let serving = listener.run_until(std::future::pending(), service);
    tokio::select! {
        served = serving => served.map_err(|error| anyhow::anyhow!("{error:?}")),
        () = gateway.run(std::future::pending()) => Ok(()),
        () = hub.run(std::future::pending()) => Ok(()),
    }
}

/// Service of the hub for requests without a token.
#[derive(Clone)]
struct WithToken<S> {
    inner: S,
    authorization: HeaderValue,
}

impl<B, S: Service<Request<B>>> Service<Request<B>> for WithToken<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> S::Future {
        request.headers_mut().insert(AUTHORIZATION, self.authorization.clone());
        self.inner.call(request)
    }
}
