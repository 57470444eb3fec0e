//! The public listener: with its own TLS certificate, or behind TLS proxies.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/hub.rs"]
mod hub;
#[path = "support/rest.rs"]
mod rest;
mod support;

use std::fs::{self, Permissions};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;

use http::Request;
use hub::{Home, Hub};
use linchpin::egress::{Body, BoxFuture, Egress, EgressError, EgressErrorKind, Resolver, Target};
use linchpin_hub_core::platform::SystemPlatform;
use linchpin_hub_core::private_file;
use rest::Rest;
use serde_json::{Value, json};

const AUTHORITY: &str = include_str!("../../sdk/tests/egress/certificates/authority.pem");
const SERVER: &str = include_str!("../../sdk/tests/egress/certificates/server.pem");
const EXPIRED: &str = include_str!("../../sdk/tests/egress/certificates/expired.pem");
const KEY: &str = include_str!("../../sdk/tests/egress/certificates/server.key");
const FILES: &str = "[tls]\ncertificate = \"hub.pem\"\nkey = \"hub.key\"\n";
const PASSWORD: &str = "a long password";

/// Data directory with a certificate.
fn home(file: &str) -> Home {
    let home = Home::new();
    home.write(file);
    put(&home, "hub.pem", SERVER);
    put(&home, "hub.key", KEY);
    home
}

/// Writes a private file atomically.
fn put(home: &Home, name: &str, text: &str) {
    private_file::write(&home.data().join(name), text.as_bytes(), &SystemPlatform).unwrap();
}

/// Starts a hub. Returns it with the URL of its public listener.
fn start(home: &Home) -> (Hub, String) {
    let mut hub = home.start_with(&["--log", "json"]);
    let line: Value = serde_json::from_str(&hub.wait_for("public listener ready")).unwrap();
    (hub, line["url"].as_str().unwrap().to_owned())
}

/// Resolver that maps every name to this machine.
struct LocalResolver;

impl Resolver for LocalResolver {
    fn resolve(&self, _: &str) -> BoxFuture<std::io::Result<Vec<IpAddr>>> {
        Box::pin(async { Ok(vec!["127.0.0.1".parse().unwrap()]) })
    }
}

/// Sends a request with the test authority as trusted root. Returns the status and the cookie.
#[tokio::main(flavor = "current_thread")]
async fn send_request(url: &str, request: Request<Body>) -> Result<(u16, String), EgressError> {
    let egress =
        Egress::builder().root_certificate(AUTHORITY.as_bytes()).resolver(LocalResolver).build().unwrap();
    let answer = egress.send(request, &Target::configured(url).unwrap()).await?;
    let cookie = answer.headers().get("set-cookie").map(|cookie| cookie.to_str().unwrap().to_owned());
    Ok((answer.status().as_u16(), cookie.unwrap_or_default()))
}

fn health(url: &str) -> Result<u16, EgressErrorKind> {
    let asked = send_request(&format!("{url}/healthz"), Request::new(Body::empty()));
    asked.map(|(status, _)| status).map_err(|error| error.kind())
}

#[test]
fn others_come_by_tls_and_commands_do_not_notice() {
    let home = home(FILES);
    let (hub, url) = start(&home);
    assert!(
        url.starts_with("https://127.0.0.1:") && hub.url.starts_with("http://127.0.0.1:"),
        "{url} {}",
        hub.url
    );
    home.ok(&["server", "list"]);
    home.run_with(&format!("{PASSWORD}\n"), &["user", "password", "local"]).expect_output(0, &[]);
    let named = url.replace("127.0.0.1", "server.example");
    assert_eq!((health(&url), health(&named)), (Ok(200), Ok(403)), "the host is not configured");
    let form = json!({ "name": "local", "password": PASSWORD }).to_string();
    let sign_in = Request::post("/").header("content-type", "application/json").header("origin", &*url);
    let signed_in = send_request(&format!("{url}/api/v1/session"), sign_in.body(Body::from(form)).unwrap());
    let (status, cookie) = signed_in.unwrap();
    assert!(cookie.starts_with("__Host-linchpin=") && cookie.ends_with("; Secure"), "{status} {cookie}");
    // The listener rejects plain HTTP.
    let plain = Rest::new(&url.replace("https", "http"), "").request("GET", "/healthz", &[], "");
    assert!(plain.is_err(), "{plain:?}");
    assert!(hub.end().0.success());

    home.write(&format!("url = \"https://server.example\"\n{FILES}"));
    let (_hub, url) = start(&home);
    assert_eq!(health(&url.replace("127.0.0.1", "server.example")), Ok(200));
}

