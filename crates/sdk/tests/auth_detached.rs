//! Detached sign-in: the serialized flow state is all that another process needs after the redirect.
#![cfg(feature = "http")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::{Arc, Mutex};

use linchpin::auth::{AuthErrorKind, MemoryStore, OAuth, Secret};
use linchpin::egress::Egress;
use linchpin::testing::authority::{Authority, Misbehaviour};
use linchpin::{CallError, Client, ClientError};

#[path = "support/signing_in.rs"]
mod signing_in;

use signing_in::{REDIRECT_URL, start};

type Left = Arc<Mutex<Option<(String, Secret)>>>;

/// Returns a client with a detached redirect handler, and the recorded flow state.
fn leaving(authority: &Authority) -> (OAuth, Left) {
    let left = Left::default();
    let kept = left.clone();
    let oauth = OAuth::new("A test").clock(authority.clock()).on_detached_redirect(
        REDIRECT_URL,
        move |url, flow_state| {
            *kept.lock().unwrap() = Some((url, flow_state));
            async { Ok(()) }
        },
    );
    (oauth, left)
}

/// Starts a sign-in with one client; another one completes it.
async fn away(authority: &Authority) -> (String, Secret) {
    let (oauth, left) = leaving(authority);
    let error = Client::http(authority.mcp_url()).auth(oauth).connect().await.unwrap_err();
    let ClientError::Call(CallError::Transport { message, .. }) = &error else { panic!("{error}") };
    assert!(message.contains("redirected to sign in"), "{message}");
    let (url, flow_state) = left.lock().unwrap().take().unwrap();
    assert!(!format!("{flow_state:?}").contains("verifier"));
    (authority.approve(&url).await.unwrap().url, flow_state)
}

#[tokio::test]
async fn another_process_goes_on_where_one_left() {
    for behaviour in [Authority::conforming(), Authority::conforming().with(Misbehaviour::DpopNonce)] {
        let authority = start(behaviour).await;
        let (back, flow_state) = away(&authority).await;
        let other = OAuth::new("A test").clock(authority.clock()).store(MemoryStore::default());
        other.resume_sign_in(&authority.mcp_url(), &Egress::default(), &flow_state, &back).await.unwrap();
        assert!(other.granted(&authority.mcp_url()).unwrap().contains("read"));
        let client = Client::http(authority.mcp_url()).auth(other.clone()).connect().await.unwrap();
        client.call("greet", ()).await.unwrap();
        let again = other.resume_sign_in(&authority.mcp_url(), &Egress::default(), &flow_state, &back).await;
        assert_eq!(again.unwrap_err().code(), Some("invalid_grant"), "a code works once");
    }
}

#[tokio::test]
async fn what_does_not_belong_together_is_refused() {
    let authority = start(Authority::conforming()).await;
    let ((back, _), (_, flow_state)) = (away(&authority).await, away(&authority).await);
    let other = OAuth::new("A test");
    let (url, egress) = (authority.mcp_url(), Egress::default());
    let error = other.resume_sign_in(&url, &egress, &flow_state, &back).await.unwrap_err();
    assert_eq!(error.kind(), AuthErrorKind::Callback, "{error}");
    let error = other.resume_sign_in(&url, &egress, &"{}".into(), &back).await.unwrap_err();
    assert!(error.to_string().contains("sign in again"), "{error}");
    assert_eq!(
        authority.observations().requests.iter().filter(|request| request.path.ends_with("/token")).count(),
        0
    );
}

#[tokio::test]
async fn somebody_signs_in_before_the_server_wants_it() {
    let authority = start(Authority::conforming()).await;
    let (oauth, left) = leaving(&authority);
    let error = oauth.sign_in(&authority.mcp_url(), &Egress::default()).await.unwrap_err();
    assert_eq!(error.kind(), AuthErrorKind::Redirected, "{error}");
    assert!(left.lock().unwrap().is_some());
}

#[tokio::test]
async fn what_another_program_has_kept_is_used_when_it_is_told() {
    let authority = start(Authority::conforming()).await;
    let store = Arc::new(MemoryStore::default());
    let program = || OAuth::new("A test").clock(authority.clock()).store(store.clone());
    let (one, two) = (program(), program());
    let (url, egress) = (authority.mcp_url(), Egress::default());
    let (back, flow_state) = away(&authority).await;
    one.resume_sign_in(&url, &egress, &flow_state, &back).await.unwrap();
    let client = Client::http(&url).auth(one.clone()).connect().await.unwrap();
    let used = || {
        let seen = authority.observations();
        seen.requests.last().unwrap().header("authorization").to_owned()
    };
    client.call("greet", ()).await.unwrap();
    let first = used();
    let (back, flow_state) = away(&authority).await;
    two.resume_sign_in(&url, &egress, &flow_state, &back).await.unwrap();
    client.call("greet", ()).await.unwrap();
    assert_eq!(used(), first, "not reloaded yet");
    one.reload();
    client.call("greet", ()).await.unwrap();
    assert_ne!(used(), first);
    two.sign_out(&url, &egress).await.unwrap();
    one.reload();
    client.call("greet", ()).await.unwrap_err();
}
