//! Key-bound tokens and their `DPoP` proofs.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use linchpin::auth::Algorithm;
use linchpin::server::HttpService;
use linchpin::{Auth, Dpop, Revision};
use ring::rand::SystemRandom;
use ring::rsa::PublicKeyComponents;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use serde_json::{Value, json};

use crate::challenges::ALGORITHMS;
use crate::issuer::{
    Calls, ISSUER, Key, METADATA, NOW, RESOURCE, auth, but, call, claims, encode, now, refusal,
};
use crate::support::web::{TestClient, request, with};

/// Key-bound token with its key.
struct Holder {
    key: Key,
    token: String,
    next: std::sync::atomic::AtomicUsize,
}

impl Holder {
    fn new(issuer: &Key) -> Self {
        let key = Key::new("holder");
        let token = issuer.sign(&but("cnf", json!({"jkt": key.thumbprint()})));
        Holder { key, token, next: 0.into() }
    }

    fn claims(&self) -> Value {
        let number = self.next.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let digest = ring::digest::digest(&ring::digest::SHA256, self.token.as_bytes());
        json!({"jti": format!("proof {number}"), "htm": "POST", "htu": RESOURCE, "iat": NOW, "ath": encode(digest)})
    }

    fn header(&self) -> Value {
        json!({"typ": "dpop+jwt", "alg": "ES256", "jwk": self.key.bare_jwk()})
    }

    fn proof(&self, header: &Value, claims: &Value) -> String {
        self.key.sign_text(&header.to_string(), &claims.to_string())
    }

    /// Returns a valid proof except for one claim; null omits it.
    fn but(&self, name: &str, value: Value) -> String {
        let mut claims = self.claims();
        claims[name] = value;
        claims.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        self.proof(&self.header(), &claims)
    }

    fn good(&self) -> String {
        self.proof(&self.header(), &self.claims())
    }

    async fn call(&self, web: &HttpService, proof: &str) -> (u16, String) {
        let sent = format!("DPoP {}", self.token);
        let mut headers = vec![("authorization", &*sent)];
        headers.extend((!proof.is_empty()).then_some(("dpop", proof)));
        let answer = call(web, "plain", &headers).await;
        if answer.status == 200 {
            return (200, String::new());
        }
        let (status, challenges, text) = refusal(answer, &self.token).await;
        let expected = format!(
            "DPoP algs=\"{ALGORITHMS}\", resource_metadata=\"{METADATA}\", scope=\"mcp:basic\", \
             error=\"invalid_dpop_proof\", error_description=\"{text}\""
        );
        assert_eq!(challenges.last(), Some(&expected));
        (status, text)
    }
}

#[tokio::test]
async fn a_good_proof_is_good_once() {
    let (issuer, calls) = (Key::new("k1"), Calls::default());
    for dpop in [Dpop::Optional, Dpop::Required] {
        let web = calls.serve(auth(&issuer).dpop(dpop));
        let holder = Holder::new(&issuer);
        let proof = holder.good();
        assert_eq!(holder.call(&web, &proof).await.0, 200);
        for _ in 0..3 {
            assert_eq!(holder.call(&web, &proof).await, (401, "the proof has already been used".into()));
        }
        assert_eq!(holder.call(&web, &holder.good()).await.0, 200);
        for (name, value) in [
            ("iat", json!(NOW - 60)),
            ("iat", json!(NOW + 60)),
            ("iat", json!(f64::from(u32::try_from(NOW).unwrap()) + 0.25)),
            ("htu", json!("https://MCP.example.com:443/mcp?x=y")),
            ("nonce", json!("anything")),
        ] {
            assert_eq!(holder.call(&web, &holder.but(name, value)).await, (200, String::new()));
        }
    }
    assert_eq!(calls.count(), 14);
}

