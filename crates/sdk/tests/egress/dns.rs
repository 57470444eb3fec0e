//! Names that resolve to different addresses each time: only addresses that the policy allows are dialled.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use linchpin::egress::{ConnectPhase, Egress, EgressErrorKind, Policy, Target};

use crate::canary::Canary;
use crate::support::{Reply, Script, Server, get, ok};

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Sequences of lookups: every pair of these, in both orders, alone and mixed with the good one.
fn scripts(good: IpAddr) -> Vec<Vec<Vec<IpAddr>>> {
    let bad =
        ["127.0.0.2", "::1", "10.0.0.1", "169.254.169.254", "::ffff:127.0.0.2", "64:ff9b::7f00:2", "0.0.0.0"];
    let mut scripts = Vec::new();
    for one in bad.map(address) {
        for other in bad.map(address) {
            scripts.push(vec![vec![good], vec![one], vec![other]]);
            scripts.push(vec![vec![one, good], vec![good, other], vec![one, other]]);
            scripts.push(vec![vec![one], vec![good], vec![other, good, one]]);
            scripts.push(vec![vec![one, other], vec![other, one], vec![good]]);
            scripts.push(vec![vec![good, one], vec![one], vec![good]]);
        }
    }
    scripts
}

#[tokio::test]
async fn a_name_that_flips_leads_to_allowed_addresses_alone() {
    let good = address("127.0.0.3");
    let server = Server::start_at(SocketAddr::new(good, 0), |_| {
        Reply::Close("HTTP/1.1 204 x\r\nconnection: close\r\n\r\n".to_owned())
    });
    let canary = Canary::open(&["127.0.0.2", "127.0.0.1", "::1"]);
    let scripts = scripts(good);
    assert!(scripts.len() >= 200, "only {} sequences", scripts.len());
    let base = Target::configured("https://public.example/").unwrap();
    // The server and the canary use two ports: a name must not lead to the one that is not meant.
    for port in [server.address.port(), canary.port()] {
        for script in &scripts {
            let dialled = Arc::new(Mutex::new(Vec::new()));
            let log = dialled.clone();
            let egress = Egress::builder()
                .policy(Policy::default().allow(good.into()))
                .resolver(Script::new(script.iter().map(Vec::as_slice)))
                .on_connect_step(move |hop| {
                    if hop.phase == ConnectPhase::Connect {
                        log.lock().unwrap().extend(hop.addresses.iter().map(SocketAddr::ip));
                    }
                })
                .build()
                .unwrap();
            let learned = base.discovered(&format!("http://flips.example:{port}/")).unwrap();
            for answer in script {
                match egress.send(get(), &learned).await {
                    Ok(_) => assert!(answer.contains(&good), "{script:?}"),
                    Err(error) => {
                        let refused = matches!(error.kind(), EgressErrorKind::Refused(_));
                        assert_eq!(refused, !answer.contains(&good), "{script:?}: {error}");
                    }
                }
            }
            assert!(dialled.lock().unwrap().iter().all(|&dialled| dialled == good), "{script:?}");
        }
    }
    assert_eq!(canary.connections(), 0);
}

#[tokio::test]
async fn a_learned_url_may_go_where_the_typed_one_is() {
    let server = Server::start(|_| Reply::Keep(ok("here")));
    let other = Server::start(|_| Reply::Keep(ok("there")));
    let egress = Egress::new();
    let typed = Target::configured(&server.url("/")).unwrap();
    let learned = typed.discovered(&other.url("/")).unwrap();
    let error = egress.send(get(), &learned).await.unwrap_err();
    assert!(error.to_string().contains("this URL was discovered on the network"), "{error}");
    assert_eq!(other.connections(), 0);
    egress.send(get(), &typed).await.unwrap();
    egress.send(get(), &learned).await.unwrap();
    let elsewhere = typed.discovered("https://10.0.0.1/").unwrap();
    let error = egress.send(get(), &elsewhere).await.unwrap_err();
    assert!(matches!(error.kind(), EgressErrorKind::Refused(_)), "{error}");
    // A URL discovered from a discovered one is also discovered from the configured one.
    egress.send(get(), &learned.discovered(&server.url("/x")).unwrap()).await.unwrap();
}

#[tokio::test]
async fn a_name_is_looked_up_once_for_each_connection() {
    let server = Server::start(|_| Reply::Keep(ok("")));
    let lookups = Arc::new(Mutex::new(0));
    let counter = lookups.clone();
    let egress = Egress::builder()
        .resolver(Script::new([&[address("127.0.0.1")][..], &[]]))
        .on_connect_step(move |hop| {
            *counter.lock().unwrap() += usize::from(hop.phase == ConnectPhase::Resolve);
        })
        .build()
        .unwrap();
    let target = Target::configured(&format!("http://name.example:{}/", server.address.port())).unwrap();
    for _ in 0..3 {
        egress.send(get(), &target).await.unwrap();
    }
    assert_eq!((*lookups.lock().unwrap(), server.connections()), (1, 1));
    assert_eq!(server.seen()[0].header("host"), Some(&*format!("name.example:{}", server.address.port())));
}
