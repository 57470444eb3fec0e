//! Sign-in with our client and server, a third-party authorization server, and a user at a browser.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::path::Path;
use std::sync::{Arc, Mutex};

use interop_tests::client::text;
use interop_tests::oauth_fixture::OAuthFixture;
use linchpin::auth::OAuth;
use linchpin::egress::Egress;
use linchpin::{Client, Dpop};
use serde_json::Value;

const NO_ACTIONS: [&str; 0] = [];

async fn open(name: &str, dpop: Option<Dpop>) -> OAuthFixture {
    OAuthFixture::open(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("sign-in").join(name), dpop).await
}

async fn call(client: &Client, tool: &str) -> Value {
    text(client.call(tool, ()).await)
}

/// Records the authorization steps of a client.
fn traced(program: OAuth) -> (OAuth, Arc<Mutex<Vec<String>>>) {
    let steps = Arc::new(Mutex::new(Vec::new()));
    let told = steps.clone();
    let program = program.on_step(move |step| {
        let purpose = step.purpose.map_or_else(|| "a person".to_owned(), |purpose| purpose.to_string());
        told.lock().unwrap().push(purpose);
    });
    (program, steps)
}

/// Checks the headings of the pages shown to the user and the scopes they consented to.
fn check_pages(place: &OAuthFixture, headings: &[&str], scopes: &[&str]) {
    let pages = place.take_pages();
    let (back, asked) = pages.split_last().unwrap();
    assert_eq!(asked.iter().map(|page| &*page[0]).collect::<Vec<_>>(), headings, "{pages:?}");
    assert!(back[0].starts_with("Sign-in response received"), "{back:?}");
    let resource = format!("{}:", place.server());
    let mut wanted = vec!["Authorize", &resource];
    wanted.extend(scopes);
    wanted.extend(["the client is asking to have offline access to this authorization", "Continue"]);
    let agreed = asked.last().unwrap();
    assert_eq!(agreed[..wanted.len()], wanted);
}

/// The provider rejects scopes of other servers in a registration, though it grants them later.
const REGISTRATION_REJECTED: &str = "refused registration invalid_client_metadata";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sign_in_from_its_beginning_to_its_end() {
    let mut place = open("bearer", None).await;
    let (program, steps) = traced(place.client_with_user("store"));
    let client = place.connect(program.clone()).await.unwrap();
    assert_eq!(
        *steps.lock().unwrap(),
        [
            "protected resource metadata",
            "authorization server metadata",
            "client registration",
            "client registration",
            "a person",
            "token request"
        ]
    );
    check_pages(&place, &["Sign-in", "Authorize"], &["mcp:basic"]);
    assert_eq!(
        place.take_actions(),
        [
            REGISTRATION_REJECTED,
            "registered",
            "shown login",
            "shown consent",
            "granted authorization_code Bearer mcp:basic"
        ]
    );
    let tools = client.tools().all().await.unwrap();
    assert_eq!(tools.iter().map(|tool| &*tool.name).collect::<Vec<_>>(), ["who", "write"]);
    assert_eq!(call(&client, "who").await, "ada");

    refreshes_automatically(&mut place, &client).await;
    asks_for_more(&mut place, &client).await;
    let other = place.connect(place.client_without_user("store")).await.unwrap();
    is_shared(&mut place, &client, &other).await;
    begins_again_where_it_was_revoked(&mut place, &client).await;

    assert_eq!(call(&other, "write").await, "written");
    program.sign_out(place.server(), &Egress::default()).await.unwrap();
    assert_eq!(place.take_actions(), ["revoked"]);
    place.expire_tokens();
    let refused = call(&other, "who").await;
    assert!(refused["error"].as_str().unwrap().contains("sign-in required"), "{refused}");
    assert_eq!(place.take_actions(), NO_ACTIONS, "a revoked grant is not used again");
    assert_eq!(place.take_pages().len(), 0);
}

