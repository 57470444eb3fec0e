//! Authorization server as a resource server sees it: keys, and tokens signed with them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use linchpin::server::HttpService;
use linchpin::{Auth, Context, Identity, NoArgs, Server, Tool};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};

use crate::support::web::{Answer, TestClient, borrowed, modern, post};

pub(crate) const ISSUER: &str = "https://auth.example.com";
pub(crate) const RESOURCE: &str = "https://mcp.example.com/mcp";
pub(crate) const METADATA: &str = "https://mcp.example.com/.well-known/oauth-protected-resource/mcp";
/// Current time of the tests, in seconds since the Unix epoch.
pub(crate) const NOW: u64 = 1_800_000_000;

pub(crate) fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

pub(crate) fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(NOW)
}

/// Signing key.
pub(crate) struct Key {
    pair: EcdsaKeyPair,
    id: &'static str,
}

impl Key {
    pub(crate) fn new(id: &'static str) -> Self {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let made = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        Key { pair: EcdsaKeyPair::from_pkcs8(algorithm, made.as_ref(), &random).unwrap(), id }
    }

    pub(crate) fn jwk(&self) -> Value {
        let (x, y) = self.pair.public_key().as_ref()[1..].split_at(32);
        json!({"kty": "EC", "crv": "P-256", "x": encode(x), "y": encode(y), "kid": self.id, "use": "sig"})
    }

    /// Returns the public key as proofs contain it.
    pub(crate) fn bare_jwk(&self) -> Value {
        let mut jwk = self.jwk();
        jwk.as_object_mut().unwrap().retain(|name, _| !["kid", "use"].contains(&name.as_str()));
        jwk
    }

    pub(crate) fn thumbprint(&self) -> String {
        let jwk = self.jwk();
        let text = format!(r#"{{"crv":"P-256","kty":"EC","x":{},"y":{}}}"#, jwk["x"], jwk["y"]);
        encode(ring::digest::digest(&ring::digest::SHA256, text.as_bytes()))
    }

    /// Signs a header and claims given as text.
    pub(crate) fn sign_text(&self, header: &str, claims: &str) -> String {
        let signed = format!("{}.{}", encode(header), encode(claims));
        let signature = self.pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", encode(signature))
    }

    pub(crate) fn sign(&self, claims: &Value) -> String {
        let header = json!({"alg": "ES256", "typ": "at+jwt", "kid": self.id});
        self.sign_text(&header.to_string(), &claims.to_string())
    }
}

pub(crate) fn set(keys: &[&Key]) -> Value {
    json!({"keys": keys.iter().map(|key| key.jwk()).collect::<Vec<_>>()})
}

/// Returns the claims of a valid token.
pub(crate) fn claims() -> Value {
    json!({
        "iss": ISSUER, "aud": RESOURCE, "sub": "ada", "client_id": "app", "scope": "mcp:basic files:read",
        "exp": NOW + 600, "iat": NOW - 5, "nbf": NOW - 5, "jti": "1",
    })
}

/// Returns valid claims except for one; null omits it.
pub(crate) fn but(name: &str, value: Value) -> Value {
    let mut claims = claims();
    if value.is_null() {
        claims.as_object_mut().unwrap().remove(name);
    } else {
        claims[name] = value;
    }
    claims
}

pub(crate) fn auth(key: &Key) -> Auth {
    Auth::jwt(ISSUER, RESOURCE).keys(set(&[key])).clock(now).require(["mcp:basic"])
}

/// Server with tools that require scopes, which counts the calls.
#[derive(Clone, Default)]
pub(crate) struct Calls(Arc<AtomicUsize>);

impl Calls {
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    pub(crate) fn server(&self) -> Server {
        let count = |tool: Tool| {
            let calls = self.0.clone();
            tool.handler(move |_: NoArgs| {
                calls.fetch_add(1, Ordering::SeqCst);
                async { "done" }
            })
        };
        Server::new("guarded", "1")
            .add(count(Tool::new("plain")))
            .add(count(Tool::new("read").scopes(["files:read"])))
            .add(count(Tool::new("write").scopes(["files:write", "files:read"])))
            .tool("who", "", |_: NoArgs, cx: Context| async move {
                let identity = cx.identity().unwrap();
                let http = cx.http().unwrap();
                assert!(!http.headers.contains_key("authorization"), "handlers cannot forward it");
                assert!(!http.headers.contains_key("dpop"));
                assert_eq!(cx.principal(), Some(identity.subject()));
                describe(identity)
            })
            .tool("session", "", |_: NoArgs, cx: Context| async move { cx.session().is_ok() })
    }

    pub(crate) fn serve(&self, auth: Auth) -> HttpService {
        self.server().http().auth(auth).into_service().unwrap()
    }
}

fn describe(identity: &Identity) -> String {
    let scopes: Vec<_> = identity.scopes().collect();
    let claim = identity.claim("jti").and_then(Value::as_str).unwrap_or_default();
    format!(
        "{} {:?} {:?} {} {claim}",
        identity.subject(),
        identity.issuer(),
        identity.client_id(),
        scopes.join(" ")
    )
}

/// Calls a tool in the stateless era, with additional headers.
pub(crate) async fn call(web: &HttpService, tool: &str, more: &[(&str, &str)]) -> Answer {
    let (message, headers) = modern(1, "tools/call", json!({"name": tool, "arguments": {}}));
    let mut headers = borrowed(&headers);
    headers.extend_from_slice(more);
    let guest = TestClient::new(web, linchpin::Revision::LATEST);
    guest.record_sent(&message);
    guest.handle(post(&message, &headers)).await
}

pub(crate) async fn call_with(web: &HttpService, tool: &str, token: &str) -> Answer {
    call(web, tool, &[("authorization", &format!("Bearer {token}"))]).await
}

pub(crate) fn challenges(headers: &HeaderMap) -> Vec<String> {
    headers.get_all("www-authenticate").iter().map(|value| value.to_str().unwrap().to_owned()).collect()
}

/// Returns the status, the challenges and the text of a rejection, which must not contain the token.
pub(crate) async fn refusal(answer: Answer, token: &str) -> (u16, Vec<String>, String) {
    let (status, challenges) = (answer.status.as_u16(), challenges(&answer.headers));
    let message = answer.message().await;
    assert_eq!(message["error"]["code"], -32600, "{message}");
    assert!(message.get("id").is_none());
    let text = message["error"]["message"].as_str().unwrap().to_owned();
    assert!(token.is_empty() || !format!("{challenges:?} {message}").contains(token));
    (status, challenges, text)
}
