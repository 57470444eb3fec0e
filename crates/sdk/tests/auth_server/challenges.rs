//! Rejections of requests, byte for byte.

use http::{Method, Request};
use linchpin::server::HttpService;
use linchpin::{Auth, Dpop, Revision};

use crate::issuer::{
    Calls, ISSUER, Key, METADATA, RESOURCE, auth, call, challenges, claims, now, refusal, set,
};
use crate::support::web::{TestClient, request, with};

pub(crate) const ALGORITHMS: &str = "RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 EdDSA";

async fn send(web: &HttpService, request: Request<String>) -> (u16, Vec<String>, String) {
    refusal(TestClient::new(web, Revision::LATEST).handle(request).await, "").await
}

#[tokio::test]
async fn who_sends_no_token_learns_where_to_get_one() {
    let (key, calls) = (Key::new("k1"), Calls::default());
    let web = calls.serve(auth(&key));
    let usual = format!("Bearer resource_metadata=\"{METADATA}\", scope=\"mcp:basic\"");
    let text = "authentication required: send an access token";
    for headers in [
        &[][..],
        &[("authorization", "Basic YTpi")],
        &[("authorization", "DPoP abc")],
        &[("authorization", "Bearerish abc")],
    ] {
        let answer = call(&web, "plain", headers).await;
        assert_eq!(refusal(answer, "").await, (401, vec![usual.clone()], text.to_owned()));
    }
    for method in [Method::GET, Method::DELETE, Method::POST, Method::PUT, Method::PATCH] {
        let request = request(method, "/mcp").body(String::new()).unwrap();
        assert_eq!(send(&web, request).await, (401, vec![usual.clone()], text.to_owned()));
    }
    // Without required scopes, a challenge has no `scope`.
    let web = calls.serve(Auth::jwt(ISSUER, RESOURCE).keys(set(&[&key])));
    let bare = vec![format!("Bearer resource_metadata=\"{METADATA}\"")];
    assert_eq!(challenges(&call(&web, "plain", &[]).await.headers), bare);
    assert_eq!(calls.count(), 0);
}

#[tokio::test]
async fn headers_that_nobody_can_read_are_bad_requests() {
    let (key, calls) = (Key::new("k1"), Calls::default());
    let web = calls.serve(auth(&key));
    let token = key.sign(&claims());
    let good = format!("Bearer {token}");
    let said = |text: &str| {
        let challenge = format!(
            "Bearer resource_metadata=\"{METADATA}\", scope=\"mcp:basic\", error=\"invalid_request\", \
             error_description=\"{text}\""
        );
        (400, vec![challenge], text.to_owned())
    };
    let written = "the Authorization header must have the form: Bearer token";
    let long = format!("Bearer {}", "a".repeat(16_385));
    for (value, text) in [
        ("Bearer", written),
        ("Bearer ", written),
        ("bearer a b", written),
        ("Bearer a,b", written),
        ("Bearer \"a\"", written),
        ("Bearer a=b", written),
        ("Bearer ==", written),
        ("Bearer a\tb", written),
        (&long, "the token is longer than 16384 bytes"),
    ] {
        assert_eq!(
            refusal(call(&web, "plain", &[("authorization", value)]).await, "").await,
            said(text),
            "{value:?}"
        );
    }
    let twice = [("authorization", &*good), ("authorization", &*good)];
    assert_eq!(
        refusal(call(&web, "plain", &twice).await, &token).await,
        said("the Authorization header occurs more than once")
    );

    let in_url = said("send the token in the Authorization header, not in the URL");
    for query in [format!("access_token={token}"), format!("a=b&access_token={token}"), "access_token".into()]
    {
        for header in [&[][..], &[("authorization", &*good)]] {
            let request = request(Method::POST, &format!("/mcp?{query}")).body("{}".into()).unwrap();
            assert_eq!(send(&web, with(request, header)).await, in_url);
        }
    }
    let form = request(Method::POST, "/mcp").body(format!("access_token={token}")).unwrap();
    let form = with(form, &[("content-type", "application/x-www-form-urlencoded; charset=utf-8")]);
    assert_eq!(send(&web, form).await, said("send the token in the Authorization header, not in a form"));
    assert_eq!(calls.count(), 0);
}

#[tokio::test]
async fn the_name_of_a_scheme_is_written_in_any_case() {
    let (key, calls) = (Key::new("k1"), Calls::default());
    let web = calls.serve(auth(&key));
    let token = key.sign(&claims());
    for scheme in ["Bearer", "bearer", "BEARER", "bEaReR "] {
        let answer = call(&web, "plain", &[("authorization", &format!("{scheme} {token}"))]).await;
        assert_eq!(answer.status, 200, "{scheme}");
    }
    assert_eq!(calls.count(), 4);
}

