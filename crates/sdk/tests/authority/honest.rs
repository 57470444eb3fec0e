//! Discovery, registration and sign-in with an honest authority.

use std::time::Duration;

use http::Method;
use linchpin::testing::authority::{Authority, AuthorityHost};
use serde_json::{Value, json};

use crate::raw::*;

#[tokio::test]
async fn a_person_signs_in() {
    let authority = start(Authority::conforming()).await;
    let refused = call(&authority, "greet", "").await;
    let link = resource_metadata_url(&authority);
    assert_eq!(refused.status, 401);
    assert_eq!(
        refused.header("www-authenticate"),
        format!("Bearer scope=\"read\", resource_metadata=\"{link}\"")
    );
    let resource = get(&link).await.json();
    assert_eq!(resource["resource"], authority.mcp_url());
    assert_eq!(resource["authorization_servers"], json!([authority.issuer()]));

    let redirect = approve(&authority, &[]).await;
    assert!(redirect.url.starts_with(BACK), "{}", redirect.url);
    assert_eq!(redirect.parameter("state"), Some("a-state"));
    assert_eq!(redirect.parameter("iss"), Some(&*authority.issuer()));
    let tokens = redeem(&authority, redirect.parameter("code").unwrap(), &[]).await;
    let access = access_token(&tokens);
    let Value::Object(fields) = tokens.json() else { panic!("{}", tokens.body) };
    let names: Vec<_> = fields.keys().map(String::as_str).collect();
    assert_eq!(names, ["access_token", "token_type", "expires_in", "scope", "refresh_token"]);
    assert_eq!((&fields["token_type"], &fields["expires_in"]), (&json!("Bearer"), &json!(3600)));

    let answer = call(&authority, "greet", &access).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(answer.json()["result"]["content"][0]["text"], "hello");

    let seen = authority.observations();
    assert_eq!((seen.authorizations, seen.tokens, seen.refreshes, seen.canary_connections), (1, 1, 0, 0));
    let request = seen.with_grant_type("authorization_code").next().unwrap();
    assert_eq!(
        (request.host, request.parameter("code_verifier")),
        (AuthorityHost::Authority, Some(VERIFIER.into()))
    );
    for secret in [redirect.parameter("code").unwrap(), VERIFIER, &access, &refresh_token(&tokens)] {
        assert!(authority.secrets().iter().any(|known| known == secret));
    }
}

#[tokio::test]
async fn metadata_is_at_all_three_places() {
    let authority = start(Authority::conforming()).await;
    let origin = authority.issuer().replace("/tenant", "");
    let paths = [
        "/.well-known/oauth-authorization-server/tenant",
        "/.well-known/openid-configuration/tenant",
        "/tenant/.well-known/openid-configuration",
    ];
    for path in paths {
        let metadata = get(&format!("{origin}{path}")).await.json();
        assert_eq!(metadata["issuer"], authority.issuer(), "{path}");
    }
    for path in ["/.well-known/oauth-authorization-server", "/.well-known/openid-configuration", "/token"] {
        assert_eq!(get(&format!("{origin}{path}")).await.status, 404, "{path}");
    }
    let document = metadata(&authority).await;
    for name in ["authorization_endpoint", "token_endpoint", "registration_endpoint", "revocation_endpoint"] {
        assert!(document[name].as_str().unwrap().starts_with(&authority.issuer()), "{name}");
    }
    let keys = get(document["jwks_uri"].as_str().unwrap()).await.json();
    assert_eq!(keys["keys"], json!([authority.public_key()]));
}

