//! Provided headers, rejections, and redirects that do not leak secrets.
#![cfg(feature = "http-client")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/http.rs"]
mod http;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use http::{HttpScript, Reply, client, connect, plain_reply, said, server};
use linchpin::egress::Redirects;
use linchpin::transport::http::HeadersRequest;
use linchpin::{CallError, ClientError, Error, Revision};

/// One revision of each era.
const ERAS: [Revision; 2] = [Revision::LATEST_SESSION, Revision::LATEST];

#[tokio::test]
async fn headers_are_provided_for_each_request() {
    for revision in ERAS {
        let script = server(revision, |_| None).await;
        let asked = Arc::new(Mutex::new(Vec::new()));
        let note = asked.clone();
        let provider = move |request: HeadersRequest| {
            let mut asked = note.lock().unwrap();
            asked.push(format!("{} {}", request.method, request.url));
            let number = asked.len();
            async move { Ok([("authorization", format!("Bearer {number}"))]) }
        };
        let client = client(&script).headers_with(provider).connect().await.unwrap();
        client.call("echo", ()).await.unwrap();
        if revision != Revision::LATEST {
            script.wait_for("GET", 1).await;
        }
        client.close().await;
        let mut tokens: Vec<_> =
            script.received().iter().map(|seen| seen.header("authorization").to_owned()).collect();
        tokens.sort();
        tokens.dedup();
        assert_eq!(tokens.len(), script.received().len(), "{tokens:?}");
        let asked = asked.lock().unwrap();
        assert_eq!(asked.len(), script.received().len());
        assert_eq!(asked[0], format!("POST {}", script.url()));
        assert_eq!(asked.iter().any(|asked| asked.starts_with("DELETE ")), revision != Revision::LATEST);
    }
}

#[tokio::test]
async fn a_refused_request_is_sent_once_more_with_other_headers() {
    let valid = Arc::new(AtomicUsize::new(1));
    let known = valid.clone();
    let script = HttpScript::start(move |seen| {
        if seen.header("authorization") != format!("Bearer {}", known.load(Ordering::SeqCst)) {
            return Reply::new(401, &[("www-authenticate", "Bearer error=\"invalid_token\"")], b"");
        }
        plain_reply(Revision::LATEST, seen)
    })
    .await;
    let (current, refusals) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
    let (token, note) = (current.clone(), refusals.clone());
    let provider = move |request: HeadersRequest| {
        if let Some(challenge) = request.challenge {
            note.lock().unwrap().push(challenge);
            token.fetch_add(1, Ordering::SeqCst);
        }
        let token = token.load(Ordering::SeqCst);
        async move { Ok([("authorization", format!("Bearer {token}"))]) }
    };
    let client = client(&script).headers_with(provider).connect().await.unwrap();
    assert_eq!(said(&client.call("echo", ()).await.unwrap()), "echo");
    assert_eq!(script.methods(), ["server/discover", "server/discover", "tools/call"]);
    valid.store(2, Ordering::SeqCst);
    assert_eq!(said(&client.call("echo", ()).await.unwrap()), "echo");
    assert_eq!(
        *refusals.lock().unwrap(),
        ["Bearer error=\"invalid_token\"", "Bearer error=\"invalid_token\""]
    );
    // Not without limit.
    valid.store(99, Ordering::SeqCst);
    let before = script.received().len();
    let refused = client.call("echo", ()).await.unwrap_err();
    let ClientError::Call(CallError::Transport { code, status, message }) = &refused else {
        panic!("{refused:?}")
    };
    assert_eq!((*code, *status), ("HTTP_UNAUTHORIZED", Some(401)));
    assert!(message.contains("(Bearer)"), "{message}");
    assert_eq!(script.received().len(), before + 2);
}

#[tokio::test]
async fn a_provider_that_fails_fails_the_request() {
    let script = server(Revision::LATEST, |_| None).await;
    let broken = AtomicUsize::new(0);
    let provider = move |_: HeadersRequest| {
        let number = broken.fetch_add(1, Ordering::SeqCst);
        async move {
            match number {
                1 => Err(Error::tool("the vault is locked")),
                2 => Ok(vec![("mcp-session-id", "x".to_owned())]),
                3 => Ok(vec![("x-token", "a\nb".to_owned())]),
                4 => panic!("on purpose"),
                _ => Ok(Vec::new()),
            }
        }
    };
    let client = client(&script).headers_with(provider).connect().await.unwrap();
    for reason in ["the vault is locked", "mcp-session-id", "x-token", ""] {
        let failed = client.call("echo", ()).await.unwrap_err();
        let ClientError::Call(CallError::Transport { code, .. }) = &failed else { panic!("{failed:?}") };
        assert!(*code == "HTTP_HEADERS_PROVIDER" && failed.to_string().contains(reason), "{failed}");
    }
    client.call("echo", ()).await.unwrap();
    assert_eq!(script.of("tools/call").len(), 1);
}

