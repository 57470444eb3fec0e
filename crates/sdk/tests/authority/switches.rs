//! Each switch has the documented effect, and every switch is tested.

use http::Method;
use linchpin::testing::authority::{Authority, Misbehaviour, Redirect};
use serde_json::{Value, json};

use crate::raw::*;

/// Asserts a field of the authorization server metadata.
async fn says(authority: &Authority, name: &str, expected: Value) {
    assert_eq!(metadata(authority).await.get(name).cloned().unwrap_or_default(), expected, "{name}");
}

async fn resource_says(authority: &Authority, name: &str, expected: Value) {
    assert_eq!(resource_metadata(authority).await.get(name).cloned().unwrap_or_default(), expected, "{name}");
}

async fn register(authority: &Authority) -> Answer {
    let client = json!({ "redirect_uris": [BACK], "application_type": "native" });
    let headers = [("content-type", "application/json")];
    send(Method::POST, &format!("{}/register", authority.issuer()), &headers, client.to_string()).await
}

/// Asserts that a request gets no response, while later requests do.
async fn is_silent(authority: &Authority, url: String, form: String) {
    let method = if form.is_empty() { Method::GET } else { Method::POST };
    let kind = [("content-type", "application/x-www-form-urlencoded")];
    let others = async {
        authority.wait_until(|seen| seen.unanswered > 0).await;
        for _ in 0..10 {
            call(authority, "greet", "").await;
            get(&format!("{}/nothing", authority.issuer())).await;
        }
    };
    tokio::select! {
        biased;
        answer = try_send(method, &url, &kind, form) => panic!("{:?}", answer.map(|answer| answer.body)),
        () = others => {}
    }
}

async fn has_no_end(url: &str) {
    let error = try_send(Method::GET, url, &[], String::new()).await.err().unwrap();
    assert!(error.contains("is larger than 1048576 bytes"), "{error}");
}

#[tokio::test]
async fn each_does_what_it_says() {
    for &switch in Misbehaviour::ALL {
        let authority = with(switch).await;
        let name = format!("{switch:?}");
        match () {
            () if name.starts_with("Challenge") || name.ends_with("Forever") => {
                challenges(switch, &authority).await;
            }
            () if name.starts_with("ResourceMetadata") => resource_documents(switch, &authority).await,
            () if name.starts_with("Resource") || name.starts_with("No") => {
                resources(switch, &authority).await;
            }
            () if name.starts_with("Metadata") => documents(switch, &authority).await,
            () if name.starts_with("Token") && !name.contains("Endpoint") => tokens(switch, &authority).await,
            () if name.starts_with("Expires") || name.starts_with("Re") && !name.contains("Endpoint") => {
                lasting(switch, &authority).await;
            }
            () if name.starts_with("Dpop") => {} // they have tests of their own
            () => others(switch, &authority).await,
        }
        assert_eq!(authority.observations().canary_connections, 0, "{switch:?}");
    }
    assert!(Misbehaviour::ALL.len() >= 90);
}

async fn challenges(switch: Misbehaviour, authority: &Authority) {
    let refused = call(authority, "greet", "").await;
    let texts: Vec<_> =
        refused.headers.get_all("www-authenticate").iter().map(|text| text.to_str().unwrap()).collect();
    assert_eq!(refused.status, 401);
    let link = resource_metadata_url(authority);
    match switch {
        Misbehaviour::ChallengeMissing => assert!(texts.is_empty(), "{texts:?}"),
        Misbehaviour::ChallengeMalformed => assert!(texts[0].starts_with("\"=,;"), "{texts:?}"),
        Misbehaviour::ChallengeSeveral => {
            assert!(texts.len() == 2 && texts[1].starts_with("Bearer scope"), "{texts:?}");
        }
        Misbehaviour::ChallengeHuge => assert!(texts[0].len() > 64 << 10 && texts[0].contains(&link)),
        Misbehaviour::ChallengeElsewhere => assert!(texts[0].contains(&authority.canary()), "{texts:?}"),
        Misbehaviour::UnauthorizedForever => {
            let access = access_token(&sign_in(authority, "read").await);
            assert_eq!(call(authority, "greet", &access).await.status, 401);
        }
        Misbehaviour::ForbiddenForever => {
            let access = access_token(&sign_in(authority, "read write").await);
            assert_eq!(call(authority, "greet", &access).await.status, 200);
            assert_eq!(call(authority, "write", &access).await.status, 403);
        }
        Misbehaviour::DpopNonceForever => assert!(texts[0].starts_with("DPoP ")),
        _ => panic!("no test for {switch:?}"),
    }
}

