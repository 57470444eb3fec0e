//! Request state from clients is untrusted: state that was changed, or that belongs to another server, request or
//! principal, is rejected, and invalid input responses are harmless.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use linchpin::{Context, Prompt, Result, Server, Service, StateKey, StateKeys, Tool, args};
use serde_json::{Value, json};
use support::rounds::{Rounds, input_required, named};
use support::{Clock, Peer, STATELESS, session_revisions};

#[args]
struct Name {
    name: String,
}

#[args]
struct Payment {
    amount: Option<u32>,
    to: Option<Address>,
}

#[derive(Default, serde::Deserialize, schemars::JsonSchema)]
#[serde(default)]
struct Address {
    street: String,
    town: String,
}

async fn pay(payment: Payment, cx: Context) -> Result<String> {
    let name = cx.elicit::<Name>("Who gets it?").await?.name;
    let to = payment.to.unwrap_or_default();
    Ok(format!("{} to {name} {}{}", payment.amount.unwrap_or_default(), to.street, to.town))
}

#[args]
struct Nothing {}

fn server(keys: StateKeys) -> Server {
    Server::new("bank", "1")
        .keys(keys)
        .add(Tool::new("pay").handler(pay))
        .add(Tool::new("pay_again").read_only().handler(pay))
        .add(
            Prompt::new("pay").handler(|_: Nothing, cx: Context| pay(Payment { amount: None, to: None }, cx)),
        )
}

fn key(byte: u8) -> StateKey {
    StateKey::new(&[byte; 32])
}

fn instance(keys: StateKeys) -> Service {
    server(keys).build().unwrap()
}

fn call(name: &str) -> Rounds {
    Rounds::tool(name, json!({"amount": 3, "to": {"street": "A", "town": "B"}}))
}

/// A state that this server did not issue for this request.
async fn check_refused(rounds: &Rounds, service: &Service, state: &Value, what: &str) {
    let (code, path, message) = rounds.expect_error(service, state, named("q1", "Ada")).await;
    assert_eq!((code, path), (-32602, json!("/requestState")), "{what}");
    assert!(message.contains("the requestState was not issued for this request"), "{what}: {message}");
}

#[tokio::test(start_paused = true)]
async fn every_changed_character_is_refused_and_does_no_harm() {
    let here = instance(StateKeys::new(key(1)));
    let state = call("pay").begin(&here).await.state;
    let text = state.as_str().unwrap();
    for at in 0..text.len() {
        for flip in [1, 2, 4, 8, 16, 32, 64, 3, 0x55] {
            let mut bytes = text.as_bytes().to_vec();
            bytes[at] ^= flip;
            let changed = String::from_utf8(bytes).unwrap();
            check_refused(&call("pay"), &here, &json!(changed), &format!("{at} ^ {flip}")).await;
        }
    }
    assert_eq!(call("pay").finish(&here, &state, named("q1", "Ada")).await, "3 to Ada AB");
}

#[tokio::test(start_paused = true)]
async fn what_is_no_state_is_refused() {
    let here = instance(StateKeys::new(key(1)));
    let state = call("pay").begin(&here).await.state;
    let text = state.as_str().unwrap();
    for length in 0..text.len() {
        check_refused(&call("pay"), &here, &json!(text[..length]), "a beginning").await;
    }
    let long = "A".repeat(1 << 20);
    for wrong in [&format!("{text}A"), &format!("{text}="), &format!(" {text}"), &long, &text.repeat(2), "ü"]
    {
        check_refused(&call("pay"), &here, &json!(wrong), "no state").await;
    }
    for wrong in [json!(1), json!(true), json!([state]), json!({"state": state})] {
        let (code, path, message) = call("pay").expect_error(&here, &wrong, named("q1", "Ada")).await;
        assert_eq!((code, path), (-32602, json!("/requestState")), "{wrong}");
        assert!(message.contains("must be a string"), "{message}");
    }
    // A null state counts as none: the call starts.
    input_required(&call("pay").retry(&here, &Value::Null, named("q1", "Ada")).await);
    assert_eq!(call("pay").finish(&here, &state, named("q1", "Ada")).await, "3 to Ada AB");
}