#[tokio::test]
async fn each_way_to_send_a_token_has_its_challenge() {
    let key = Key::new("k1");
    let calls = Calls::default();
    let rest = format!("resource_metadata=\"{METADATA}\", scope=\"mcp:basic\"");
    let bearer = format!("Bearer {rest}");
    let proof = format!("DPoP algs=\"{ALGORITHMS}\", {rest}");
    let optional = calls.serve(auth(&key).dpop(Dpop::Optional));
    assert_eq!(challenges(&call(&optional, "plain", &[]).await.headers), [bearer.clone(), proof.clone()]);
    let required = calls.serve(auth(&key).dpop(Dpop::Required));
    assert_eq!(challenges(&call(&required, "plain", &[]).await.headers), std::slice::from_ref(&proof));

    // The error is in the challenge of the scheme that was used.
    let wrong =
        ", error=\"invalid_token\", error_description=\"the token is not bound to a key: use Bearer\"";
    let unbound = format!("DPoP {}", key.sign(&claims()));
    let found = challenges(&call(&optional, "plain", &[("authorization", &unbound)]).await.headers);
    assert_eq!(found, [bearer, format!("{proof}{wrong}")]);
    let plain = format!("Bearer {}", key.sign(&claims()));
    let text = "only DPoP-bound tokens are accepted";
    let found = challenges(&call(&required, "plain", &[("authorization", &plain)]).await.headers);
    assert_eq!(found, [format!("{proof}, error=\"invalid_token\", error_description=\"{text}\"")]);
    assert_eq!(calls.count(), 0);
}

#[test]
fn what_cannot_be_is_told_when_the_server_is_built() {
    let key = Key::new("k1");
    let fault = |auth: Auth| {
        let error = Calls::default().server().http().auth(auth).into_service().err().unwrap().to_string();
        error.strip_prefix("invalid `auth`: ").unwrap_or(&error).to_owned()
    };
    let jwt = |issuer: &str, resource: &str| Auth::jwt(issuer, resource).keys(set(&[&key])).clock(now);
    for (auth, text) in [
        (
            jwt("http://auth.example.com", RESOURCE),
            "the issuer http://auth.example.com/ must use https; plain http is accepted only for this machine",
        ),
        (jwt("auth.example.com", RESOURCE), "the issuer: the URL cannot be used"),
        (
            jwt(ISSUER, "http://mcp.example.com/mcp"),
            "the resource http://mcp.example.com/mcp must use https; ",
        ),
        (
            jwt(ISSUER, "https://mcp.example.com/mcp?a=b"),
            "the resource https://mcp.example.com/mcp must not have a query or a fragment",
        ),
        (jwt(ISSUER, "https://mcp.example.com/mcp#a"), "the resource"),
        (auth(&key).require(["a b"]), "\"a b\" is not a valid scope"),
        (auth(&key).require(["offline_access"]), "offline_access is not a scope of a resource server"),
        (auth(&key).scopes_supported(["offline_access"]), "offline_access is not a scope"),
        (auth(&key).scope_implies("admin", ["\""]), "\"\\\"\" is not a valid scope"),
        (auth(&key).skew(std::time::Duration::from_secs(61)), "the clock skew must be at most 60 seconds"),
        (auth(&key).algorithms([]), "at least one algorithm must be accepted"),
        (auth(&key).keys(serde_json::json!({"keys": []})), "no usable key found"),
        (auth(&key).keys(serde_json::json!([])), "no JWK set found"),
        (
            auth(&key).jwks_uri("http://keys.example.com/"),
            "the URL of the keys http://keys.example.com/ must use https; ",
        ),
        (
            Auth::opaque(Vec::<String>::new(), RESOURCE, |_| async { Ok(None) }),
            "an authorization server is required",
        ),
    ] {
        let found = fault(auth);
        assert!(found.starts_with(text), "{found}");
    }
    let both = Calls::default().server().http().auth(auth(&key)).principal(|_| Ok(None)).into_service();
    assert_eq!(both.err().unwrap().to_string(), "set either `auth` or `principal`, not both");
    let twice = Calls::default().server().http().auth(auth(&key)).auth(auth(&key)).into_service();
    assert!(twice.err().unwrap().to_string().contains("`auth` is set more than once"));
}
