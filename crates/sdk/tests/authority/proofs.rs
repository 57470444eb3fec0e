//! Tokens bound to a key.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use linchpin::testing::authority::{Authority, KnownClient, Misbehaviour};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::raw::*;

pub(crate) struct Key(EcdsaKeyPair);

impl Key {
    pub(crate) fn generate() -> Self {
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new());
        Key::new(pkcs8.unwrap().as_ref())
    }

    pub(crate) fn from_pem(pem: &str) -> Self {
        let text: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
        Key::new(&STANDARD.decode(text).unwrap())
    }

    fn new(pkcs8: &[u8]) -> Self {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8, &SystemRandom::new());
        Key(pair.unwrap())
    }

    fn jwk(&self) -> Value {
        let (x, y) = self.0.public_key().as_ref()[1..].split_at(32);
        json!({ "kty": "EC", "crv": "P-256", "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y) })
    }

    pub(crate) fn sign(&self, kind: &str, jwk: Option<Value>, claims: &Value) -> String {
        let mut header = json!({ "alg": "ES256", "typ": kind });
        if let Some(jwk) = jwk {
            header["jwk"] = jwk;
        }
        let [header, claims] = [&header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
        let text = format!("{header}.{claims}");
        let signature = self.0.sign(&SystemRandom::new(), text.as_bytes()).unwrap();
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    /// Creates a proof for a request, with additional claims.
    fn proof(&self, authority: &Authority, url: &str, more: &Value) -> String {
        let since = authority.clock()().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let jti = format!("{:?}", std::time::Instant::now());
        let mut claims = json!({ "htm": "POST", "htu": url, "iat": since, "jti": jti });
        claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.sign("dpop+jwt", Some(self.jwk()), &claims)
    }
}

async fn redeem_with(authority: &Authority, proof: Option<&str>) -> Answer {
    let redirect = approve(authority, &[]).await;
    let resource = authority.mcp_url();
    let form = [
        ("grant_type", "authorization_code"),
        ("client_id", KnownClient::Public.id()),
        ("code", redirect.parameter("code").unwrap()),
        ("redirect_uri", BACK),
        ("code_verifier", VERIFIER),
        ("resource", &*resource),
    ];
    let headers: Vec<_> = proof.map(|proof| ("dpop", proof)).into_iter().collect();
    post_form(&format!("{}/token", authority.issuer()), &headers, &form).await
}

async fn call_bound(authority: &Authority, token: &str, proof: &str) -> Answer {
    let authorization = format!("DPoP {token}");
    call_with(authority, "greet", &[("authorization", &authorization), ("dpop", proof)]).await
}

fn hash(token: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(token))
}

#[tokio::test]
async fn a_token_is_bound_to_a_key() {
    let authority = with(Misbehaviour::Dpop).await;
    let (key, other) = (Key::generate(), Key::generate());
    let (token_url, mcp) = (format!("{}/token", authority.issuer()), authority.mcp_url());
    assert_eq!(metadata(&authority).await["dpop_signing_alg_values_supported"], json!(["ES256"]));
    let wrong = [
        None,
        Some("nonsense".to_owned()),
        Some(key.proof(&authority, &mcp, &json!({}))),
        Some(key.proof(&authority, &token_url, &json!({ "htm": "GET" }))),
        Some(key.proof(&authority, &token_url, &json!({ "iat": 1 }))),
        Some(key.proof(&authority, &token_url, &json!({ "jti": "" }))),
        Some(key.sign("JWT", Some(key.jwk()), &json!({}))),
        Some(key.sign("dpop+jwt", Some(other.jwk()), &json!({}))),
    ];
    for proof in wrong {
        let answer = redeem_with(&authority, proof.as_deref()).await;
        assert_eq!(answer.error(), (400, "invalid_dpop_proof".into()), "{proof:?}");
    }
    let proof = key.proof(&authority, &token_url, &json!({}));
    let tokens = redeem_with(&authority, Some(&proof)).await;
    assert_eq!(tokens.json()["token_type"], "DPoP");
    assert_eq!(redeem_with(&authority, Some(&proof)).await.error(), (400, "invalid_dpop_proof".into()));

    let token = access_token(&tokens);
    let good = |key: &Key| key.proof(&authority, &mcp, &json!({ "ath": hash(&token) }));
    let proof = good(&key);
    assert_eq!(call_bound(&authority, &token, &proof).await.status, 200);
    assert_eq!(call_bound(&authority, &token, &proof).await.status, 401, "replayed");
    assert_eq!(call_bound(&authority, &token, &good(&other)).await.status, 401, "another key");
    let without = key.proof(&authority, &mcp, &json!({}));
    assert_eq!(call_bound(&authority, &token, &without).await.status, 401, "of no token");
    let as_bearer = call(&authority, "greet", &token).await;
    assert_eq!(as_bearer.status, 401);
    assert!(as_bearer.header("www-authenticate").starts_with("DPoP "), "{:?}", as_bearer.headers);
}

#[tokio::test]
async fn proofs_need_nonces() {
    let authority = with(Misbehaviour::DpopNonce).await;
    let key = Key::generate();
    let (token_url, mcp) = (format!("{}/token", authority.issuer()), authority.mcp_url());
    let refused = redeem_with(&authority, Some(&key.proof(&authority, &token_url, &json!({})))).await;
    assert_eq!(refused.error(), (400, "use_dpop_nonce".into()));
    let nonce = refused.header("dpop-nonce").to_owned();
    let proof = key.proof(&authority, &token_url, &json!({ "nonce": nonce }));
    let token = access_token(&redeem_with(&authority, Some(&proof)).await);
    let proof = key.proof(&authority, &mcp, &json!({ "ath": hash(&token), "nonce": nonce }));
    assert_eq!(call_bound(&authority, &token, &proof).await.status, 200);
    authority.rotate_nonce();
    let proof = key.proof(&authority, &mcp, &json!({ "ath": hash(&token), "nonce": nonce }));
    let refused = call_bound(&authority, &token, &proof).await;
    assert_eq!(refused.status, 401);
    assert!(refused.header("www-authenticate").contains("error=\"use_dpop_nonce\""));
    assert_ne!(refused.header("dpop-nonce"), nonce);
}

#[tokio::test]
async fn no_nonce_is_ever_right() {
    let authority = with(Misbehaviour::DpopNonceForever).await;
    let (key, token_url) = (Key::generate(), format!("{}/token", authority.issuer()));
    let mut nonce = String::new();
    for _ in 0..5 {
        let proof = key.proof(&authority, &token_url, &json!({ "nonce": nonce }));
        let refused = redeem_with(&authority, Some(&proof)).await;
        assert_eq!(refused.error(), (400, "use_dpop_nonce".into()));
        assert_ne!(refused.header("dpop-nonce"), nonce);
        nonce = refused.header("dpop-nonce").to_owned();
    }
}
