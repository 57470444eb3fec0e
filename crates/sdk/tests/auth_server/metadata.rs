//! Protected resource metadata.

use http::Method;
use linchpin::{Auth, Dpop, Revision, Server};
use serde_json::{Value, json};

use crate::issuer::{Calls, ISSUER, Key, RESOURCE, auth};
use crate::support::web::{Answer, TestClient, request, with};

async fn get(auth: Auth, method: Method, path: &str, headers: &[(&str, &str)]) -> Answer {
    let web = Calls::default().serve(auth);
    let request = with(request(method, path).body(String::new()).unwrap(), headers);
    TestClient::new(&web, Revision::LATEST).handle(request).await
}

async fn document(auth: Auth, path: &str) -> Value {
    let answer = get(auth, Method::GET, path, &[]).await;
    assert_eq!(answer.status, 200, "{path}");
    serde_json::from_str(&answer.text().await).unwrap()
}

const PATH: &str = "/.well-known/oauth-protected-resource/mcp";
const ROOT: &str = "/.well-known/oauth-protected-resource";

#[tokio::test]
async fn it_is_where_clients_look_for_it() {
    let key = Key::new("k1");
    let expected = json!({
        "resource": RESOURCE, "authorization_servers": [ISSUER], "scopes_supported": ["mcp:basic"],
        "bearer_methods_supported": ["header"],
    });
    for path in [PATH, ROOT] {
        assert_eq!(document(auth(&key), path).await, expected);
    }
    let auth = || {
        Auth::opaque(["https://a.example", "https://b.example/x"], "https://mcp.example.com", |_| async {
            Ok(None)
        })
    };
    let full = auth()
        .require(["a"])
        .scopes_supported(["a", "b"])
        .dpop(Dpop::Optional)
        .name("Files")
        .documentation("https://docs.example");
    assert_eq!(
        document(full, ROOT).await,
        json!({
            "resource": "https://mcp.example.com", "authorization_servers": ["https://a.example", "https://b.example/x"],
            "scopes_supported": ["a", "b"], "bearer_methods_supported": ["header"],
            "dpop_signing_alg_values_supported":
                ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"],
            "dpop_bound_access_tokens_required": false,
            "resource_name": "Files", "resource_documentation": "https://docs.example",
        })
    );
    assert_eq!(document(auth().dpop(Dpop::Required), ROOT).await["dpop_bound_access_tokens_required"], true);
    assert_eq!(get(auth(), Method::GET, PATH, &[]).await.status, 404, "that of another resource");
}

#[tokio::test]
async fn pages_may_read_it_and_only_read() {
    let key = Key::new("k1");
    for origin in [
        &[][..],
        &[("origin", "https://app.example")],
        &[("origin", "null"), ("sec-fetch-site", "cross-site")],
    ] {
        let answer = get(auth(&key), Method::GET, PATH, origin).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
        assert_eq!(answer.header("content-type"), Some("application/json"));
        assert_eq!(answer.header("cache-control"), Some("public, max-age=300"));
    }
    let head = get(auth(&key), Method::HEAD, PATH, &[]).await;
    assert_eq!((head.status.as_u16(), head.text().await), (200, String::new()));
    let preflight = get(auth(&key), Method::OPTIONS, PATH, &[("origin", "https://app.example")]).await;
    assert_eq!(preflight.status, 204);
    assert_eq!(preflight.header("access-control-allow-headers"), Some("*"));
    let posted = get(auth(&key), Method::POST, PATH, &[]).await;
    assert_eq!((posted.status.as_u16(), posted.header("allow")), (405, Some("GET, HEAD, OPTIONS")));
    for host in ["evil.example", "mcp.example.com.evil.example"] {
        assert_eq!(get(auth(&key), Method::GET, PATH, &[("host", host)]).await.status, 403);
    }
    let own = get(auth(&key), Method::GET, PATH, &[("host", "mcp.example.com")]).await;
    assert_eq!(own.status, 200, "the host of the resource is served");
}

#[tokio::test]
async fn without_auth_there_is_none() {
    let guarded = Calls::default().server().http().into_service().err().unwrap().to_string();
    assert!(guarded.contains("requires scopes, but the endpoint has no `auth`"), "{guarded}");
    let web = Server::new("open", "1").http().into_service().unwrap();
    let request = request(Method::GET, ROOT).body(String::new()).unwrap();
    assert_eq!(TestClient::new(&web, Revision::LATEST).handle(request).await.status, 404);
}

#[cfg(feature = "axum")]
#[tokio::test]
async fn a_router_has_it_as_well() {
    use tower_service::Service as _;
    let key = Key::new("k1");
    let mut router = Calls::default().server().http().auth(auth(&key)).into_router().unwrap();
    for (path, status) in [(PATH, 200), (ROOT, 200), ("/mcp", 401), ("/other", 404)] {
        let request = request(Method::GET, path).body(axum::body::Body::empty()).unwrap();
        assert_eq!(router.call(request).await.unwrap().status(), status, "{path}");
    }
}

#[tokio::test]
async fn a_listener_serves_it() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let key = Key::new("k1");
    let endpoint = Calls::default().server().http().auth(auth(&key)).bind("127.0.0.1:0").await.unwrap();
    let address = endpoint.address();
    let running = crate::support::web::BackgroundTask::start(endpoint.run());
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let text = format!("GET {PATH} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains(RESOURCE), "{answer}");
    drop(running);
}
