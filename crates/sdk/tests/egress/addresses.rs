//! All spellings of a private address, in a discovered URL: none of them is dialled.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use linchpin::egress::{ConnectPhase, Egress, EgressErrorKind, Policy, Target};

use crate::canary::Canary;
use crate::private_address_forms::{ADDRESSES, NAMES, all};
use crate::support::{Script, get};

fn watched(policy: Policy, resolver: Script) -> (Egress, Arc<AtomicUsize>) {
    let dialled = Arc::new(AtomicUsize::new(0));
    let counter = dialled.clone();
    let egress = Egress::builder().policy(policy).resolver(resolver).on_connect_step(move |hop| {
        if hop.phase == ConnectPhase::Connect {
            counter.fetch_add(1, Ordering::SeqCst);
        }
    });
    (egress.build().unwrap(), dialled)
}

/// URLs and relative references that lead to a host and a port.
fn references(host: &str, port: u16) -> [String; 4] {
    [
        format!("https://{host}:{port}/"),
        format!("http://{host}:{port}/x?y=z"),
        format!("//{host}:{port}/"),
        format!("HTTPS://{host}:{port}"),
    ]
}

#[tokio::test]
async fn no_spelling_of_a_private_address_is_dialled() {
    let canary = Canary::open(&["127.0.0.2", "127.0.0.1", "::1"]);
    let hosts = all(&ADDRESSES, &NAMES);
    let mut tried = 0;
    for policy in [Policy::default(), Policy::public_only()] {
        let (egress, dialled) = watched(policy, Script::always("127.0.0.2"));
        let base = Target::configured("https://public.example/mcp").unwrap();
        for host in &hosts {
            for reference in references(host, canary.port()) {
                tried += 1;
                let Ok(learned) = base.discovered(&reference) else { continue };
                let error = egress.send(get(), &learned).await.expect_err(&reference);
                assert!(matches!(error.kind(), EgressErrorKind::Refused(_)), "{reference}: {error}");
            }
        }
        assert_eq!(dialled.load(Ordering::SeqCst), 0);
    }
    assert!(hosts.is_superset(&crate::private_address_forms::hosts()));
    assert_eq!(tried, hosts.len() * 8);
    assert_eq!(canary.connections(), 0);
}

#[tokio::test]
async fn the_canary_sings_when_it_is_reached() {
    let canary = Canary::open(&["127.0.0.2", "127.0.0.1", "::1"]);
    let egress = watched(Policy::default(), Script::always("127.0.0.2")).0;
    for host in ["127.0.0.2", "[::ffff:127.0.0.2]", "canary.example"] {
        let typed = Target::configured(&format!("http://{host}:{}/", canary.port())).unwrap();
        let mut sending = Box::pin(egress.send(get(), &typed));
        // The server never responds: stop waiting as soon as it was reached.
        let reached = std::future::poll_fn(|cx| {
            assert!(sending.as_mut().poll(cx).is_pending());
            if canary.connections() == 1 { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        });
        reached.await;
    }
    let strict = watched(Policy::public_only(), Script::always("127.0.0.2")).0;
    let typed = Target::configured(&format!("http://127.0.0.2:{}/", canary.port())).unwrap();
    let error = strict.send(get(), &typed).await.unwrap_err();
    assert!(error.to_string().contains("only public addresses are allowed"), "{error}");
    assert_eq!(canary.connections(), 0);
}

#[tokio::test]
async fn plain_http_is_for_this_machine() {
    let (egress, dialled) = watched(Policy::default(), Script::always("93.184.216.34"));
    for url in ["http://public.example/", "http://93.184.216.34/", "http://10.0.0.1/", "http://[fd00::1]/"] {
        let error = egress.send(get(), &Target::configured(url).unwrap()).await.expect_err(url);
        assert!(
            error.to_string().ends_with("plain `http` is allowed only to this machine: use `https`"),
            "{error}"
        );
        assert!(!error.may_have_been_sent());
    }
    assert_eq!(dialled.load(Ordering::SeqCst), 0);
}