async fn resources(switch: Misbehaviour, authority: &Authority) {
    let (mcp, origin) = (authority.mcp_url(), authority.mcp_url().replace("/mcp", ""));
    match switch {
        Misbehaviour::ResourceElsewhere => {
            resource_says(authority, "resource", json!("https://stranger.example/mcp")).await;
        }
        Misbehaviour::ResourceOtherPath => {
            resource_says(authority, "resource", json!(format!("{origin}/other"))).await;
        }
        Misbehaviour::ResourcePrefix => {
            resource_says(authority, "resource", json!(format!("{mcp}-evil"))).await;
        }
        Misbehaviour::ResourceMissing => resource_says(authority, "resource", Value::Null).await,
        Misbehaviour::NoAuthorizationServers => {
            resource_says(authority, "authorization_servers", Value::Null).await;
        }
        Misbehaviour::NoResourceMetadata => {
            assert_eq!(get(&resource_metadata_url(authority)).await.status, 404);
            let metadata = get(&format!("{origin}/.well-known/oauth-authorization-server")).await.json();
            assert_eq!(
                (&metadata["issuer"], &metadata["token_endpoint"]),
                (&json!(origin), &json!(format!("{origin}/token")))
            );
        }
        Misbehaviour::NoMetadata => {
            assert_eq!(get(&format!("{origin}/.well-known/oauth-authorization-server")).await.status, 404);
            let url = authorization_url(authority, &[("resource", "")]).replace(&authority.issuer(), &origin);
            assert!(authority.approve(&url).await.unwrap().parameter("code").is_some());
        }
        Misbehaviour::NoClientDocuments => {
            says(authority, "client_id_metadata_document_supported", Value::Null).await;
        }
        _ => panic!("no test for {switch:?}"),
    }
}

async fn resource_documents(switch: Misbehaviour, authority: &Authority) {
    let url = resource_metadata_url(authority);
    match switch {
        Misbehaviour::ResourceMetadataAtRoot => {
            assert_eq!(get(&url).await.status, 404);
            let root = get(url.strip_suffix("/mcp").unwrap()).await.json();
            assert_eq!(root["resource"], authority.mcp_url().replace("/mcp", ""));
            assert_eq!(
                call(authority, "greet", "").await.header("www-authenticate"),
                "Bearer scope=\"read\""
            );
        }
        Misbehaviour::ResourceMetadataHtml => assert_eq!(get(&url).await.header("content-type"), "text/html"),
        Misbehaviour::ResourceMetadataEndless => has_no_end(&url).await,
        Misbehaviour::ResourceMetadataSilent => is_silent(authority, url, String::new()).await,
        Misbehaviour::ResourceMetadataRedirects => {
            assert!(get(&url).await.header("location").starts_with(&authority.canary()));
        }
        _ => panic!("no test for {switch:?}"),
    }
}

async fn documents(switch: Misbehaviour, authority: &Authority) {
    let url = metadata_url(authority);
    match switch {
        Misbehaviour::MetadataTooLarge | Misbehaviour::MetadataEndless => has_no_end(&url).await,
        Misbehaviour::MetadataSilent => is_silent(authority, url, String::new()).await,
        Misbehaviour::MetadataRedirects => {
            assert!(get(&url).await.header("location").starts_with(&authority.canary()));
        }
        Misbehaviour::MetadataRedirectLoop => assert!(url.ends_with(get(&url).await.header("location"))),
        Misbehaviour::MetadataHtml => assert_eq!(get(&url).await.header("content-type"), "text/html"),
        Misbehaviour::MetadataInvalidJson => assert_eq!(get(&url).await.json(), Value::Null),
        Misbehaviour::MetadataDuplicateKeys => {
            assert_eq!(get(&url).await.body.matches("\"issuer\":").count(), 2);
        }
        Misbehaviour::MetadataOpenIdOnly => {
            assert_eq!(get(&url).await.status, 404);
            let old = format!("{}/.well-known/openid-configuration", authority.issuer());
            assert_eq!(get(&old).await.json()["issuer"], authority.issuer());
        }
        _ => panic!("no test for {switch:?}"),
    }
}

