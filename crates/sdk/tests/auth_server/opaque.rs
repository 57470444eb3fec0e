//! Opaque tokens, resolved by a lookup function.

use std::time::Duration;

use linchpin::{Auth, Dpop, Error, Identity};

use crate::issuer::{Calls, ISSUER, RESOURCE, call_with, now, refusal};
use crate::support::web::text_of;

fn auth() -> Auth {
    let lookup = |token: linchpin::auth::Secret| async move {
        assert!(!format!("{token:?}").contains(token.expose()));
        let identity = Identity::new("ada").with_issuer(ISSUER).with_claim("jti", "7");
        match token.expose() {
            "good" => Ok(Some(identity.with_scopes(["a"]).with_expiry(now() + Duration::from_secs(1)))),
            "old" => Ok(Some(identity.with_expiry(now()))),
            "bound" => Ok(Some(identity.bound_to_key("thumb"))),
            "broken" => Err(Error::tool("the database of broken is gone")),
            _ => Ok(None),
        }
    };
    Auth::opaque([ISSUER], RESOURCE, lookup).clock(now)
}

#[tokio::test]
async fn who_knows_them_says_who_asks() {
    let calls = Calls::default();
    let web = calls.serve(auth());
    let who = text_of(&call_with(&web, "who", "good").await.message().await);
    assert_eq!(who, "ada Some(\"https://auth.example.com\") None a 7");
    for (token, status, text) in [
        ("unknown", 401, "the token is unknown"),
        ("old", 401, "the token has expired"),
        ("bound", 401, "the token is bound to a key, but this server does not support DPoP"),
        ("broken", 503, "tokens cannot be verified now: try again later"),
    ] {
        let answer = call_with(&web, "plain", token).await;
        assert_eq!(answer.header("retry-after"), (status == 503).then_some("5"));
        let (found, challenges, said) = refusal(answer, "").await;
        assert_eq!((found, &*said), (status, text));
        assert_eq!(challenges.is_empty(), status == 503, "the client should not discard its token");
    }
    let web = calls.serve(auth().dpop(Dpop::Optional));
    let (_, _, text) = refusal(call_with(&web, "plain", "bound").await, "").await;
    assert_eq!(text, "the token is bound to a key: use DPoP with a proof");
    assert_eq!(calls.count(), 0);
}