#[tokio::test]
async fn what_is_asked_for_is_looked_at() {
    let authority = start(Authority::conforming()).await;
    let page = |changes: &'static [(&str, &str)]| authorization_url(&authority, changes);
    for changes in [
        &[("client_id", "nobody")][..],
        &[("redirect_uri", "https://stranger.example/callback")],
        &[("redirect_uri", "http://127.0.0.1.stranger.example/callback")],
        &[("redirect_uri", "http://127.0.0.1@stranger.example/callback")],
        &[("redirect_uri", "")],
    ] {
        let answer = get(&page(changes)).await;
        assert_eq!((answer.status, answer.header("location")), (400, ""), "{changes:?}");
    }
    for (changes, error) in [
        (&[("response_type", "token")][..], "unsupported_response_type"),
        (&[("code_challenge", "")], "invalid_request"),
        (&[("code_challenge_method", "plain")], "invalid_request"),
        (&[("code_challenge_method", "")], "invalid_request"),
        (&[("resource", "https://stranger.example/mcp")], "invalid_target"),
        (&[("resource", "")], "invalid_target"),
        (&[("scope", "everything")], "invalid_scope"),
    ] {
        let redirect = approve(&authority, changes).await;
        assert_eq!(redirect.parameter("error"), Some(error), "{changes:?}");
        assert_eq!(redirect.parameter("iss"), Some(&*authority.issuer()));
        assert_eq!(redirect.parameter("code"), None);
    }
}

#[tokio::test]
async fn a_code_is_for_one_use_by_the_one_who_asked() {
    let authority = start(Authority::conforming()).await;
    for changes in [
        ("code_verifier", "another-verifier-that-is-as-long-as-it-has-to-be-0123456789"),
        ("code_verifier", ""),
        ("redirect_uri", "http://127.0.0.1:10/callback"),
        ("code", "another"),
    ] {
        let redirect = approve(&authority, &[]).await;
        let answer = redeem(&authority, redirect.parameter("code").unwrap(), &[changes]).await;
        assert_eq!(answer.error(), (400, "invalid_grant".into()), "{changes:?}");
    }
    let redirect = approve(&authority, &[]).await;
    let code = redirect.parameter("code").unwrap();
    let answer = redeem(&authority, code, &[("resource", "")]).await;
    assert_eq!(answer.error(), (400, "invalid_target".into()));
    let access = access_token(&redeem(&authority, code, &[]).await);
    assert_eq!(call(&authority, "greet", &access).await.status, 200);
    assert_eq!(redeem(&authority, code, &[]).await.error(), (400, "invalid_grant".into()));
    assert_eq!(call(&authority, "greet", &access).await.status, 401, "the family is revoked");
    assert_eq!((authority.observations().reuses, authority.observations().revoked_families), (1, 1));
}

#[tokio::test]
async fn clients_register() {
    let authority = start(Authority::conforming()).await;
    let url = format!("{}/register", authority.issuer());
    let json_type = [("content-type", "application/json")];
    let register = async |client: Value| send(Method::POST, &url, &json_type, client.to_string()).await;
    let native = json!({ "redirect_uris": ["http://127.0.0.1/callback"], "application_type": "native",
        "token_endpoint_auth_method": "none" });
    let answer = register(native).await;
    assert_eq!(answer.status, 201, "{}", answer.body);
    let id = answer.json()["client_id"].as_str().unwrap().to_owned();
    assert_eq!(answer.json().get("client_secret"), None);
    let redirect = approve(&authority, &[("client_id", &id)]).await;
    let tokens = redeem(&authority, redirect.parameter("code").unwrap(), &[("client_id", &id)]).await;
    assert_eq!(call(&authority, "greet", &access_token(&tokens)).await.status, 200);
    let elsewhere =
        authorization_url(&authority, &[("client_id", &id), ("redirect_uri", "http://127.0.0.1/x")]);
    assert_eq!(get(&elsewhere).await.status, 400);

    let web = json!({ "redirect_uris": ["http://127.0.0.1/callback"] });
    assert_eq!(register(web).await.error(), (400, "invalid_redirect_uri".into()));
    let confidential = register(json!({ "redirect_uris": ["https://app.example/callback"] })).await.json();
    assert_eq!(confidential["token_endpoint_auth_method"], "client_secret_basic");
    assert!(authority.secrets().iter().any(|secret| confidential["client_secret"] == **secret));
    assert_eq!(authority.observations().registrations, 2);
}