async fn tokens(switch: Misbehaviour, authority: &Authority) {
    if switch == Misbehaviour::TokenSilent {
        return is_silent(authority, format!("{}/token", authority.issuer()), "grant_type=x".into()).await;
    }
    if switch == Misbehaviour::TokenEndless {
        let url = format!("{}/token", authority.issuer());
        let error = try_send(Method::POST, &url, &[], String::new()).await.err().unwrap();
        return assert!(error.contains("is larger than"), "{error}");
    }
    let answer = sign_in(authority, "read").await;
    let (html, token) = (answer.header("content-type") == "text/html", answer.json()["access_token"].clone());
    match switch {
        Misbehaviour::TokenRedirects => {
            assert_eq!(
                (answer.status, answer.header("location")),
                (307, &*format!("{}/token", authority.canary()))
            );
        }
        Misbehaviour::TokenHtmlOk => assert_eq!((answer.status, html), (200, true)),
        Misbehaviour::TokenHtmlError => assert_eq!((answer.status, html), (500, true)),
        Misbehaviour::TokenError => {
            assert_eq!(answer.error(), (400, "invalid_grant".into()));
            assert!(answer.json()["error_description"].as_str().unwrap().contains('\u{1b}'));
        }
        Misbehaviour::TokenEchoes => {
            let said = answer.json()["error_description"].as_str().unwrap().to_owned();
            assert!(answer.status == 400 && said.contains(", code_verifier "), "{said}");
        }
        Misbehaviour::TokenEmpty => assert_eq!((answer.status, &*answer.body), (200, "")),
        Misbehaviour::TokenInvalidJson => {
            assert!(answer.json().is_null() && answer.body.starts_with("{\"access_token\""));
        }
        Misbehaviour::TokenDuplicateKeys => assert_eq!(answer.body.matches("\"access_token\":").count(), 2),
        Misbehaviour::TokenMissing => assert!(token.is_null() && answer.json()["token_type"] == "Bearer"),
        Misbehaviour::TokenTypeMissing => {
            assert!(token.is_string() && answer.json().get("token_type").is_none());
        }
        Misbehaviour::TokenTypeUnknown => assert_eq!(answer.json()["token_type"], "mac"),
        Misbehaviour::TokenTooLarge => assert!(token.as_str().unwrap().len() > 16 << 10),
        Misbehaviour::TokenNewline => assert!(token.as_str().unwrap().contains("\r\nX-Injected: yes")),
        _ => panic!("no test for {switch:?}"),
    }
}

/// Lifetime of tokens, refresh, and registration.
async fn lasting(switch: Misbehaviour, authority: &Authority) {
    if format!("{switch:?}").starts_with("Registration") {
        return registrations(switch, authority).await;
    }
    let answer = sign_in(authority, "read").await;
    let (expires, token) = (answer.json()["expires_in"].clone(), answer.json()["refresh_token"].clone());
    match switch {
        Misbehaviour::ExpiresMissing => assert_eq!(expires, Value::Null),
        Misbehaviour::ExpiresNegative => assert_eq!(expires, -3600),
        Misbehaviour::ExpiresHuge => assert_eq!(expires, u64::MAX),
        Misbehaviour::ExpiresText => assert_eq!(expires, "3600"),
        Misbehaviour::RefreshMissing => assert_eq!(token, Value::Null),
        Misbehaviour::RefreshOffline => {
            assert_eq!(token, Value::Null);
            refresh_token(&sign_in(authority, "read offline_access").await);
        }
        Misbehaviour::RefreshStays => {
            for _ in 0..3 {
                let again = refresh(authority, token.as_str().unwrap()).await;
                assert_eq!((again.status, again.json().get("refresh_token")), (200, None));
            }
        }
        Misbehaviour::RefreshRevoked | Misbehaviour::RefreshRefused => {
            let refused = refresh(authority, token.as_str().unwrap()).await;
            let code =
                if switch == Misbehaviour::RefreshRevoked { "invalid_grant" } else { "interaction_required" };
            assert_eq!(refused.error(), (400, code.into()));
        }
        Misbehaviour::RefreshUnavailable => {
            assert_eq!(refresh(authority, token.as_str().unwrap()).await.status, 503);
            assert_eq!(refresh(authority, token.as_str().unwrap()).await.status, 200);
        }
        Misbehaviour::RevocationFails => {
            let form = [("token", token.as_str().unwrap()), ("client_id", "public-client")];
            assert_eq!(post_form(&format!("{}/revoke", authority.issuer()), &[], &form).await.status, 503);
        }
        _ => panic!("no test for {switch:?}"),
    }
}