/// Refreshes twice, since the second refresh needs the refresh token of the first.
async fn refreshes_automatically(place: &mut OAuthFixture, client: &Client) {
    for _ in 0..2 {
        place.expire_tokens();
        assert_eq!(call(client, "who").await, "ada");
        assert_eq!(call(client, "who").await, "ada");
        assert_eq!(place.take_actions(), ["granted refresh_token Bearer mcp:basic"]);
    }
    assert_eq!(place.take_pages().len(), 0);
}

async fn asks_for_more(place: &mut OAuthFixture, client: &Client) {
    assert_eq!(call(client, "write").await, "written");
    check_pages(place, &["Authorize"], &["mcp:basic", "mcp:write"]);
    assert_eq!(
        place.take_actions(),
        ["registered", "shown consent", "granted authorization_code Bearer mcp:basic mcp:write"]
    );
}

/// The second client needs no sign-in, and only one of the two refreshes the token.
async fn is_shared(place: &mut OAuthFixture, client: &Client, other: &Client) {
    assert_eq!(call(other, "write").await, "written");
    assert_eq!(place.take_actions(), NO_ACTIONS);
    place.expire_tokens();
    assert_eq!(call(other, "write").await, "written");
    assert_eq!(call(client, "write").await, "written");
    assert_eq!(place.take_actions(), ["granted refresh_token Bearer mcp:basic mcp:write"]);
    assert_eq!(place.take_pages().len(), 0);
}

async fn begins_again_where_it_was_revoked(place: &mut OAuthFixture, client: &Client) {
    place.revoke_everything();
    place.expire_tokens();
    assert_eq!(call(client, "write").await, "written");
    check_pages(place, &["Authorize"], &["mcp:basic", "mcp:write"]);
    assert_eq!(
        place.take_actions(),
        [
            "refused refresh_token invalid_grant",
            "registered",
            "shown consent",
            "granted authorization_code Bearer mcp:basic mcp:write"
        ]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_that_are_bound_to_a_key() {
    let mut place = open("dpop", Some(Dpop::Required)).await;
    let client = place.connect(place.client_with_user("store")).await.unwrap();
    assert_eq!(call(&client, "who").await, "ada");
    check_pages(&place, &["Sign-in", "Authorize"], &["mcp:basic"]);
    assert_eq!(
        place.take_actions(),
        [
            REGISTRATION_REJECTED,
            "registered",
            "shown login",
            "shown consent",
            "refused authorization_code use_dpop_nonce",
            "granted authorization_code DPoP mcp:basic"
        ]
    );
    place.expire_tokens();
    // The key is stored with the tokens.
    let other = place.connect(place.client_without_user("store")).await.unwrap();
    assert_eq!(call(&other, "who").await, "ada");
    assert_eq!(call(&client, "who").await, "ada");
    let renewed = ["refused refresh_token use_dpop_nonce", "granted refresh_token DPoP mcp:basic"];
    assert_eq!(place.take_actions(), renewed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_declines_is_not_let_in_and_may_change_their_mind() {
    let mut place = open("declined", None).await;
    let declined = place.connect(place.client_with_denying_user("store")).await.unwrap_err().to_string();
    assert!(declined.contains("denied authorization: error `access_denied`"), "{declined}");
    let back = place.take_pages().pop().unwrap();
    assert!(back[0].starts_with("Sign-in failed."), "{back:?}");
    assert_eq!(place.take_actions(), [REGISTRATION_REJECTED, "registered", "shown login", "shown consent"]);

    // The user is already logged in. The requested scopes cannot be registered.
    let wanted = place.client_with_user("store").scopes(["mcp:write", "mcp:basic"]);
    let client = place.connect(wanted).await.unwrap();
    check_pages(&place, &["Authorize"], &["mcp:write", "mcp:basic"]);
    assert_eq!(
        place.take_actions(),
        [
            REGISTRATION_REJECTED,
            "registered",
            "shown consent",
            "granted authorization_code Bearer mcp:write mcp:basic"
        ]
    );
    assert_eq!(call(&client, "write").await, "written");
    assert_eq!(place.take_actions(), NO_ACTIONS);
}
