//! Valid and invalid tokens. Every defect is reported in the same way, and no handler is called.

use serde_json::{Value, json};

use crate::issuer::{
    Calls, ISSUER, Key, METADATA, NOW, RESOURCE, auth, but, call_with, claims, encode, refusal, set,
};
use crate::support::web::text_of;

/// Returns a token with another header.
fn headed(key: &Key, header: &str) -> String {
    key.sign_text(header, &claims().to_string())
}

/// Returns a token with these claims, as text.
fn saying(key: &Key, claims: &str) -> String {
    key.sign_text(r#"{"alg":"ES256","kid":"k1"}"#, claims)
}

fn with_claim(key: &Key, name: &str, value: Value) -> String {
    key.sign(&but(name, value))
}

/// Malformed tokens, regardless of their signature.
fn misshapen(key: &Key) -> Vec<(String, &'static str)> {
    const PARTS: &str = "the token is not a JWT: expected three parts separated by dots";
    const SIGNATURE: &str = "the signature of the token is empty or not base64url";
    const WRONG: &str = "the signature is invalid";
    const TYP: &str = "the token is not an access token: its typ must be at+jwt or JWT";
    let good = key.sign(&claims());
    let parts: Vec<&str> = good.split('.').collect();
    let (head, body, signature) = (parts[0], parts[1], parts[2]);
    let unsigned = |header: &str| format!("{}.{body}.", encode(header));
    let signed = |header: &str| format!("{}.{body}.{signature}", encode(header));
    let text = claims().to_string();
    let open = text.trim_end_matches('}');
    vec![
        ("x".into(), PARTS),
        (".".into(), PARTS),
        ("a.b".into(), PARTS),
        (format!("{good}.x"), PARTS),
        (format!("{good}.x.y"), PARTS),
        (format!("{head}.{body}"), PARTS),
        (format!("{head}.{body}."), SIGNATURE),
        (format!("{head}.{body}.="), SIGNATURE),
        (format!("{good}="), SIGNATURE),
        (format!("{good}AAA"), SIGNATURE),
        (format!("{head}.{body}.{}", &signature[..84]), WRONG),
        (format!("{head}.{body}.{}", encode([0; 64])), WRONG),
        (format!("{head}.{body}.{}", encode([255; 64])), WRONG),
        (format!("{head}.{body}.{}", encode([7; 63])), WRONG),
        (format!("{head}.{body}.{}", encode([7; 72])), WRONG),
        (format!("{head}.{}.{signature}", encode(but("sub", json!("root")).to_string())), WRONG),
        (format!("{head}.{}.{signature}", encode(but("scope", json!("admin")).to_string())), WRONG),
        (signed(r#"{"alg":"ES256","typ":"at+jwt","kid":"k1","a":1}"#), WRONG),
        (Key::new("k1").sign(&claims()), WRONG),
        (Key::new("k2").sign(&claims()), "the token is signed with an unknown key"),
        (headed(key, r#"{"alg":"ES256","kid":""}"#), "the token is signed with an unknown key"),
        (headed(key, r#"{"alg":"ES256","kid":"K1"}"#), "the token is signed with an unknown key"),
        (headed(key, r#"{"alg":"ES256","kid":"../k1"}"#), "the token is signed with an unknown key"),
        (unsigned(r#"{"alg":"none"}"#), "the algorithm none is not supported"),
        (signed(r#"{"alg":"none"}"#), "the algorithm none is not supported"),
        (signed(r#"{"alg":"NONE"}"#), "the algorithm NONE is not supported"),
        (signed(r#"{"alg":"HS256","kid":"k1"}"#), "the algorithm HS256 is not supported"),
        (signed(r#"{"alg":"HS512"}"#), "the algorithm HS512 is not supported"),
        (signed(r#"{"alg":"es256"}"#), "the algorithm es256 is not supported"),
        (signed(r#"{"alg":"ES512"}"#), "the algorithm ES512 is not supported"),
        (signed(r#"{"alg":"ES256K"}"#), "the algorithm ES256K is not supported"),
        (signed(r#"{"alg":"\"a\\"}"#), "the algorithm is not supported"),
        (signed(r#"{"alg":"RS512"}"#), "the algorithm RS512 is not accepted"),
        (signed(r#"{"alg":"RS256","kid":"k1"}"#), "the token is signed with an unknown key"),
        (signed(r#"{"alg":"ES384","kid":"k1"}"#), "the token is signed with an unknown key"),
        (signed(r#"{"alg":"EdDSA","kid":"k1"}"#), "the token is signed with an unknown key"),
        (headed(key, r#"{"kid":"k1"}"#), "the header of the token has no alg"),
        (headed(key, r#"{"alg":["ES256"]}"#), "alg in the header of the token must be a string"),
        (headed(key, r#"{"alg":"ES256","kid":1}"#), "kid in the header of the token must be a string"),
        (headed(key, r#"{"alg":"ES256","alg":"ES256"}"#), "the header of the token has a duplicate key"),
        (
            headed(key, r#"{"alg":"ES256","crit":[]}"#),
            "the header of the token has crit, which is not accepted",
        ),
        (
            headed(key, r#"{"alg":"ES256","b64":true}"#),
            "the header of the token has b64, which is not accepted",
        ),
        (
            headed(key, r#"{"alg":"ES256","zip":"DEF"}"#),
            "the header of the token has zip, which is not accepted",
        ),
        (headed(key, "[]"), "the header of the token is not a JSON object"),
        (headed(key, "{"), "the header of the token is not JSON"),
        (headed(key, r#"{"alg":"ES256","kid":"k1","typ":"dpop+jwt"}"#), TYP),
        (headed(key, r#"{"alg":"ES256","kid":"k1","typ":"id+jwt"}"#), TYP),
        (headed(key, r#"{"alg":"ES256","kid":"k1","typ":"logout+jwt"}"#), TYP),
        (headed(key, r#"{"alg":"ES256","kid":"k1","typ":""}"#), TYP),
        (
            headed(key, r#"{"alg":"ES256","kid":"k1","typ":null}"#),
            "typ in the header of the token must be a string",
        ),
        (saying(key, &format!("{open},\"sub\":\"root\"}}")), "the payload of the token has a duplicate key"),
        (
            saying(key, &format!("{open},\"s\\u0075b\":\"root\"}}")),
            "the payload of the token has a duplicate key",
        ),
        (
            saying(key, &format!("{open},\"a\":{}{}}}", "[".repeat(40), "]".repeat(40))),
            "the payload of the token exceeds the JSON limits",
        ),
        (saying(key, "[]"), "the payload of the token is not a JSON object"),
        (saying(key, "null"), "the payload of the token is not a JSON object"),
        (saying(key, "{}"), "the token has no issuer"),
    ]
}

/// Tokens that the issuer signed, and that are not valid here or now.
fn wrong(key: &Key) -> Vec<(String, &'static str)> {
    const ISS: &str = "the token is from another issuer";
    const AUD: &str = "the token is for another audience";
    const EXPIRED: &str = "the token has expired";
    let huge = saying(key, &claims().to_string().replace(&(NOW + 600).to_string(), "1e999"));
    let mut nameless = but("sub", Value::Null);
    nameless.as_object_mut().unwrap().remove("client_id");
    vec![
        (with_claim(key, "iss", Value::Null), "the token has no issuer"),
        (with_claim(key, "iss", json!("https://evil.example")), ISS),
        (with_claim(key, "iss", json!(format!("{ISSUER}/"))), ISS),
        (with_claim(key, "iss", json!("https://AUTH.example.com")), ISS),
        (with_claim(key, "iss", json!("https://auth.example.com:443")), ISS),
        (with_claim(key, "iss", json!("http://auth.example.com")), ISS),
        (with_claim(key, "iss", json!([ISSUER])), "iss of the token must be a string"),
        (with_claim(key, "aud", Value::Null), "the token has no audience"),
        (with_claim(key, "aud", json!("https://other.example/mcp")), AUD),
        (with_claim(key, "aud", json!(format!("{RESOURCE}/"))), AUD),
        (with_claim(key, "aud", json!("https://mcp.example.com")), AUD),
        (with_claim(key, "aud", json!("https://mcp.example.com/MCP")), AUD),
        (with_claim(key, "aud", json!("https://mcp.example.com.evil.example/mcp")), AUD),
        (with_claim(key, "aud", json!(format!("{RESOURCE} https://other.example"))), AUD),
        (with_claim(key, "aud", json!([])), AUD),
        (with_claim(key, "aud", json!([["https://mcp.example.com/mcp"]])), AUD),
        (with_claim(key, "aud", json!({"0": RESOURCE})), AUD),
        (with_claim(key, "aud", json!("app")), AUD),
        (with_claim(key, "aud", json!("*")), AUD),
        (with_claim(key, "exp", Value::Null), "the token has no expiry"),
        (with_claim(key, "exp", json!(NOW - 30)), EXPIRED),
        (with_claim(key, "exp", json!(NOW - 3600)), EXPIRED),
        (with_claim(key, "exp", json!(0)), EXPIRED),
        (with_claim(key, "exp", json!(-1)), EXPIRED),
        (with_claim(key, "exp", json!("2999999999")), "exp of the token must be a number"),
        (with_claim(key, "exp", json!([NOW + 600])), "exp of the token must be a number"),
        (huge, "the payload of the token is not a JSON object"),
        (with_claim(key, "nbf", json!(NOW + 31)), "the token is not valid yet"),
        (with_claim(key, "nbf", json!(true)), "nbf of the token must be a number"),
        (with_claim(key, "iat", json!(NOW + 31)), "the token was issued in the future"),
        (with_claim(key, "iat", json!("now")), "iat of the token must be a number"),
        (key.sign(&nameless), "the token has no subject"),
        (with_claim(key, "sub", json!(7)), "sub of the token must be a string"),
        (with_claim(key, "client_id", json!({})), "client_id of the token must be a string"),
        (with_claim(key, "scope", json!(1)), "the scopes of the token must be strings"),
        (with_claim(key, "scope", json!(["a", 1])), "the scopes of the token must be strings"),
        (with_claim(key, "cnf", json!({"x5t#S256": "abc"})), "the token has an unsupported cnf claim"),
        (with_claim(key, "cnf", json!({})), "the token has an unsupported cnf claim"),
        (with_claim(key, "cnf", json!("jkt")), "the token has an unsupported cnf claim"),
        (
            with_claim(key, "cnf", json!({"jkt": key.thumbprint()})),
            "the token is bound to a key, but this server does not support DPoP",
        ),
    ]
}

#[tokio::test]
async fn no_bad_token_is_believed() {
    let (key, calls) = (Key::new("k1"), Calls::default());
    let web = calls.serve(auth(&key));
    let mut rejected = 0;
    for (token, text) in misshapen(&key).into_iter().chain(wrong(&key)) {
        let shown = if token.len() < 8 { "" } else { &*token };
        let (status, challenges, message) = refusal(call_with(&web, "plain", &token).await, shown).await;
        let challenge = format!(
            "Bearer resource_metadata=\"{METADATA}\", scope=\"mcp:basic\", error=\"invalid_token\", \
             error_description=\"{text}\""
        );
        assert_eq!((status, &*message, challenges), (401, text, vec![challenge]), "{token}");
        rejected += 1;
    }
    eprintln!("bad tokens: rejected={rejected} accepted={}", calls.count());
    assert_eq!((rejected, calls.count()), (96, 0));
}

#[tokio::test]
async fn good_tokens_say_who_asks() {
    let key = Key::new("k1");
    let web = Calls::default().serve(auth(&key));
    let who = async |token: &str| text_of(&call_with(&web, "who", token).await.message().await);
    let usual = "ada Some(\"https://auth.example.com\") Some(\"app\") files:read mcp:basic 1";
    let mut without_client = but("client_id", Value::Null);
    without_client["azp"] = json!("party");
    let mut alone = claims();
    alone["scp"] = json!(["mcp:basic", "x"]);
    alone.as_object_mut().unwrap().remove("scope");
    let mut text = alone.clone();
    text["scp"] = json!("x  mcp:basic ");
    for (token, expected) in [
        (key.sign(&claims()), usual.to_owned()),
        (key.sign_text(r#"{"alg":"ES256"}"#, &claims().to_string()), usual.to_owned()),
        (key.sign_text(r#"{"alg":"ES256","typ":"JWT"}"#, &claims().to_string()), usual.to_owned()),
        (
            key.sign_text(r#"{"alg":"ES256","typ":"application/AT+jwt"}"#, &claims().to_string()),
            usual.to_owned(),
        ),
        (key.sign(&but("aud", json!(["other", RESOURCE]))), usual.to_owned()),
        (key.sign(&but("exp", json!(NOW - 29))), usual.to_owned()),
        (key.sign(&but("exp", json!(f64::from(u32::MAX) + 0.5))), usual.to_owned()),
        (key.sign(&but("exp", json!(1e300))), usual.to_owned()),
        (key.sign(&but("nbf", json!(NOW + 29))), usual.to_owned()),
        (key.sign(&without_client), usual.replace("app", "party")),
        (key.sign(&alone), usual.replace("files:read mcp:basic", "mcp:basic x")),
        (key.sign(&text), usual.replace("files:read mcp:basic", "mcp:basic x")),
    ] {
        assert_eq!(who(&token).await, expected);
        assert_eq!(who(&token).await, expected, "again, from the cache");
    }
}

#[tokio::test]
async fn a_token_that_was_believed_expires_all_the_same() {
    let (key, calls) = (Key::new("k1"), Calls::default());
    let time = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(NOW));
    let clock = time.clone();
    let at = move || {
        std::time::UNIX_EPOCH
            + std::time::Duration::from_secs(clock.load(std::sync::atomic::Ordering::SeqCst))
    };
    let web = calls.serve(auth(&key).clock(at));
    let token = key.sign(&but("exp", json!(NOW + 10)));
    assert_eq!(call_with(&web, "plain", &token).await.status, 200);
    time.store(NOW + 39, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(call_with(&web, "plain", &token).await.status, 200, "within the clock skew");
    time.store(NOW + 40, std::sync::atomic::Ordering::SeqCst);
    let (status, _, text) = refusal(call_with(&web, "plain", &token).await, &token).await;
    assert_eq!((status, &*text, calls.count()), (401, "the token has expired", 2));
}

#[tokio::test]
async fn every_bit_of_a_token_counts() {
    let (key, calls) = (Key::new("k1"), Calls::default());
    let web = calls.serve(auth(&key));
    let token = key.sign(&claims());
    let mut rejected = 0;
    for place in 0..token.len() {
        let mut forged = token.clone().into_bytes();
        forged[place] = if forged[place] == b'A' { b'B' } else { b'A' };
        let forged = String::from_utf8(forged).unwrap();
        assert_eq!(call_with(&web, "plain", &forged).await.status, 401, "{place}");
        rejected += 1;
    }
    assert_eq!((rejected, calls.count()), (token.len(), 0));
}

#[tokio::test]
async fn a_key_without_a_name_is_found_by_trying() {
    let (one, other, calls) = (Key::new("1"), Key::new("2"), Calls::default());
    let web = calls.serve(auth(&one).keys(set(&[&one, &other])));
    let token = other.sign_text(r#"{"alg":"ES256"}"#, &claims().to_string());
    assert_eq!(call_with(&web, "plain", &token).await.status, 200);
}