#[tokio::test]
async fn clients_say_who_they_are_at_their_own_url() {
    let id = "https://app.example/client.json";
    let document = json!({ "client_id": id, "client_name": "App", "redirect_uris": [BACK] });
    let other = "https://other.example/client.json";
    let behaviour = Authority::conforming().document(id, document.clone()).document(other, document);
    let authority = start(behaviour).await;
    let redirect = approve(&authority, &[("client_id", id)]).await;
    let tokens = redeem(&authority, redirect.parameter("code").unwrap(), &[("client_id", id)]).await;
    assert_eq!(call(&authority, "greet", &access_token(&tokens)).await.status, 200);
    let pretender = authorization_url(&authority, &[("client_id", other)]);
    assert_eq!(get(&pretender).await.body, "unknown client");
}

#[tokio::test]
async fn a_tool_can_take_a_scope_more() {
    let authority = start(Authority::conforming()).await;
    let access = access_token(&sign_in(&authority, "read").await);
    let refused = call(&authority, "write", &access).await;
    let link = resource_metadata_url(&authority);
    let challenge =
        format!("Bearer scope=\"write\", error=\"insufficient_scope\", resource_metadata=\"{link}\"");
    assert_eq!((refused.status, refused.header("www-authenticate")), (403, &*challenge));
    let access = access_token(&sign_in(&authority, "read write").await);
    assert_eq!(call(&authority, "write", &access).await.json()["result"]["content"][0]["text"], "written");
    let access = access_token(&sign_in(&authority, "write").await);
    assert_eq!(call(&authority, "greet", &access).await.status, 403, "what there was is lost");
}

#[tokio::test]
async fn tokens_end() {
    let authority = start(Authority::conforming().lifetime(Duration::from_mins(1))).await;
    let before = authority.clock()();
    let tokens = sign_in(&authority, "read").await;
    let access = access_token(&tokens);
    authority.advance(Duration::from_secs(59));
    assert_eq!(call(&authority, "greet", &access).await.status, 200);
    authority.advance(Duration::from_secs(1));
    assert!(authority.clock()().duration_since(before).unwrap() >= Duration::from_mins(1));
    let refused = call(&authority, "greet", &access).await;
    assert_eq!(refused.status, 401);
    assert!(refused.header("www-authenticate").contains("error=\"invalid_token\""));

    let tokens = refresh(&authority, &refresh_token(&tokens)).await;
    let access = access_token(&tokens);
    assert_eq!(call(&authority, "greet", &access).await.status, 200);
    authority.expire_tokens();
    assert_eq!(call(&authority, "greet", &access).await.status, 401);
    let tokens = refresh(&authority, &refresh_token(&tokens)).await;
    authority.revoke();
    assert_eq!(call(&authority, "greet", &access_token(&tokens)).await.status, 401);
    assert_eq!(refresh(&authority, &refresh_token(&tokens)).await.error(), (400, "invalid_grant".into()));
    assert_eq!(authority.observations().refreshes, 2);
}

#[tokio::test]
async fn a_refresh_token_is_for_one_use() {
    let authority = start(Authority::conforming()).await;
    let first = refresh_token(&sign_in(&authority, "read").await);
    let second = refresh(&authority, &first).await;
    let access = access_token(&second);
    assert_eq!(call(&authority, "greet", &access).await.status, 200);
    assert_eq!(refresh(&authority, &first).await.error(), (400, "invalid_grant".into()));
    assert_eq!(refresh(&authority, &refresh_token(&second)).await.error(), (400, "invalid_grant".into()));
    assert_eq!(call(&authority, "greet", &access).await.status, 401);
    let seen = authority.observations();
    assert_eq!((seen.refreshes, seen.reuses, seen.revoked_families), (1, 1, 1));
}

#[tokio::test]
async fn tokens_are_given_back() {
    let authority = start(Authority::conforming()).await;
    let tokens = sign_in(&authority, "read").await;
    let revoke = format!("{}/revoke", authority.issuer());
    let token = refresh_token(&tokens);
    let form = [("token", &*token), ("client_id", "public-client")];
    assert_eq!(post_form(&revoke, &[], &changed(&form, &[("client_id", "nobody")])).await.status, 401);
    assert_eq!(call(&authority, "greet", &access_token(&tokens)).await.status, 200);
    assert_eq!(post_form(&revoke, &[], &form).await.status, 200);
    assert_eq!(call(&authority, "greet", &access_token(&tokens)).await.status, 401);
    assert_eq!(authority.observations().revocations, 1);
}