async fn registrations(switch: Misbehaviour, authority: &Authority) {
    let answer = register(authority).await;
    match switch {
        Misbehaviour::RegistrationMissing => {
            assert_eq!(answer.status, 404);
            says(authority, "registration_endpoint", Value::Null).await;
            says(authority, "client_id_metadata_document_supported", Value::Null).await;
        }
        Misbehaviour::RegistrationRefused => assert_eq!(answer.error(), (400, "invalid_redirect_uri".into())),
        Misbehaviour::RegistrationHtml => {
            assert_eq!((answer.status, answer.header("content-type")), (403, "text/html"));
        }
        Misbehaviour::RegistrationOtherRedirect => {
            assert_eq!(answer.json()["redirect_uris"], json!(["https://stranger.example/callback"]));
        }
        Misbehaviour::RegistrationWithoutClientId => {
            assert_eq!((answer.status, answer.json().get("client_id")), (201, None));
        }
        _ => panic!("no test for {switch:?}"),
    }
}

async fn others(switch: Misbehaviour, authority: &Authority) {
    let issuer = authority.issuer();
    let (token, authorization, stranger) =
        ("token_endpoint", "authorization_endpoint", "https://stranger.example");
    match switch {
        Misbehaviour::FirstServerBroken => {
            let first = issuer.replace("/tenant", "/broken");
            resource_says(authority, "authorization_servers", json!([first, issuer])).await;
            let broken = issuer.replace("/tenant", "/.well-known/oauth-authorization-server/broken");
            assert_eq!(get(&broken).await.status, 500);
        }
        Misbehaviour::IssuerWrong => says(authority, "issuer", json!(stranger)).await,
        Misbehaviour::IssuerTrailingSlash => says(authority, "issuer", json!(format!("{issuer}/"))).await,
        Misbehaviour::IssuerMissing => says(authority, "issuer", Value::Null).await,
        Misbehaviour::IssuerMoves => moves(authority).await,
        Misbehaviour::PkceMissing => says(authority, "code_challenge_methods_supported", Value::Null).await,
        Misbehaviour::PkcePlain => {
            says(authority, "code_challenge_methods_supported", json!(["plain"])).await;
        }
        Misbehaviour::EndpointsPlainHttp => {
            says(authority, token, json!("http://auth.example.com/token_endpoint")).await;
        }
        Misbehaviour::TokenEndpointPrivate => says(authority, token, json!("https://10.0.0.1/token")).await,
        Misbehaviour::TokenEndpointLinkLocal => {
            says(authority, token, json!("https://169.254.169.254/token")).await;
        }
        Misbehaviour::TokenEndpointPrivateIpv6 => {
            says(authority, token, json!("https://[fd00::1]/token")).await;
        }
        Misbehaviour::TokenEndpointMissing => says(authority, token, Value::Null).await,
        Misbehaviour::RegistrationEndpointPrivate => {
            says(authority, "registration_endpoint", json!("https://10.0.0.1/register")).await;
        }
        Misbehaviour::AuthorizationEndpointJavascript => {
            says(authority, authorization, json!("javascript:alert(1)")).await;
        }
        Misbehaviour::AuthorizationEndpointFile => {
            says(authority, authorization, json!("file:///bin/sh")).await;
        }
        Misbehaviour::AuthorizationEndpointUserinfo => {
            let url = authority.canary().replace("http://", "http://accounts.example.com@") + "/authorize";
            says(authority, authorization, json!(url)).await;
        }
        Misbehaviour::AuthorizationEndpointCommand => {
            says(authority, authorization, json!("--renderer-cmd-prefix=$(touch /tmp/x)")).await;
        }
        Misbehaviour::ScopesFewer => {
            assert_eq!(sign_in(authority, "read write").await.json()["scope"], "read");
        }
        Misbehaviour::CodeUsed => {
            assert_eq!(sign_in(authority, "read").await.error(), (400, "invalid_grant".into()));
        }
        Misbehaviour::CodeTwice => {
            let redirect = approve(authority, &[]).await;
            for _ in 0..2 {
                access_token(&redeem(authority, redirect.parameter("code").unwrap(), &[]).await);
            }
        }
        _ => ways_back(switch, authority, approve(authority, &[]).await).await,
    }
}

