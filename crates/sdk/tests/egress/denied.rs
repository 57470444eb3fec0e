//! Denials are reported, and changed settings apply at once.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use linchpin::egress::{Egress, EgressErrorKind, Network, Policy, Redirects, Target};

use crate::support::{Reply, Script, Server, get, ok};

type DenialLog = Arc<Mutex<Vec<(String, Option<IpAddr>, String)>>>;

fn heard(egress: &Egress) -> (Egress, DenialLog) {
    let heard = DenialLog::default();
    let log = heard.clone();
    let egress = egress.on_denied(move |denied| {
        log.lock().unwrap().push((denied.host.to_owned(), denied.address, denied.reason.to_owned()));
    });
    (egress, heard)
}

fn here() -> Network {
    "127.0.0.1".parse().unwrap()
}

fn strict(allowed: Option<Network>) -> Egress {
    let policy = allowed.into_iter().fold(Policy::public_only(), Policy::allow);
    Egress::builder().policy(policy).resolver(Script::always("10.0.0.7")).build().unwrap()
}

#[tokio::test]
async fn a_refusal_and_a_redirect_are_told_to_whoever_listens() {
    let server = Server::start(|_| {
        let head =
            "HTTP/1.1 307 x\r\nlocation: https://evil.example/?token=secret\r\ncontent-length: 0\r\n\r\n";
        Reply::Keep(head.to_owned())
    });
    let shared = strict(Some(here()));
    let ((one, of_one), (_other, of_other)) = (heard(&shared), heard(&shared));
    let near = Target::configured("https://name.example/?token=secret").unwrap();
    one.send(get(), &near).await.unwrap_err();
    one.send(get(), &Target::configured("http://8.8.8.8/").unwrap()).await.unwrap_err();
    let target = Target::configured(&server.url("/")).unwrap();
    one.follow(get(), &target, Redirects::same_origin(3)).await.unwrap_err();
    let found = of_one.lock().unwrap().clone();
    let hosts: Vec<_> = found.iter().map(|(host, address, _)| (&**host, *address)).collect();
    let address = |text: &str| text.parse().ok();
    assert_eq!(
        hosts,
        [("name.example", address("10.0.0.7")), ("8.8.8.8", address("8.8.8.8")), ("evil.example", None)]
    );
    assert!(found.iter().all(|(_, _, reason)| !reason.is_empty() && !reason.contains("secret")), "{found:?}");
    assert_eq!((one.denials(), shared.denials()), (3, 0));
    assert!(of_other.lock().unwrap().is_empty());
}

#[tokio::test]
async fn settings_that_change_count_for_every_clone_at_once() {
    let server = Server::start(|_| Reply::Keep(ok("here")));
    let egress = strict(Some(here()));
    let ((one, _), (other, _)) = (heard(&egress), heard(&egress));
    let target = Target::configured(&server.url("/")).unwrap();
    let read = async |egress: &Egress| -> Result<(), EgressErrorKind> {
        let response = egress.send(get(), &target).await.map_err(|error| error.kind())?;
        response.into_body().read_to_end(100).await.map(drop).map_err(|error| error.kind())
    };
    read(&one).await.unwrap();
    let late = one.send(get(), &target).await.unwrap().into_body();
    egress.reconfigure(&strict(Some("10.0.0.0/8".parse().unwrap())));
    assert!(!one.is_allowed() && other.is_allowed(), "only `one` has connected there");
    late.read_to_end(100).await.unwrap();
    assert_eq!(egress.idle_connections(), 0, "earlier connections are not pooled");
    for egress in [&one, &other, &egress] {
        assert!(matches!(read(egress).await, Err(EgressErrorKind::Refused(_))));
    }
    egress.reconfigure(&strict(Some(here())));
    assert!(one.is_allowed());
    read(&one).await.unwrap();
    assert_eq!(server.connections(), 2);
    let proxied =
        Egress::builder().proxy("http://proxy.example:1").policy(Policy::public_only().allow(here()));
    egress.reconfigure(&proxied.build().unwrap());
    assert!(one.is_allowed(), "this machine is reachable without the proxy");
}
