//! Valid and invalid keys and tokens, including the examples of the RFCs.

use serde_json::{Value, json};

use super::*;

const RSA: &str = include_str!("../../tests/keys/rsa.pem");
const RSA_PKCS1: &str = include_str!("../../tests/keys/rsa_pkcs1.pem");
const SMALL_RSA_PEM: &str = include_str!("../../tests/keys/small.pem");
const P256: &str = include_str!("../../tests/keys/p256.pem");
const P256_SEC1: &str = include_str!("../../tests/keys/p256_sec1.pem");
const P384: &str = include_str!("../../tests/keys/p384.pem");
const ED25519: &str = include_str!("../../tests/keys/ed25519.pem");

/// Returns one key for every algorithm.
fn keys() -> impl Iterator<Item = SigningKey> {
    Algorithm::ALL.into_iter().map(|algorithm| {
        let pem = match algorithm {
            Algorithm::Es256 => P256,
            Algorithm::Es384 => P384,
            Algorithm::EdDsa => ED25519,
            _ => RSA,
        };
        SigningKey::from_pkcs8_pem(pem, algorithm).unwrap()
    })
}

fn public(key: &SigningKey) -> PublicKey {
    PublicKey::from_jwk(&key.public_jwk()).unwrap()
}

fn parse_error(token: &str) -> String {
    let error = CompactJws::parse(token).unwrap_err();
    error.to_string()
}

/// Builds a token from a header and claims, with an invalid signature.
fn unsigned(header: &str, claims: &str) -> String {
    format!("{}.{}.{}", encode(header), encode(claims), encode([1; 64]))
}

#[test]
fn what_is_signed_is_believed_and_nothing_else() {
    let claims = json!({"sub": "alice", "n": 1});
    for key in keys() {
        let algorithm = key.algorithm();
        let signed = key.sign(&json!({"kid": "1", "typ": "at+jwt", "alg": "none"}), &claims).unwrap();
        let token = CompactJws::parse(&signed).unwrap();
        assert_eq!(token.header().algorithm, algorithm);
        assert_eq!(token.header().key_id.as_deref(), Some("1"));
        assert_eq!(token.header().typ.as_deref(), Some("at+jwt"));
        let believed = token.verify(&public(&key), &Algorithm::ALL).unwrap();
        assert_eq!(Value::Object(believed.clone()), claims);

        assert_eq!(token.unverified_claims(), believed);
        assert!(token.header().jwk.is_none());

        let others: Vec<_> = Algorithm::ALL.into_iter().filter(|other| *other != algorithm).collect();
        let error = token.verify(&public(&key), &others).unwrap_err();
        assert_eq!(error.to_string(), format!("the algorithm {algorithm} is not accepted"));

        // Changed claims, changed header, changed signature, truncated signature.
        let parts: Vec<_> = signed.split('.').collect();
        let other = key.sign(&Value::Null, &json!({"sub": "mallory"})).unwrap();
        let other: Vec<_> = other.split('.').collect();
        let mut shorter = decode(parts[2]).unwrap();
        shorter.pop();
        for forged in [
            [parts[0], other[1], parts[2]].join("."),
            [other[0], parts[1], parts[2]].join("."),
            [parts[0], parts[1], other[2]].join("."),
            [parts[0], parts[1], &encode(&shorter)].join("."),
        ] {
            let error =
                CompactJws::parse(&forged).unwrap().verify(&public(&key), &Algorithm::ALL).unwrap_err();
            assert_eq!(error.to_string(), "the signature is invalid", "{algorithm}");
        }
    }
}

#[test]
fn every_bit_of_a_signature_counts() {
    let key = SigningKey::generate_es256();
    let signed = key.sign(&Value::Null, &json!({"sub": "a"})).unwrap();
    let (head, signature) = signed.rsplit_once('.').unwrap();
    let signature = decode(signature).unwrap();
    for bit in 0..signature.len() * 8 {
        let mut forged = signature.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        let forged = format!("{head}.{}", encode(forged));
        assert!(
            CompactJws::parse(&forged).unwrap().verify(&public(&key), &[Algorithm::Es256]).is_err(),
            "{bit}"
        );
    }
}