async fn ways_back(switch: Misbehaviour, authority: &Authority, redirect: Redirect) {
    let [code, state, iss, error] = ["code", "state", "iss", "error"].map(|name| redirect.parameter(name));
    let issuer = authority.issuer();
    let announced = metadata(authority).await["authorization_response_iss_parameter_supported"] == true;
    let stranger = Some("https://stranger.example");
    match switch {
        Misbehaviour::StateMixedUp => {
            assert!(code.is_some() && state.is_some_and(|state| state != "a-state"));
        }
        Misbehaviour::StateMissing => assert!(code.is_some() && state.is_none()),
        Misbehaviour::IssWrong => assert!(code.is_some() && iss == stranger),
        Misbehaviour::IssMissing => assert!(code.is_some() && iss.is_none() && announced),
        Misbehaviour::IssNormalized => {
            assert_eq!(iss.unwrap(), format!("{}/", issuer.replace("http:", "HTTP:")));
        }
        Misbehaviour::IssUnannounced => assert!(iss == Some(&*issuer) && !announced),
        Misbehaviour::IssUnsupported => assert!(iss.is_none() && !announced),
        Misbehaviour::AccessDenied | Misbehaviour::AccessDeniedIssWrong => {
            assert_eq!((code, state, error), (None, Some("a-state"), Some("access_denied")));
            assert_eq!(iss == stranger, switch == Misbehaviour::AccessDeniedIssWrong);
            assert!(redirect.parameter("error_description").unwrap().contains("\u{1b}[2J"));
        }
        Misbehaviour::CodeMissing => assert_eq!((code, error, iss), (None, None, Some(&*issuer))),
        _ => panic!("no test for {switch:?}"),
    }
}

async fn moves(authority: &Authority) {
    let issuer = authority.issuer();
    resource_says(authority, "authorization_servers", json!([issuer])).await;
    access_token(&sign_in(authority, "read").await);
    let moved = issuer.replace("/tenant", "/moved");
    resource_says(authority, "authorization_servers", json!([moved])).await;
    let document =
        get(&issuer.replace("/tenant", "/.well-known/oauth-authorization-server/moved")).await.json();
    assert_eq!(document["issuer"], moved);
    let url = authorization_url(authority, &[]).replace(&issuer, &moved);
    assert_eq!(get(&url).await.body, "unknown client");
}

#[tokio::test]
async fn anything_else_can_be_said_too() {
    let behaviour = Authority::conforming()
        .metadata("token_endpoint", "https://elsewhere.example/token")
        .metadata("jwks_uri", Value::Null)
        .resource_metadata("scopes_supported", json!(["a"]))
        .challenge("Bearer realm=\"x\"");
    let authority = start(behaviour).await;
    says(&authority, "token_endpoint", json!("https://elsewhere.example/token")).await;
    says(&authority, "jwks_uri", Value::Null).await;
    resource_says(&authority, "scopes_supported", json!(["a"])).await;
    assert_eq!(call(&authority, "greet", "").await.header("www-authenticate"), "Bearer realm=\"x\"");
    authority.set_behaviour(Authority::conforming());
    says(&authority, "jwks_uri", json!(format!("{}/jwks", authority.issuer()))).await;
}

#[tokio::test]
async fn the_canary_sings() {
    let authority = start(Authority::conforming()).await;
    assert!(try_send(Method::GET, &authority.canary(), &[], String::new()).await.is_err());
    assert_eq!(authority.observations().canary_connections, 1);
}
