//! Request bodies: content type, size limits, strict JSON, and no stdio servers over REST.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::fixture::{RESPONSE_TIMEOUT, Site};

const JSON: (&str, &str) = ("Content-Type", "application/json");

#[tokio::test]
async fn what_is_sent_is_json_and_says_so() {
    let site = Site::new().await;
    let token = format!("Bearer {}", site.token);
    let authorized = ("Authorization", &*token);
    let form = r#"{"name":"agent"}"#;
    for kind in ["text/plain", "application/json; charset=utf-16", "application/x-www-form-urlencoded", ""] {
        let headers = [authorized, ("Content-Type", kind)];
        let answer = site.send("POST", "/api/v1/agents", &headers, Some(form)).await;
        answer.assert_problem(415, "wrong_content_type");
    }
    site.send("POST", "/api/v1/agents", &[authorized], Some(form))
        .await
        .assert_problem(415, "wrong_content_type");
    site.send("POST", "/api/v1/agents", &[authorized, JSON, JSON], Some(form))
        .await
        .assert_problem(415, "wrong_content_type");
    for (number, kind) in
        ["application/json; charset=utf-8", "Application/JSON ; charset=\"UTF-8\""].iter().enumerate()
    {
        let form = format!(r#"{{"name":"agent {number}"}}"#);
        let headers = [authorized, ("Content-Type", kind)];
        let made = site.send("POST", "/api/v1/agents", &headers, Some(&form)).await.ok();
        site.delete(&format!("/agents/{}", made["id"].as_str().unwrap())).await.ok();
    }
    let send = async |body: &str| site.send("POST", "/api/v1/agents", &[authorized, JSON], Some(body)).await;
    for (body, code) in [
        ("", "not_json"),
        ("{", "not_json"),
        ("{\"name\":\"a\"} {}", "not_json"),
        ("{'name':'a'}", "not_json"),
        ("{\"name\":\"a\",}", "not_json"),
        ("{\"name\":NaN}", "not_json"),
        ("{\"name\":\"a\",\"name\":\"b\"}", "duplicate_key"),
        ("{\"name\":\"a\",\"n\\u0061me\":\"b\"}", "duplicate_key"),
        ("{\"name\":\"a\",\"servers\":{\"up\":{\"tools\":[],\"tools\":[]}}}", "duplicate_key"),
    ] {
        send(body).await.assert_problem(400, code);
    }
    let deep = format!("{{\"name\":{}{}}}", "[".repeat(70), "]".repeat(70));
    send(&deep).await.assert_problem(400, "json_limit");
    for body in ["[]", "\"name\"", "null", "1"] {
        send(body).await.assert_invalid_field("body");
    }
    let head = format!(
        "POST /api/v1/agents HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Authorization: {token}\r\nContent-Length: 12\r\n\r\n"
    );
    let bad = [head.as_bytes(), b"{\"name\":\"\xff\"}"];
    site.raw(&bad.concat()).await.assert_problem(400, "not_utf8");
    assert_eq!(site.get("/agents").await.ok()["items"], json!([]));
}

#[tokio::test]
async fn a_number_that_would_not_arrive_as_it_was_sent_is_refused() {
    let site = Site::with_server().await;
    let token = format!("Bearer {}", site.token);
    let send = async |path: &str, body: String| {
        site.send("POST", &format!("/api/v1{path}"), &[("Authorization", &*token), JSON], Some(&body)).await
    };
    let number = "18446744073709551616";
    for (path, body) in [
        ("/calls", format!(r#"{{"tool":"mcp_up__echo","arguments":{{"n":{number}}}}}"#)),
        ("/tools/mcp_up__echo/call", format!(r#"{{"arguments":{{"deep":[{{"n":-{number}}}]}}}}"#)),
    ] {
        let problem = send(path, body).await.assert_problem(400, "number_too_wide");
        assert!(problem["detail"].as_str().unwrap().contains(number), "{problem}");
    }
    let body = format!(r#"{{"arguments":{{"message":"{number}","most":18446744073709551615}}}}"#);
    assert_eq!(send("/tools/mcp_up__echo/call", body).await.status, 200);
}

#[tokio::test]
async fn what_is_too_long_is_refused_before_it_is_read() {
    let site = Site::with_server().await;
    let token = format!("Bearer {}", site.token);
    let head = |path: &str, length: usize| {
        format!(
            "POST /api/v1{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Authorization: {token}\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n\r\n"
        )
    };
    // The body is never sent.
    site.raw(head("/agents", (1 << 20) + 1).as_bytes()).await.assert_problem(413, "body_too_large");
    site.raw(head("/agents", usize::MAX >> 8).as_bytes()).await.assert_problem(413, "body_too_large");
    site.raw(head("/session", (4 << 10) + 1).as_bytes()).await.assert_problem(413, "body_too_large");
    let stranger =
        "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 1\r\n\r\n";
    site.raw(stranger.as_bytes()).await.assert_problem(413, "body_too_large");
    site.raw(head("/calls", (4 << 20) + 1).as_bytes()).await.assert_problem(413, "body_too_large");
    let long = json!({"tool": "mcp_up__echo", "arguments": {"message": "x".repeat(2 << 20)}});
    let call = site.post("/calls", long).await.ok();
    assert_eq!((call["status"].as_str(), site.ran()), (Some("success"), 1), "the limit for calls is higher");
}

#[tokio::test]
async fn paths_and_pages_of_any_kind_are_answered_in_good_order() {
    let site = Site::with_server().await;
    for path in ["%00", "%ff", "..", "a%2Fb", "%F0%9F%92%A9", "up%20", "'--", &"x".repeat(5_000)] {
        for noun in ["servers", "tools", "calls", "approvals", "approval-rules", "agents", "users"] {
            let answer = site.get(&format!("/{noun}/{path}")).await;
            let problem = answer.json();
            assert!(answer.status == 404 && problem["status"] == 404, "{noun}/{path}: {answer:?}");
        }
    }
    for noun in [
        "servers",
        "tools",
        "calls",
        "approvals",
        "approval-rules",
        "agents",
        "users",
        "tokens",
        "servers/up/prompts",
    ] {
        for after in ["", "x", "%00", "%ff", "0000000000", "00000000-0000-0000-0000-000000000000", "'--"] {
            let answer = site.get(&format!("/{noun}?after={after}")).await;
            assert!([200, 404, 422].contains(&answer.status), "{noun}?after={after}: {answer:?}");
        }
    }
}

#[tokio::test]
async fn nothing_that_is_sent_is_a_command() {
    let site = Site::with_server().await;
    let trace = site.place.path().join("trace");
    let touch = json!(["-c", format!("touch {}", trace.display())]);
    let forms = [
        ("command", json!({"name": "x", "command": "sh", "args": touch})),
        ("command", json!({"name": "x", "url": "https://x.example", "command": "sh"})),
        ("args", json!({"name": "x", "url": "https://x.example", "args": touch})),
        ("env", json!({"name": "x", "url": "https://x.example", "env": {"LD_PRELOAD": "x"}})),
        ("cwd", json!({"name": "x", "url": "https://x.example", "cwd": "/"})),
        ("directory", json!({"name": "x", "url": "https://x.example", "directory": "/"})),
        ("transport", json!({"name": "x", "url": "https://x.example", "transport": "stdio"})),
    ];
    for (field, form) in &forms {
        site.post("/servers", form.clone()).await.assert_invalid_field(field);
        site.post("/servers/test", form.clone()).await.assert_invalid_field(field);
        let change = json!({*field: form[*field]});
        site.patch("/servers/up", change).await.assert_invalid_field(field);
    }
    let command = json!({"command": "sh", "args": touch});
    for path in ["test", "connect", "disconnect", "sync", "enable", "disable", "trust"] {
        site.post(&format!("/servers/up/{path}"), command.clone()).await.assert_invalid_field("command");
    }
    for path in ["/agents", "/users", "/tokens", "/calls", "/keys/rotate", "/tools/mcp_up__echo/call"] {
        let mut form = command.clone();
        form["name"] = json!("x");
        let answer = site.post(path, form).await;
        assert_eq!(answer.status, 422, "{path}: {answer:?}");
    }
    let names: Vec<_> =
        site.get("/servers").await.ok()["items"].as_array().unwrap().iter().map(name).collect();
    assert_eq!(names, ["Up"], "no server was added");
    assert!(!trace.exists() && site.ran() == 0);
}

fn name(server: &Value) -> String {
    server["name"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn what_nobody_asked_for_is_an_error() {
    let site = Site::with_server().await;
    for path in ["/servers/up/connect", "/servers/up/enable", "/keys/rotate"] {
        site.post(path, json!({"unknown": 1})).await.assert_invalid_field("unknown");
        assert_eq!(site.post(path, json!({})).await.status, 200, "{path}");
    }
    site.post("/agents", json!({"name": "a", "aproval": "auto"})).await.assert_invalid_field("aproval");
    for (path, field) in [
        ("/servers?unknown=1", "unknown"),
        ("/servers?enabled=yes", "enabled"),
        ("/servers?status=happy", "status"),
        ("/servers?limit=0", "limit"),
        ("/servers?limit=501", "limit"),
        ("/servers?limit=5&limit=6", "limit"),
        ("/tools?state=old", "state"),
        ("/calls?status=done", "status"),
        ("/calls?since=yesterday", "since"),
        ("/approvals?decision=maybe", "decision"),
        ("/audit?after=x", "after"),
        ("/audit?after=-1", "after"),
        ("/audit?after=9223372036854775808", "after"),
        ("/audit?after=18446744073709551615", "after"),
        ("/audit/export?after=18446744073709551615", "after"),
        ("/status?x=1", "x"),
    ] {
        site.get(path).await.assert_invalid_field(field);
    }
    assert_eq!(site.get("/audit?after=9223372036854775807").await.ok()["items"], json!([]));
}

#[tokio::test]
async fn one_caller_cannot_take_all_room_for_bodies() {
    const LENGTH: usize = 4 << 20;
    let site = Site::with_server().await;
    let (_, greedy) = site.agent("auto").await;
    let (_, other) = site.agent("always-ask").await;
    let head = format!(
        "POST /api/v1/tools/mcp_up__echo/call HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {greedy}\r\n\
         Content-Type: application/json\r\nContent-Length: {LENGTH}\r\n\r\n",
        site.address
    );
    let mut all = JoinSet::new();
    for _ in 0..16 {
        let (address, head) = (site.address, head.clone());
        all.spawn(async move {
            let mut socket = TcpStream::connect(address).await.unwrap();
            let almost = [head.into_bytes(), vec![b' '; LENGTH - 1]].concat();
            let _ = socket.write_all(&almost).await; // the hub may reject it before it has read everything
            let mut status = [0; 12];
            socket.read_exact(&mut status).await.map(|_| String::from_utf8_lossy(&status).into_owned())
        });
    }
    // A caller may use half of the memory: half of these bodies are rejected, some while they are still being sent.
    for _ in 0..8 {
        let ended = tokio::time::timeout(RESPONSE_TIMEOUT / 4, all.join_next()).await;
        let status = ended.expect("the request is rejected at once").unwrap().unwrap();
        assert!(status.as_ref().map_or(true, |status| status == "HTTP/1.1 503"), "{status:?}");
    }
    let form = json!({"arguments": {"message": "x".repeat(1 << 20)}});
    let answer = site.send_as(&other, "POST", "/tools/mcp_up__echo/call?wait=false", Some(form)).await;
    assert!([200, 202].contains(&answer.status), "{answer:?}");
}
