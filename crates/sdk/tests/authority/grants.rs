//! Client credentials, signed assertions, and assertions of other authorities.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use linchpin::testing::authority::{Authority, KnownClient};
use serde_json::json;

use crate::proofs::Key;
use crate::raw::*;

const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";

fn basic(id: &str, secret: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{id}:{secret}")))
}

#[tokio::test]
async fn a_program_signs_in_for_itself() {
    let authority = start(Authority::conforming()).await;
    let (token, resource) = (format!("{}/token", authority.issuer()), authority.mcp_url());
    let form = [("grant_type", "client_credentials"), ("resource", &*resource), ("scope", "read write")];
    let (of_basic, of_post) = (authority.secret(KnownClient::Basic), authority.secret(KnownClient::Post));
    let header = basic(KnownClient::Basic.id(), &of_basic);
    let answer = post_form(&token, &[("authorization", &header)], &form).await;
    assert_eq!(call(&authority, "write", &access_token(&answer)).await.status, 200);
    assert_eq!(answer.json().get("refresh_token"), None);

    let post = [("client_id", KnownClient::Post.id()), ("client_secret", &*of_post)];
    access_token(&post_form(&token, &[], &[&form[..], &post].concat()).await);
    let wrong_header = basic(KnownClient::Basic.id(), &of_post);
    let as_post = [("client_id", KnownClient::Basic.id()), ("client_secret", &*of_basic)];
    for (headers, more) in [
        (vec![("authorization", &*wrong_header)], &[][..]),
        (vec![], &as_post[..]),
        (vec![], &[("client_id", KnownClient::Post.id())]),
        (vec![], &[]),
    ] {
        let answer = post_form(&token, &headers, &[&form[..], more].concat()).await;
        assert_eq!(answer.error(), (401, "invalid_client".into()), "{headers:?} {more:?}");
    }
    let twice = post_form(&token, &[("authorization", &header)], &[&form[..], &post].concat()).await;
    assert_eq!(twice.error(), (400, "invalid_request".into()));
    let public = [&form[..], &[("client_id", KnownClient::Public.id())]].concat();
    assert_eq!(post_form(&token, &[], &public).await.error(), (400, "unauthorized_client".into()));
}

#[tokio::test]
async fn a_program_signs() {
    let authority = start(Authority::conforming()).await;
    let key = Key::from_pem(&authority.client_key());
    let (issuer, resource) = (authority.issuer(), authority.mcp_url());
    let (token, id) = (format!("{issuer}/token"), KnownClient::Signed.id());
    let ask = async |assertion: String| {
        let form = [
            ("grant_type", "client_credentials"),
            ("resource", &*resource),
            ("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"),
            ("client_assertion", &assertion),
        ];
        post_form(&token, &[], &form).await
    };
    let claims = |jti: &str| json!({ "iss": id, "sub": id, "aud": issuer, "jti": jti, "exp": u32::MAX });
    let assertion = key.sign("JWT", None, &claims("1"));
    assert_eq!(call(&authority, "greet", &access_token(&ask(assertion.clone()).await)).await.status, 200);
    for (wrong, why) in [
        (assertion, "replayed"),
        (Key::generate().sign("JWT", None, &claims("2")), "another key"),
        (
            key.sign("JWT", None, &json!({ "iss": id, "sub": id, "aud": "x", "jti": "3", "exp": u32::MAX })),
            "aud",
        ),
        (
            key.sign("JWT", None, &json!({ "iss": id, "sub": id, "aud": issuer, "jti": "4", "exp": 1 })),
            "over",
        ),
        (
            key.sign(
                "JWT",
                None,
                &json!({ "iss": "x", "sub": id, "aud": issuer, "jti": "5", "exp": u32::MAX }),
            ),
            "iss",
        ),
    ] {
        assert_eq!(ask(wrong).await.error(), (401, "invalid_client".into()), "{why}");
    }
}

#[tokio::test]
async fn a_company_signs_people_in() {
    let authority = start(Authority::conforming()).await;
    let (issuer, resource, id_token) =
        (authority.issuer(), authority.mcp_url(), authority.id_token().unwrap());
    let idp = get(&format!("{}/.well-known/openid-configuration", authority.idp())).await.json();
    assert_eq!(idp["issuer"], authority.idp());
    let exchange = [
        ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
        ("requested_token_type", "urn:ietf:params:oauth:token-type:id-jag"),
        ("subject_token_type", "urn:ietf:params:oauth:token-type:id_token"),
        ("subject_token", &*id_token),
        ("audience", &*issuer),
        ("resource", &*resource),
        ("client_id", "idp-client"),
        ("scope", "read"),
    ];
    let url = idp["token_endpoint"].as_str().unwrap();
    let answer = post_form(url, &[], &exchange).await;
    let grant = access_token(&answer);
    assert_eq!(answer.json()["token_type"], "N_A");
    for (name, value, error) in [
        ("subject_token", "x.y.z", "invalid_grant"),
        ("audience", "", "invalid_request"),
        ("resource", "", "invalid_request"),
        ("requested_token_type", "urn:ietf:params:oauth:token-type:access_token", "invalid_request"),
        ("grant_type", "authorization_code", "unsupported_grant_type"),
    ] {
        let answer = post_form(url, &[], &changed(&exchange, &[(name, value)])).await;
        assert_eq!(answer.error(), (400, error.into()), "{name}");
    }

    let form = [("grant_type", JWT_BEARER), ("assertion", &*grant)];
    let token = format!("{issuer}/token");
    assert_eq!(post_form(&token, &[], &form).await.error(), (401, "invalid_client".into()));
    let post =
        [("client_id", KnownClient::Post.id()), ("client_secret", &*authority.secret(KnownClient::Post))];
    let another = post_form(&token, &[], &[&form[..], &post].concat()).await;
    assert_eq!(another.error(), (400, "invalid_grant".into()), "it names another client");
    let header = basic(KnownClient::Basic.id(), &authority.secret(KnownClient::Basic));
    let tokens = post_form(&token, &[("authorization", &header)], &form).await;
    assert_eq!(call(&authority, "greet", &access_token(&tokens)).await.status, 200);
    let again = post_form(&token, &[("authorization", &header)], &form).await;
    assert_eq!(again.error(), (400, "invalid_grant".into()), "it is for one use");
    for secret in [grant, id_token] {
        assert!(authority.secrets().contains(&secret));
    }
}

#[tokio::test]
async fn a_platform_vouches_for_a_program() {
    let authority = start(Authority::conforming()).await;
    let token = format!("{}/token", authority.issuer());
    let ask = async |assertion: &str| {
        post_form(&token, &[], &[("grant_type", JWT_BEARER), ("assertion", assertion)]).await
    };
    let assertion = authority.workload_token().unwrap();
    assert_eq!(call(&authority, "greet", &access_token(&ask(&assertion).await)).await.status, 200);
    let elsewhere =
        authority.sign("JWT", json!({ "iss": "x", "sub": "y", "aud": authority.issuer() })).unwrap();
    for wrong in [&*elsewhere, &authority.id_token().unwrap(), "nonsense", ""] {
        assert_eq!(ask(wrong).await.error(), (400, "invalid_grant".into()), "{wrong}");
    }
    authority.advance(Duration::from_hours(2));
    assert_eq!(ask(&assertion).await.error(), (400, "invalid_grant".into()));
}
