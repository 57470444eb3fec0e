//! Static credentials: every request has exactly these, and nothing else.
#![cfg(feature = "http-client")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/http.rs"]
mod http;

use http::{client, server};
use linchpin::Revision;
use linchpin::auth::{ApiKey, Authorize, Basic, Bearer};

/// Checks everything that a client sends in its life with a server.
async fn assert_sent(revision: Revision, auth: impl Authorize, header: &str, value: &str) {
    let script = server(revision, |_| None).await;
    let client = client(&script).auth(auth).connect().await.unwrap();
    client.tools().all().await.unwrap();
    client.call("echo", ()).await.unwrap();
    let mut wanted = vec!["server/discover", "tools/list", "tools/call"];
    if revision != Revision::LATEST {
        script.wait_for("GET", 1).await; // the stream is opened in the background
        wanted.extend(["initialize", "notifications/initialized", "GET", "DELETE"]);
    }
    client.close().await;
    let methods = script.methods();
    assert!(wanted.iter().all(|wanted| methods.iter().any(|method| method == wanted)), "{methods:?}");
    let names = ["authorization", "x-api-key"];
    for seen in script.received() {
        let expected = names.map(|name| if name == header { value } else { "" });
        assert_eq!(names.map(|name| seen.header(name)), expected, "{}", seen.method());
    }
}

#[tokio::test]
async fn each_request_says_who_sends_it() {
    for revision in [Revision::LATEST, Revision::LATEST_SESSION] {
        assert_sent(revision, Bearer::new("mF_9.B5f-4.1JqM"), "authorization", "Bearer mF_9.B5f-4.1JqM")
            .await;
        assert_sent(revision, ApiKey::new("X-Api-Key", "k 1/+="), "x-api-key", "k 1/+=").await;
        // RFC 7617: a password may contain colons, and both are UTF-8.
        let basic = [
            (Basic::new("Aladdin", "open sesame"), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="),
            (Basic::new("test", "123£"), "Basic dGVzdDoxMjPCow=="),
            (Basic::new("", "a:b"), "Basic OmE6Yg=="),
        ];
        for (basic, value) in basic {
            assert_sent(revision, basic, "authorization", value).await;
        }
    }
}

#[tokio::test]
async fn what_no_header_can_say_is_not_sent() {
    let script = server(Revision::LATEST, |_| None).await;
    let builder = || client(&script);
    for (refused, why) in [
        (builder().auth(Bearer::new("a\r\nb: c")), "characters that are not allowed in a header"),
        (builder().auth(ApiKey::new("a b", "c")), "a b"),
        (builder().auth(Basic::new("a:b", "c")), "the user name of `Basic` must not contain `:`"),
    ] {
        let error = refused.connect().await.unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    assert_eq!(script.methods(), [""; 0]);
}