#[test]
fn a_certificate_that_has_changed_is_taken_over_and_a_broken_one_is_not() {
    let home = home(FILES);
    let (mut hub, url) = start(&home);
    put(&home, "hub.pem", EXPIRED);
    hub.wait_for("TLS certificate reloaded");
    assert_eq!(health(&url), Err(EgressErrorKind::Tls));
    put(&home, "other.pem", SERVER);
    home.write(&FILES.replace("hub.pem", "other.pem"));
    hub.wait_for("TLS certificate reloaded");
    assert_eq!(health(&url), Ok(200));
    put(&home, "other.pem", "nothing");
    let line = hub.wait_for("using the previous one");
    assert!(
        line.contains("other.pem`: the certificate cannot be used with the key `")
            && line.contains("the text contains no certificate"),
        "{line}"
    );
    assert_eq!(health(&url), Ok(200));
    fs::remove_file(home.data().join("hub.key")).unwrap();
    let line = hub.wait_for("using the previous one");
    assert!(line.contains("hub.key`: the file cannot be read"), "{line}");
    assert_eq!(health(&url), Ok(200));
    put(&home, "other.pem", EXPIRED);
    put(&home, "hub.key", KEY);
    hub.wait_for("TLS certificate reloaded");
    assert_eq!(health(&url), Err(EgressErrorKind::Tls));
}

#[test]
fn a_hub_that_others_could_harm_does_not_start() {
    let home = home(FILES);
    let here = ["--listen", "127.0.0.1:0"];
    home.run(&[]).expect_output(2, &["without a listen address", "`listen`"]);
    home.run(&["--listen", "0.0.0.0:0"]).expect_output(
        1,
        &["0.0.0.0:0", "no user has a password yet", "--listen 127.0.0.1:0", "linchpin user password local"],
    );
    put(&home, "hub.pem", AUTHORITY);
    home.run(&here).expect_output(
        1,
        &["hub.pem`: the certificate cannot be used with the key `", "cannot be used together"],
    );
    fs::set_permissions(home.data().join("hub.key"), Permissions::from_mode(0o640)).unwrap();
    home.run(&here).expect_output(1, &["hub.key`: insecure permissions of the TLS key", "chmod 600"]);
    fs::remove_file(home.data().join("hub.pem")).unwrap();
    home.run(&here).expect_output(1, &["hub.pem`: the file cannot be read"]);
    home.write("url = \"https://hub.example\"\nproxies = [\"10.0.0.5\"]\n");
    home.run(&["--listen", "0.0.0.0:0"]).expect_output(1, &["no user has a password yet"]);
}

#[test]
fn only_proxies_that_are_named_may_connect() {
    let asked = |proxy: &str| {
        let home = Home::new();
        home.write(&format!("url = \"https://hub.example\"\nproxies = [\"10.0.0.5\", \"{proxy}\"]\n"));
        let (_hub, url) = start(&home);
        home.ok(&["server", "list"]);
        Rest::new(&url, "").request("GET", "/healthz", &[("host", "hub.example")], "")
    };
    assert_eq!(asked("127.0.0.0/8").unwrap().status, 200);
    let refused = asked("10.0.0.6");
    assert!(refused.is_err(), "{refused:?}");
}