#[tokio::test(start_paused = true)]
async fn keys_can_be_shared_changed_and_kept_apart() {
    let (old, new) = (instance(StateKeys::new(key(1))), instance(StateKeys::new(key(2)).with_older(key(1))));
    let pay = call("pay_again");
    let state = pay.begin(&old).await.state;
    check_refused(&pay, &instance(StateKeys::new(key(2))), &state, "another key").await;
    check_refused(&pay, &instance(StateKeys::new(StateKey::random())), &state, "a key of its own").await;
    assert_eq!(
        pay.finish(&instance(StateKeys::new(key(1))), &state, named("q1", "Ada")).await,
        "3 to Ada AB"
    );
    assert_eq!(pay.finish(&new, &state, named("q1", "Ada")).await, "3 to Ada AB", "the old key opens");
    let state = pay.begin(&new).await.state;
    check_refused(&pay, &old, &state, "the new key seals").await;
    let unkeyed = || Server::new("bank", "1").add(Tool::new("pay_again").read_only().handler(self::pay));
    let (one, other) = (unkeyed().build().unwrap(), unkeyed().build().unwrap());
    let state = pay.begin(&one).await.state;
    check_refused(&pay, &other, &state, "each process has its own key").await;
}

#[tokio::test(start_paused = true)]
async fn a_state_is_for_one_principal_one_server_and_one_request() {
    let here = instance(StateKeys::new(key(1)));
    let (ada, eve) = (here.for_principal("ada"), here.for_principal("eve"));
    let pay = call("pay_again");
    let state = pay.begin(&ada).await.state;
    check_refused(&pay, &eve, &state, "another principal").await;
    check_refused(&pay, &here, &state, "no principal").await;
    let other = server(StateKeys::new(key(1))).audience("another bank").build().unwrap();
    check_refused(&pay, &other.for_principal("ada"), &state, "another audience").await;
    let to = json!({"street": "A", "town": "B"});
    for (what, other) in [
        ("another amount", Rounds::tool("pay_again", json!({"amount": 4, "to": to}))),
        ("an argument more", Rounds::tool("pay_again", json!({"amount": 3, "to": to, "x": null}))),
        ("an argument less", Rounds::tool("pay_again", json!({"amount": 3}))),
        ("another argument inside", Rounds::tool("pay_again", json!({"amount": 3, "to": {"street": "AB"}}))),
        ("no arguments", Rounds::of("tools/call", json!({"name": "pay_again"}))),
        ("another tool", call("pay")),
        ("another method", Rounds::of("prompts/get", json!({"name": "pay"}))),
    ] {
        check_refused(&other, &ada, &state, what).await;
    }
    // The order of the arguments is irrelevant.
    let reordered = json!({"to": {"town": "B", "street": "A"}, "amount": 3});
    let reordered = Rounds::tool("pay_again", reordered);
    assert_eq!(reordered.finish(&ada, &state, named("q1", "Ada")).await, "3 to Ada AB");
}

#[tokio::test(start_paused = true)]
async fn malformed_answers_are_refused_with_their_place_and_can_be_corrected() {
    let here = instance(StateKeys::new(key(1)));
    for (name, service) in [("pay", here.clone()), ("pay_again", here.without_parking())] {
        let pay = call(name);
        let state = pay.begin(&service).await.state;
        for (wrong, place) in [
            (json!({"q1": {"action": "perhaps"}}), "/inputResponses/q1/action"),
            (json!({"q1": {"content": {}}}), "/inputResponses/q1"),
            (json!({"q1": {"action": "accept", "content": [1]}}), "/inputResponses/q1/content"),
            (json!({"q1": "Ada"}), "/inputResponses/q1"),
            (json!({"q1": null}), "/inputResponses/q1"),
            (json!(["Ada"]), "/inputResponses"),
            (json!(1), "/inputResponses"),
        ] {
            let (code, path, message) = pay.expect_error(&service, &state, wrong.clone()).await;
            assert_eq!((code, path), (-32602, json!(place)), "{wrong}: {message}");
        }
        assert_eq!(pay.finish(&service, &state, named("q1", "Ada")).await, "3 to Ada AB", "{name}");
    }
}

#[test]
fn requests_that_take_no_rounds_do_not_look_at_state() {
    let service = instance(StateKeys::new(key(1)));
    let mut peer = Peer::open_with(STATELESS, service.clone(), Clock::Real, &json!({}));
    for method in ["tools/list", "prompts/list", "server/discover"] {
        peer.result(method, json!({"requestState": "what?", "inputResponses": {"q1": 1}}));
    }
    peer.close();
    // In a session, request state is ignored too.
    for revision in session_revisions() {
        let mut peer = Peer::open_with(revision, service.clone(), Clock::Real, &json!({"elicitation": {}}));
        let id = peer.send("tools/call", json!({"name": "pay", "arguments": {}, "requestState": "what?"}));
        let line = peer.read();
        assert!(line["method"] == "elicitation/create" || line["id"] == id, "{line}");
        assert!(line.get("error").is_none(), "{line}");
        drop(peer.end());
    }
}
