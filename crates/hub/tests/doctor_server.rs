//! `linchpin server sign-in` and `linchpin doctor --server`, with a running hub and the authority of the test kit.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/hub.rs"]
mod hub;
mod support;

use std::time::Duration;

use http::header::{COOKIE, LOCATION, SET_COOKIE};
use http::{HeaderMap, HeaderName, Request};
use hub::Home;
use linchpin::egress::{Body, Egress, Target};
use linchpin::testing::authority::Authority;

const DOCTOR: [&str; 3] = ["doctor", "--server", "guarded"];
const TIMEOUT: Duration = Duration::from_secs(30);

/// Requests a URL as a browser. Returns the status and the headers.
async fn visit(url: &str, cookie: Option<&str>) -> (u16, HeaderMap) {
    let mut request = Request::get(url);
    if let Some(cookie) = cookie {
        request = request.header(COOKIE, cookie);
    }
    let (target, egress) = (Target::configured(url).unwrap(), Egress::default());
    let answer = egress.send(request.body(Body::default()).unwrap(), &target);
    let answer = tokio::time::timeout(TIMEOUT, answer).await.unwrap().unwrap();
    (answer.status().as_u16(), answer.headers().clone())
}

/// Asserts the exit code and the words of the doctor's output.
#[track_caller]
fn run_doctor(home: &Home, code: i32, words: &[&str]) {
    let run = home.run(&DOCTOR).expect_output(code, &[]);
    for word in words {
        assert!(
            run.stdout.split_whitespace().collect::<Vec<_>>().join(" ").contains(word),
            "{word}: {}",
            run.stdout
        );
    }
}

fn header(headers: &HeaderMap, name: HeaderName) -> String {
    headers[name].to_str().unwrap().split(';').next().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_nobody_to_a_revoked_grant() {
    let (home, authority) = (Home::new(), Authority::start(Authority::conforming()).await.unwrap());
    home.write("[egress]\nallow = [\"127.0.0.0/8\"]\n");
    let hub = home.start();
    home.ok(&["server", "add", "Guarded", "--url", &authority.mcp_url(), "--auth", "oauth"]);
    run_doctor(&home, 1, &["not signed in", "sign in with `linchpin server sign-in guarded`"]);

    // The link is sufficient for a browser without a session.
    let begun = home.json(&["server", "sign-in", "guarded", "--no-wait"]);
    assert_eq!(begun["status"], "waiting", "{begun}");
    let said = home.ok(&["server", "sign-in", "guarded", "--no-wait"]);
    let link = said.split_whitespace().find(|word| word.starts_with("http://")).unwrap();
    assert!(link.contains("/sign-in?token=") && said.contains("it works once"), "{said}");
    let (status, door) = visit(link, None).await;
    assert_eq!(status, 303);
    let (session, start) = (header(&door, SET_COOKIE), format!("{}{}", hub.url, header(&door, LOCATION)));
    let (_, left) = visit(&start, Some(&session)).await;
    let back = authority.approve(left[LOCATION].to_str().unwrap()).await.unwrap();
    let (status, _) = visit(&back.url, Some(&header(&left, SET_COOKIE))).await;
    assert_eq!(status, 200);

    let words = ["token request at", "HTTP 200", "ok sign-in signed in", "The server is usable."];
    run_doctor(&home, 0, &words);
    let healthy = home.json(&DOCTOR);
    assert_eq!((&healthy["server"], &healthy["ok"]), (&"guarded".into(), &true.into()), "{healthy}");
    let hops = healthy["trace"].as_array().unwrap().len();
    assert!(hops > 3, "{healthy}");
    let text = healthy.to_string();
    assert!(authority.secrets().iter().all(|secret| !text.contains(secret)), "{text}");

    // The grant and its trace survive a restart of the hub, and so does the revocation.
    drop(hub);
    let hub = home.start();
    assert_eq!(home.json(&DOCTOR)["trace"].as_array().unwrap().len(), hops);
    authority.revoke();
    home.run(&["tool", "call", "mcp_guarded__greet"])
        .expect_output(1, &["sign in again with `linchpin server sign-in guarded`"]);
    run_doctor(&home, 1, &["the OAuth grant is no longer accepted", "sign in again with"]);
    home.run(&["doctor", "--server", "nothing"]).expect_output(1, &["nothing"]);
    home.run(&["doctor"]).expect_output(2, &["give the URL of a server"]);
    drop(hub);
}