#[tokio::test]
async fn proofs_need_not_be_signed_as_tokens_are() {
    let pem = include_str!("../keys/rsa.pem").lines().filter(|line| !line.starts_with('-'));
    let pair = RsaKeyPair::from_pkcs8(&STANDARD.decode(pem.collect::<String>()).unwrap()).unwrap();
    let public = PublicKeyComponents::<Vec<u8>>::from(pair.public());
    let keys = json!({"keys": [{"kty": "RSA", "n": encode(public.n), "e": encode(public.e)}]});
    let calls = Calls::default();
    let auth = Auth::jwt(ISSUER, RESOURCE).keys(keys).clock(now).require(["mcp:basic"]);
    let web = calls.serve(auth.algorithms([Algorithm::Rs256]).dpop(Dpop::Required));
    let mut holder = Holder::new(&Key::new("k1"));
    let bound = but("cnf", json!({"jkt": holder.key.thumbprint()}));
    let signed = format!("{}.{}", encode(r#"{"alg":"RS256","typ":"at+jwt"}"#), encode(bound.to_string()));
    let mut signature = vec![0; pair.public().modulus_len()];
    pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature).unwrap();
    holder.token = format!("{signed}.{}", encode(signature));
    assert_eq!(holder.call(&web, &holder.good()).await, (200, String::new()));
    assert_eq!(holder.call(&web, "").await.0, 401);
    let request = request(http::Method::GET, METADATA).body(String::new()).unwrap();
    let request = with(request, &[("host", "mcp.example.com")]);
    let document = TestClient::new(&web, Revision::LATEST).handle(request).await.text().await;
    let document: Value = serde_json::from_str(&document).unwrap();
    let algorithms: Vec<_> = ALGORITHMS.split(' ').collect();
    assert_eq!(document["dpop_signing_alg_values_supported"], json!(algorithms));
}

#[tokio::test]
async fn no_bad_proof_is_believed() {
    let (issuer, calls) = (Key::new("k1"), Calls::default());
    let web = calls.serve(auth(&issuer).dpop(Dpop::Optional));
    let (holder, thief) = (Holder::new(&issuer), Holder::new(&issuer));
    let header = |name: &str, value: Value| {
        let mut header = holder.header();
        header[name] = value;
        header.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        holder.proof(&header, &holder.claims())
    };
    let mut private = holder.key.bare_jwk();
    private["d"] = json!("AAAA");
    let good = holder.good();
    let (head, signature) = good.rsplit_once('.').unwrap();
    let by_thief = thief.proof(&holder.header(), &holder.claims());
    let own_key = thief.proof(&thief.header(), &holder.claims());
    let htm = "htm of the proof does not match the request method";
    let htu = "htu of the proof does not match the URL of this server";
    let iat = "iat of the proof must be within 60 seconds of the current time";
    let ath = "ath of the proof does not match the token";
    let cases = [
        (String::new(), "the proof is missing: send it in the DPoP header"),
        ("x".into(), "the proof is not a JWT: expected three parts separated by dots"),
        (head.to_owned(), "the proof is not a JWT: expected three parts separated by dots"),
        (format!("{head}.{}", &signature[..80]), "the signature is invalid"),
        (format!("{head}.{}", encode([1; 64])), "the signature is invalid"),
        (by_thief, "the signature is invalid"),
        (own_key, "the proof is signed by another key than the token is bound to"),
        (header("typ", Value::Null), "the typ of the proof must be dpop+jwt"),
        (header("typ", json!("JWT")), "the typ of the proof must be dpop+jwt"),
        (header("typ", json!("at+jwt")), "the typ of the proof must be dpop+jwt"),
        (header("alg", json!("none")), "the algorithm none is not supported"),
        (header("alg", json!("HS256")), "the algorithm HS256 is not supported"),
        (header("alg", json!("RS256")), "the key cannot be used with RS256"),
        (header("alg", json!("RS512")), "the key cannot be used with RS512"),
        (header("jwk", Value::Null), "the proof has no jwk"),
        (header("jwk", json!("k1")), "the key must be a JSON object"),
        (header("jwk", private), "the key has private members: publish only the public key"),
        (header("crit", json!(["x"])), "the header of the proof has crit, which is not accepted"),
        (holder.but("htm", json!("GET")), htm),
        (holder.but("htm", json!("post")), htm),
        (holder.but("htm", Value::Null), htm),
        (holder.but("htu", json!("https://mcp.example.com/")), htu),
        (holder.but("htu", json!("https://mcp.example.com/mcp/")), htu),
        (holder.but("htu", json!("http://mcp.example.com/mcp")), htu),
        (holder.but("htu", json!("http://localhost:8080/mcp")), htu),
        (holder.but("htu", json!("https://evil.example/mcp")), htu),
        (holder.but("htu", json!("https://evil@mcp.example.com/mcp")), htu),
        (holder.but("htu", json!("/mcp")), htu),
        (holder.but("htu", Value::Null), htu),
        (holder.but("iat", json!(NOW - 61)), iat),
        (holder.but("iat", json!(NOW + 61)), iat),
        (holder.but("iat", json!(NOW.to_string())), iat),
        (holder.but("iat", Value::Null), iat),
        (holder.but("ath", Value::Null), ath),
        (holder.but("ath", json!("")), ath),
        (holder.but("ath", thief.claims()["ath"].clone()), ath),
        (holder.but("jti", Value::Null), "the proof has no jti"),
        (holder.but("jti", json!("")), "the proof has no jti"),
        (holder.but("jti", json!(1)), "the proof has no jti"),
        (holder.but("jti", json!("x".repeat(513))), "the proof has no jti"),
    ];
    let mut rejected = 0;
    for (proof, text) in &cases {
        assert_eq!(holder.call(&web, proof).await, (401, (*text).to_owned()), "{proof}");
        rejected += 1;
    }
    let (one, two, sent) = (holder.good(), holder.good(), format!("DPoP {}", holder.token));
    let answer = call(&web, "plain", &[("authorization", &*sent), ("dpop", &*one), ("dpop", &*two)]).await;
    assert_eq!(refusal(answer, &holder.token).await.2, "the DPoP header occurs more than once");
    eprintln!("bad proofs: rejected={} accepted={}", rejected + 1, calls.count());
    assert_eq!((rejected, calls.count()), (40, 0));
}

#[tokio::test]
async fn a_bound_token_is_no_bearer_token_and_the_other_way_round() {
    let (issuer, calls) = (Key::new("k1"), Calls::default());
    let holder = Holder::new(&issuer);
    let free = issuer.sign(&claims());
    let bound = holder.token.clone();
    let optional = calls.serve(auth(&issuer).dpop(Dpop::Optional));
    let required = calls.serve(auth(&issuer).dpop(Dpop::Required));
    let off = calls.serve(auth(&issuer));
    let proof = holder.good();
    for (web, scheme, token, text) in [
        (&optional, "Bearer", &bound, "the token is bound to a key: use DPoP with a proof"),
        (&required, "Bearer", &bound, "the token is bound to a key: use DPoP with a proof"),
        (&off, "Bearer", &bound, "the token is bound to a key, but this server does not support DPoP"),
        (&optional, "DPoP", &free, "the token is not bound to a key: use Bearer"),
        (&required, "DPoP", &free, "the token is not bound to a key: use Bearer"),
        (&required, "Bearer", &free, "only DPoP-bound tokens are accepted"),
        (&off, "DPoP", &bound, "authentication required: send an access token"),
    ] {
        let sent = format!("{scheme} {token}");
        let answer = call(web, "plain", &[("authorization", &*sent), ("dpop", &*proof)]).await;
        let (status, _, said) = refusal(answer, token).await;
        assert_eq!((status, &*said), (401, text));
    }
    assert_eq!(calls.count(), 0);
    assert_eq!(call(&optional, "plain", &[("authorization", &format!("Bearer {free}"))]).await.status, 200);
}

#[tokio::test]
async fn every_request_has_a_proof_of_its_own() {
    let (issuer, calls) = (Key::new("k1"), Calls::default());
    let web = calls.serve(auth(&issuer).dpop(Dpop::Required));
    let holder = Holder::new(&issuer);
    let sent = format!("DPoP {}", holder.token);
    for (method, expected) in [("GET", 405), ("DELETE", 405), ("PUT", 405)] {
        for (htm, status) in [(method, expected), ("POST", 401)] {
            let proof = holder.but("htm", json!(htm));
            let version = ("mcp-protocol-version", Revision::LATEST.as_str());
            let request = request(method.parse().unwrap(), "/mcp").body(String::new()).unwrap();
            let request = with(request, &[("authorization", &*sent), ("dpop", &*proof), version]);
            let answer = TestClient::new(&web, Revision::LATEST).handle(request).await;
            assert_eq!(answer.status.as_u16(), status, "{method} {htm}");
        }
    }
    // The HTTP+SSE stream has a URL of its own.
    let legacy =
        calls.server().http().auth(auth(&issuer).dpop(Dpop::Required)).legacy_sse().into_service().unwrap();
    for (htu, status) in [("https://mcp.example.com/sse", 200), (RESOURCE, 401)] {
        let mut claims = holder.claims();
        (claims["htm"], claims["htu"]) = (json!("GET"), json!(htu));
        let proof = holder.proof(&holder.header(), &claims);
        let request = request(http::Method::GET, "/sse").body(String::new()).unwrap();
        let request = with(request, &[("authorization", &*sent), ("dpop", &*proof)]);
        assert_eq!(
            TestClient::new(&legacy, Revision::V2024_11_05).handle(request).await.status.as_u16(),
            status
        );
    }
    // The scope challenge uses the scheme of the token.
    let proof = holder.good();
    let answer = call(&web, "write", &[("authorization", &*sent), ("dpop", &*proof)]).await;
    let (status, challenges, _) = refusal(answer, &holder.token).await;
    assert_eq!(status, 403);
    assert!(
        challenges[0].starts_with("DPoP algs=")
            && challenges[0].contains("scope=\"mcp:basic files:write files:read\"")
    );
}