#[tokio::test]
async fn redirects_within_the_origin_are_followed_with_everything() {
    for status in [307, 308] {
        let script = server(Revision::LATEST_SESSION, move |seen| {
            (seen.path == "/mcp").then(|| Reply::new(status, &[("location", "/v2/mcp")], b""))
        })
        .await;
        let client = client(&script).header("authorization", "Bearer secret").connect().await.unwrap();
        assert_eq!(said(&client.call("echo", ()).await.unwrap()), "echo");
        client.close().await;
        assert!(script.received().iter().all(|seen| seen.header("authorization") == "Bearer secret"));
        let calls = script.of("tools/call");
        let paths: Vec<_> = calls.iter().map(|seen| &*seen.path).collect();
        assert_eq!(paths, ["/mcp", "/v2/mcp"]);
        assert_eq!(calls[1].header("mcp-session-id"), http::SESSION);
    }
}

#[tokio::test]
async fn redirects_elsewhere_take_no_secrets_with_them() {
    let elsewhere = server(Revision::LATEST, |_| None).await;
    let place = elsewhere.url();
    let script = HttpScript::start(move |_| Reply::new(307, &[("location", &place)], b"")).await;
    let client = client(&script)
        .header("authorization", "Bearer secret")
        .header("x-api-key", "secret")
        .header("cookie", "secret")
        .connect()
        .await
        .unwrap();
    assert_eq!(said(&client.call("echo", ()).await.unwrap()), "echo");
    assert_eq!(elsewhere.methods(), ["server/discover", "tools/call"]);
    assert_eq!(script.methods(), elsewhere.methods());
    for seen in elsewhere.received() {
        assert!(!format!("{:?}", seen.headers).contains("secret"), "{seen:?}");
        assert_eq!(seen.header("host"), elsewhere.origin().trim_start_matches("http://"));
    }
}

#[tokio::test]
async fn redirects_stay_at_home_if_they_are_told_to() {
    let elsewhere = server(Revision::LATEST, |_| None).await;
    for revision in ERAS {
        let place = elsewhere.url();
        let script = server(revision, move |seen| {
            let leads = match &*seen.path {
                "/mcp" => "/v2/mcp",
                _ if seen.is("tools/call") => &*place,
                _ => return None,
            };
            Some(Reply::new(308, &[("location", leads)], b""))
        })
        .await;
        let client = client(&script).redirects(Redirects::same_origin(3)).connect().await.unwrap();
        client.tools().all().await.unwrap();
        let refused = client.call("echo", ()).await.unwrap_err();
        let ClientError::Call(CallError::Transport { code, .. }) = &refused else { panic!("{refused:?}") };
        assert_eq!(*code, "HTTP_REDIRECT");
        let (from, to) = (script.origin(), elsewhere.origin());
        let text = format!("`{from}` redirects to `{to}`: redirects to another origin are not followed");
        assert!(refused.to_string().contains(&text), "{refused}");
        assert!(refused.to_string().contains("use the URL of that origin instead"), "{refused}");
        client.close().await;
    }
    assert_eq!(elsewhere.received().len(), 0, "not even the arguments get there");
}

#[tokio::test]
async fn redirects_have_an_end_and_bad_ones_are_said() {
    for location in ["/mcp", "ftp://example.com/", "", "http://[::1", "http://169.254.169.254/latest"] {
        let script = server(Revision::LATEST, move |seen| {
            seen.is("tools/call").then(|| Reply::new(307, &[("location", location)], b""))
        })
        .await;
        let client = connect(&script).await;
        let failed = client.call("echo", ()).await.unwrap_err();
        let ClientError::Call(CallError::Transport { code, .. }) = &failed else { panic!("{failed:?}") };
        // The client does not connect to an address that the policy refuses.
        assert!(["HTTP_REDIRECT", "HTTP_CONNECT"].contains(code), "{location}: {failed}");
        assert!(script.of("tools/call").len() <= 4, "{location}");
        client.tools().all().await.unwrap();
    }
}

#[tokio::test]
async fn a_post_is_not_made_a_get() {
    for status in [301, 302, 303] {
        let script = server(Revision::LATEST, move |seen| {
            seen.is("tools/call").then(|| Reply::new(status, &[("location", "/elsewhere")], b""))
        })
        .await;
        let client = connect(&script).await;
        let failed = client.call("echo", ()).await.unwrap_err();
        let ClientError::Call(CallError::Transport { status: Some(given), .. }) = &failed else {
            panic!("{failed:?}")
        };
        assert_eq!(*given, status);
        assert!(script.received().iter().all(|seen| seen.verb == "POST" && seen.path == "/mcp"));
    }
}