#[test]
fn a_key_fits_only_its_own_algorithms() {
    let signed: Vec<_> =
        keys().map(|key| (key.algorithm(), key.sign(&Value::Null, &json!({})).unwrap())).collect();
    for key in keys() {
        for (algorithm, token) in &signed {
            let verified = CompactJws::parse(token).unwrap().verify(&public(&key), &Algorithm::ALL).is_ok();
            // All RSA algorithms share one key, and the generated JWK has no `alg`.
            let same_key = public(&key).supports(*algorithm);
            assert_eq!(verified, same_key, "{algorithm} with a key for {}", key.algorithm());
        }
    }
    let mut jwk = SigningKey::from_pkcs8_pem(RSA, Algorithm::Rs256).unwrap().public_jwk();
    jwk["alg"] = "PS256".into();
    let only_pss = PublicKey::from_jwk(&jwk).unwrap();
    assert!(only_pss.supports(Algorithm::Ps256) && !only_pss.supports(Algorithm::Rs256));
}

#[test]
fn a_public_key_is_no_shared_secret() {
    let key = SigningKey::from_pkcs8_pem(RSA, Algorithm::Rs256).unwrap();
    let signed = unsigned(r#"{"alg":"HS256"}"#, r#"{"sub":"mallory"}"#);
    assert_eq!(parse_error(&signed), "the algorithm HS256 is not supported");
    let jwk = json!({"kty": "oct", "k": key.public_jwk()["n"]});
    assert!(PublicKey::from_jwk(&jwk).is_err());
}

#[test]
fn tokens_that_are_none() {
    let long = "a".repeat(16 << 10) + ".b.c";
    let good = encode("{}");
    for (token, text) in [
        ("", "the token is not a JWT: expected three parts separated by dots"),
        ("a.b", "the token is not a JWT: expected three parts separated by dots"),
        ("a.b.c.d", "the token is not a JWT: expected three parts separated by dots"),
        ("a.b.c.d.e", "the token is not a JWT: expected three parts separated by dots"),
        (&long, "the token is longer than 16384 bytes"),
        ("=.b.c", "the header of the token is not base64url"),
        (&unsigned("{", "{}"), "the header of the token is not JSON"),
        (&unsigned("[]", "{}"), "the header of the token is not a JSON object"),
        (&unsigned("{}", "{}"), "the header of the token has no alg"),
        (&unsigned(r#"{"alg":null}"#, "{}"), "alg in the header of the token must be a string"),
        (&unsigned(r#"{"alg":"none"}"#, "{}"), "the algorithm none is not supported"),
        (&unsigned(r#"{"alg":"None"}"#, "{}"), "the algorithm None is not supported"),
        (&unsigned(r#"{"alg":"es256"}"#, "{}"), "the algorithm es256 is not supported"),
        (&unsigned(r#"{"alg":"<b>"}"#, "{}"), "the algorithm is not supported"),
        (&unsigned(r#"{"alg":"ES256","alg":"none"}"#, "{}"), "the header of the token has a duplicate key"),
        (
            &unsigned(r#"{"alg":"ES256","crit":["exp"]}"#, "{}"),
            "the header of the token has crit, which is not accepted",
        ),
        (
            &unsigned(r#"{"alg":"ES256","b64":false}"#, "{}"),
            "the header of the token has b64, which is not accepted",
        ),
        (&unsigned(r#"{"alg":"ES256","kid":1}"#, "{}"), "kid in the header of the token must be a string"),
        (&unsigned(r#"{"alg":"ES256","typ":[]}"#, "{}"), "typ in the header of the token must be a string"),
        (&unsigned(r#"{"alg":"ES256"}"#, "null"), "the payload of the token is not a JSON object"),
        (
            &unsigned(r#"{"alg":"ES256"}"#, r#"{"sub":"a","s\u0075b":"b"}"#),
            "the payload of the token has a duplicate key",
        ),
        (
            &unsigned(r#"{"alg":"ES256"}"#, &format!("{{\"a\":{}1{}}}", "[".repeat(20), "]".repeat(20))),
            "the payload of the token exceeds the JSON limits",
        ),
        (
            &unsigned(r#"{"alg":"ES256"}"#, r#"{"exp":1e999}"#),
            "the payload of the token is not a JSON object",
        ),
        (
            &format!("{}.{good}.", encode(r#"{"alg":"ES256"}"#)),
            "the signature of the token is empty or not base64url",
        ),
        (
            &format!("{}.{good}.AA==", encode(r#"{"alg":"ES256"}"#)),
            "the signature of the token is empty or not base64url",
        ),
        (
            &format!("{}.{good}.A+/A", encode(r#"{"alg":"ES256"}"#)),
            "the signature of the token is empty or not base64url",
        ),
        (
            &format!("{}.{good}.AB", encode(r#"{"alg":"ES256"}"#)),
            "the signature of the token is empty or not base64url",
        ),
        (&format!(" {}.{good}.AA", encode(r#"{"alg":"ES256"}"#)), "the header of the token is not base64url"),
    ] {
        assert_eq!(parse_error(token), text, "{token}");
    }
}

#[test]
fn keys_that_are_refused() {
    let ec = SigningKey::generate_es256().public_jwk();
    let rsa = SigningKey::from_pkcs8_pem(RSA, Algorithm::Rs256).unwrap().public_jwk();
    let with = |jwk: &Value, name: &str, value: Value| {
        let mut jwk = jwk.clone();
        jwk[name] = value;
        jwk
    };
    let zeros = encode([&[0], &*decode(rsa["n"].as_str().unwrap()).unwrap()].concat());
    for (jwk, text) in [
        (json!([]), "the key must be a JSON object"),
        (json!({}), "the key type is not supported"),
        (json!({"kty": "oct", "k": "AA"}), "the key has private members: publish only the public key"),
        (with(&ec, "d", json!("AA")), "the key has private members: publish only the public key"),
        (with(&ec, "use", json!("enc")), "the key is not for signatures: use must be sig"),
        (
            with(&ec, "key_ops", json!(["sign"])),
            "the key is not for verification: key_ops must contain verify",
        ),
        (
            with(&ec, "key_ops", json!("verify")),
            "the key is not for verification: key_ops must contain verify",
        ),
        (with(&ec, "crv", json!("secp256k1")), "the key type is not supported"),
        (with(&ec, "crv", json!("P-384")), "the coordinates of the key have the wrong length"),
        (with(&ec, "x", json!("AA")), "the coordinates of the key have the wrong length"),
        (with(&ec, "y", json!(1)), "y of the key is missing or not base64url"),
        (with(&ec, "alg", json!("HS256")), "the algorithm HS256 is not supported"),
        (with(&ec, "alg", json!("RS256")), "the alg of the key is RS256, which does not match its type"),
        (with(&rsa, "e", json!("AQ")), "the exponent of the key is not accepted"),
        (with(&rsa, "e", json!("Ag")), "the exponent of the key is not accepted"),
        (with(&rsa, "e", json!("AQAAAAAB")), "the exponent of the key is not accepted"),
        (with(&rsa, "n", json!("AQAB")), "an RSA key of 17 bits is not accepted: use 2048 to 8192 bits"),
        (
            with(&rsa, "n", json!(encode([255; 1025]))),
            "an RSA key of 8200 bits is not accepted: use 2048 to 8192 bits",
        ),
        (with(&rsa, "n", json!(zeros)), "the modulus of the key must not start with a zero byte"),
    ] {
        assert_eq!(PublicKey::from_jwk(&jwk).unwrap_err().to_string(), text, "{jwk}");
    }
    let all = with(&with(&ec, "use", json!("sig")), "key_ops", json!(["verify"]));
    assert_eq!(PublicKey::from_jwk(&with(&all, "kid", json!("k"))).unwrap().id(), Some("k"));
}

#[test]
fn points_that_are_not_on_the_curve_verify_nothing() {
    let key = SigningKey::generate_es256();
    let token = key.sign(&Value::Null, &json!({})).unwrap();
    let mut jwk = key.public_jwk();
    jwk["y"] = encode([7; 32]).into();
    let off = PublicKey::from_jwk(&jwk).unwrap();
    assert!(CompactJws::parse(&token).unwrap().verify(&off, &Algorithm::ALL).is_err());
}

#[test]
fn private_keys_say_what_is_wrong_with_them() {
    let refusal = |pem: &str, algorithm| SigningKey::from_pkcs8_pem(pem, algorithm).unwrap_err().to_string();
    let no_key = "no private key found: expected `-----BEGIN PRIVATE KEY-----`";
    assert_eq!(refusal("hunter2", Algorithm::Es256), no_key);
    assert_eq!(
        refusal("-----BEGIN PRIVATE KEY-----\nhunter2", Algorithm::Es256),
        "the PEM text has no `-----END PRIVATE KEY-----`"
    );
    let damaged = "-----BEGIN PRIVATE KEY-----\nhunter*2\n-----END PRIVATE KEY-----";
    assert_eq!(refusal(damaged, Algorithm::Es256), "the PEM text is damaged: it is not Base64");
    assert!(refusal(P256_SEC1, Algorithm::Es256).contains("SEC 1"));
    assert!(refusal(&P256.replace("PRIVATE", "ENCRYPTED PRIVATE"), Algorithm::Es256).contains("encrypted"));
    assert!(refusal(&P256.replace("PRIVATE", "PUBLIC"), Algorithm::Es256).contains("public key"));
    assert_eq!(
        refusal(P384, Algorithm::Es256),
        "the key cannot be used with ES256, which needs a P-256 key that includes its public key as PKCS #8"
    );
    assert!(refusal(RSA, Algorithm::EdDsa).contains("needs an Ed25519 key"));
    assert!(refusal(SMALL_RSA_PEM, Algorithm::Rs256).contains("2048"));
    assert!(refusal(RSA_PKCS1, Algorithm::Es256).contains("cannot be used with ES256"));
    let (one, other) = (RSA, RSA_PKCS1);
    let jwk = |pem| SigningKey::from_pkcs8_pem(pem, Algorithm::Ps256).unwrap().public_jwk();
    assert_eq!(jwk(one), jwk(other));
}

#[test]
fn a_key_that_was_made_here_can_be_kept_and_is_never_shown() {
    let key = SigningKey::generate_es256();
    let der = key.to_pkcs8_der().unwrap();
    let again = SigningKey::from_pkcs8_der(&der, Algorithm::Es256).unwrap();
    assert_eq!(again.public_jwk(), key.public_jwk());
    assert_eq!(again.to_pkcs8_der().unwrap(), der);
    assert_ne!(SigningKey::generate_es256().public_jwk(), key.public_jwk());
    assert_eq!(format!("{key:?}"), "SigningKey(ES256, …)");
    assert!(SigningKey::from_pkcs8_pem(P256, Algorithm::Es256).unwrap().to_pkcs8_der().is_none());
    assert!(key.public_jwk().get("d").is_none());
}

#[test]
fn the_example_of_rfc_7515_a_3() {
    let jwk = json!({"kty": "EC", "crv": "P-256",
        "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU", "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"});
    let token = concat!(
        "eyJhbGciOiJFUzI1NiJ9",
        ".eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ",
        ".DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"
    );
    let token = CompactJws::parse(token).unwrap();
    let claims = token.verify(&PublicKey::from_jwk(&jwk).unwrap(), &[Algorithm::Es256]).unwrap();
    assert_eq!(claims["iss"], "joe");
}

#[test]
fn the_examples_of_rfc_8037() {
    let jwk = json!({"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"});
    assert_eq!(thumbprint(&jwk).unwrap(), "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k");
    let signature = "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";
    let input = b"eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc";
    let key = PublicKey::from_jwk(&jwk).unwrap();
    key.verify(Algorithm::EdDsa, input, &decode(signature).unwrap()).unwrap();
}

#[test]
fn the_example_of_rfc_7638() {
    let jwk = json!({"kty": "RSA", "alg": "RS256", "kid": "2011-04-29", "e": "AQAB", "n": concat!(
        "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3",
        "oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdA",
        "ZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-",
        "kEgU8awapJzKnqDKgw")});
    assert_eq!(thumbprint(&jwk).unwrap(), "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs");
    assert!(thumbprint(&json!({"kty": "RSA"})).is_err());
    PublicKey::from_jwk(&jwk).unwrap();
}
