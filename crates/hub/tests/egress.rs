//! The `[egress]` table of the configuration file: proxy, networks, and changes at run time.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/hub.rs"]
mod hub;
#[path = "support/rest.rs"]
mod rest;
mod support;
#[path = "../../sdk/tests/support/tls_proxy.rs"]
mod tls_proxy;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use linchpin::Server;
use rustix::process::Signal;
use serde_json::Value;
use tokio::task::{JoinSet, block_in_place};

use hub::{Demo, Home};
use rest::Rest;
use tls_proxy::{NAME, TlsProxy};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../sdk/tests/egress/certificates/authority.pem");
const MSG_APPLIED: &str = "egress configuration applied";

/// Returns a resource of the REST API.
fn get(home: &Home, noun: &str) -> Value {
    let rest = Rest::ready(&home.data().join("hub.json"));
    rest.send("GET", &format!("/api/v1/{noun}"), None).unwrap().json()
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_goes_through_the_proxy_of_the_file_and_no_other() {
    let (proxy, place) = (TlsProxy::start().await, format!("{NAME}:1000"));
    let http = Server::new("up", "1").tool("greet", "Greets", || async { "hello" }).http();
    let listening = http.allow_host(&place).bind("127.0.0.1:0").await.unwrap();
    proxy.route(1_000, listening.url().split('/').nth(2).unwrap().parse().unwrap());
    let mut serving = JoinSet::new();
    serving.spawn(listening.run_until(std::future::pending()));
    let home = Home::new().with("SSL_CERT_FILE", ROOT).with("PROXY_PASSWORD", "p@ss:");
    let home = home.with("HTTPS_PROXY", "http://127.0.0.1:9").with("ALL_PROXY", "http://127.0.0.1:9");
    let file = |proxy: &str| {
        home.write(&format!(
            "[egress]\nproxy = \"{proxy}\"\n[servers.up]\nurl = \"https://{place}/mcp\"\n\
             [servers.near]\nurl = \"https://10.0.0.1/mcp\"\n[servers.named]\nurl = \"https://db.internal/mcp\"\n"
        ));
    };
    block_in_place(|| {
        file(&format!("http://hub:$PROXY_PASSWORD@{}", proxy.address()));
        let mut running = home.start();
        assert_eq!(home.json(&["server", "test", "up"])["name"], "up");
        let seen = proxy.heads();
        let who = STANDARD.encode("hub:p@ss:");
        let expected =
            format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\nProxy-Authorization: Basic {who}\r\n\r\n");
        assert!(!seen.is_empty() && seen.iter().all(|head| *head == expected), "{seen:?}");
        home.run(&["server", "test", "near"]).expect_output(1, &["10.0.0.1 is a private address"]);
        home.run(&["server", "test", "named"]).expect_output(1, &["its name is a private address"]);
        assert!(proxy.unknown_hosts().is_empty());

        // An invalid proxy changes nothing, and an unreachable one is named in the error.
        file(&format!("http://hub:$NOT_SET@{}", proxy.address()));
        running.signal(Signal::HUP);
        running.wait_for("the environment variable `NOT_SET` is not set");
        let problem = get(&home, "status")["file_problem"].to_string();
        assert!(
            problem.contains("`egress.proxy`: the environment variable `NOT_SET` is not set"),
            "{problem}"
        );
        assert_eq!(home.json(&["server", "test", "up"])["name"], "up");
        file("http://127.0.0.1:1");
        running.signal(Signal::HUP);
        running.wait_for(MSG_APPLIED);
        home.run(&["server", "test", "up"]).expect_output(1, &["the proxy at 127.0.0.1:1 cannot be used"]);
        let (_, written) = running.end();
        assert!(!written.contains("p@ss"), "{written}");
    });
    block_in_place(|| {
        file("http://hub:$NOT_SET@127.0.0.1:1");
        home.run(&[]).expect_output(
            1,
            &["linchpin.toml`: `egress.proxy`: the environment variable `NOT_SET` is not set"],
        );
    });
}

#[test]
fn networks_count_as_soon_as_the_file_says_so() {
    let (home, demo) = (Home::new(), Demo::start());
    let mut running = home.start();
    home.ok(&["server", "add", "Far", "--url", &demo.url, "--retries", "0"]);
    home.run(&["server", "connect", "far"]).expect_output(1, &["127.0.0.1 is a loopback address"]);
    let mut say = |text: &str| {
        home.write(text);
        running.signal(Signal::HUP);
        running.wait_for(MSG_APPLIED);
    };
    say("[egress]\nallow = [\"127.0.0.1\"]\n");
    home.ok(&["server", "connect", "far"]);
    assert_eq!(home.json(&["server", "show", "far"])["status"], "connected");
    say("[egress]\nallow = [\"127.0.0.0/8\", \"10.0.0.0/8\"]\n");
    assert_eq!(home.json(&["server", "show", "far"])["status"], "connected");
    say("");
    assert_eq!(home.json(&["server", "show", "far"])["status"], "disconnected");
    home.run(&["server", "connect", "far"]).expect_output(1, &["127.0.0.1 is a loopback address"]);
    assert!(get(&home, "status")["file_problem"].is_null());
    let denied = get(&home, "audit").to_string();
    assert!(denied.contains("egress.denied"), "{denied}");
}
