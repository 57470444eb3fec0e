//! Multi round-trip requests: resumed where they are parked, replayed on another instance if that is safe, never run
//! twice otherwise, and limited in number and age.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use linchpin::server::{Next, Request};
use linchpin::{Context, NoArgs, Prompt, Result, Server, Service, StateKey, StateKeys, Tool, args};
use serde_json::{Value, json};
use support::failure;
use support::live_counter::LiveCounter;
use support::rounds::{Rounds, filled, input_required, named};
use tokio::sync::Semaphore;
use tokio::time::advance;

const MINUTE: Duration = Duration::from_mins(1);
const MSG_CALL_EXPIRED: &str = "the server no longer holds it, and running it again might repeat its effects";

#[args]
struct Name {
    name: String,
}

/// Actions of the handlers of all instances.
#[derive(Default)]
struct Done {
    begun: AtomicUsize,
    ended: AtomicUsize,
    steps: AtomicUsize,
}

impl Done {
    /// Number of started and finished handlers.
    fn runs(&self) -> (usize, usize) {
        (self.begun.load(Ordering::SeqCst), self.ended.load(Ordering::SeqCst))
    }
}

fn count(counter: &AtomicUsize) {
    counter.fetch_add(1, Ordering::SeqCst);
}

async fn pay(_: NoArgs, cx: Context) -> Result<String> {
    let done = cx.get::<Arc<Done>>().unwrap();
    count(&done.begun);
    let name = cx.elicit::<Name>("Who gets it?").await?.name;
    count(&done.ended);
    Ok(format!("paid {name}"))
}

/// Two round trips, with a side effect before each.
async fn stepped(_: NoArgs, cx: Context) -> Result<String> {
    let done = cx.get::<Arc<Done>>().unwrap();
    count(&done.begun);
    let effect = || async {
        count(&done.steps);
        Ok(done.steps.load(Ordering::SeqCst))
    };
    let first = cx.step("first", effect).await?;
    let name = cx.elicit::<Name>("Who gets it?").await?.name;
    let second = cx.step("second", effect).await?;
    let again = cx.elicit::<Name>("Who gets the rest?").await?.name;
    count(&done.ended);
    Ok(format!("{first} {name} {second} {again}"))
}

const KEY: [u8; 32] = [7; 32];
const ONCE: [&str; 2] = ["unmarked", "destructive"];
const REPEATABLE_TOOLS: [&str; 3] = ["read_only", "idempotent", "additive"];

/// Creates an instance; all are identical.
fn server(done: &Arc<Done>) -> Server {
    Server::new("bank", "1")
        .state(done.clone())
        .keys(StateKeys::new(StateKey::new(&KEY)))
        .add(Tool::new("unmarked").handler(pay))
        .add(Tool::new("destructive").destructive(true).handler(pay))
        .add(Tool::new("read_only").read_only().handler(pay))
        .add(Tool::new("idempotent").idempotent().handler(pay))
        .add(Tool::new("additive").destructive(false).handler(pay))
        .add(Tool::new("stepped").destructive(true).handler(stepped))
        .add(Prompt::new("pay").handler(pay))
}

fn instance(done: &Arc<Done>) -> Service {
    server(done).build().unwrap()
}

fn tool(name: &str) -> Rounds {
    Rounds::tool(name, json!({}))
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_is_taken_up_again() {
    for name in ONCE.iter().chain(&REPEATABLE_TOOLS) {
        let done = Arc::default();
        let here = instance(&done);
        let state = tool(name).begin(&here).await.state;
        assert_eq!(tool(name).finish(&here, &state, named("q1", "Ada")).await, "paid Ada");
        assert_eq!(done.runs(), (1, 1), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn another_instance_does_a_harmless_call_again() {
    for name in REPEATABLE_TOOLS {
        let done = Arc::default();
        let (here, there) = (instance(&done), instance(&done));
        let state = tool(name).begin(&here).await.state;
        assert_eq!(tool(name).finish(&there, &state, named("q1", "Ada")).await, "paid Ada");
        assert_eq!(done.runs(), (2, 1), "{name}");
    }
    let done = Arc::default();
    let (here, there) = (instance(&done), instance(&done));
    let prompt = Rounds::of("prompts/get", json!({"name": "pay"}));
    let state = prompt.begin(&here).await.state;
    let answer = prompt.retry(&there, &state, named("q1", "Ada")).await;
    assert_eq!(answer["result"]["messages"][0]["content"]["text"], "paid Ada", "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_call_may_go_from_instance_to_instance_and_back() {
    let done = Arc::default();
    let (here, there) = (instance(&done), instance(&done));
    let state = tool("stepped").begin(&here).await.state;
    let round = input_required(&tool("stepped").retry(&there, &state, named("q1", "Ada")).await);
    assert_eq!(round.input_requests.as_object().unwrap().keys().collect::<Vec<_>>(), ["q2"]);
    // The first instance still holds the call as of the previous round trip.
    assert_eq!(tool("stepped").finish(&here, &round.state, named("q2", "Bob")).await, "1 Ada 2 Bob");
    assert_eq!((done.runs(), done.steps.load(Ordering::SeqCst)), ((3, 1), 2), "each step runs once");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_might_do_harm_is_never_done_twice() {
    for name in ONCE {
        let done = Arc::default();
        let (here, there) = (instance(&done), instance(&done));
        let state = tool(name).begin(&here).await.state;
        let answer = tool(name).retry(&there, &state, named("q1", "Ada")).await;
        assert!(failure(&answer["result"]).contains(MSG_CALL_EXPIRED), "{answer}");
        assert_eq!(done.runs(), (1, 0), "{name}");
        // The instance that holds it can still resume it.
        assert_eq!(tool(name).finish(&here, &state, named("q1", "Ada")).await, "paid Ada");
        assert_eq!(done.runs(), (1, 1), "{name}");
    }
}

/// An instance with a layer that calls one tool instead of another; it may send an input request first.
fn renaming(done: &Arc<Done>, from: &'static str, to: &'static str, asks: bool) -> Server {
    let layer = move |mut request: Request, next: Next| async move {
        if request.target().as_deref() == Some(from) {
            if asks {
                request.context().elicit::<Name>("Really?").await?;
            }
            let mut params = request.params().as_object().cloned().unwrap();
            params.insert("name".into(), to.into());
            request.set_params(&params);
        }
        next.run(request).await
    };
    server(done).layer(layer)
}

#[tokio::test(start_paused = true)]
async fn the_tool_that_a_layer_chose_decides_whether_a_call_is_done_again() {
    let call = tool("read_only");
    for to in ONCE {
        let done = Arc::default();
        let instance = || renaming(&done, "read_only", to, false);
        let (here, there) = (instance().build().unwrap(), instance().build().unwrap());
        let state = call.begin(&here).await.state;
        let answer = call.retry(&there, &state, named("q1", "Ada")).await;
        assert!(failure(&answer["result"]).contains(MSG_CALL_EXPIRED), "{answer}");
        assert_eq!(done.runs(), (1, 0), "{to}");
        assert_eq!(call.finish(&here, &state, named("q1", "Ada")).await, "paid Ada");
        assert_eq!(done.runs(), (1, 1), "{to}");
    }
    let done = Arc::default();
    let instance = || renaming(&done, "destructive", "read_only", false).build().unwrap();
    let (here, there) = (instance(), instance());
    let state = tool("destructive").begin(&here).await.state;
    assert_eq!(tool("destructive").finish(&there, &state, named("q1", "Ada")).await, "paid Ada");
}

#[tokio::test(start_paused = true)]
async fn a_layer_that_asks_first_does_not_lead_to_a_tool_that_runs_twice() {
    let done = Arc::default();
    let instance = || renaming(&done, "read_only", "destructive", true).build().unwrap();
    let (here, there, call) = (instance(), instance(), tool("read_only"));
    let first = call.begin(&here).await.state;
    let second = input_required(&call.retry(&here, &first, named("q1", "yes")).await).state;
    assert_eq!(call.finish(&here, &second, named("q2", "Ada")).await, "paid Ada");
    for (state, key) in [(first, "q1"), (second, "q2")] {
        let answer = call.retry(&there, &state, named(key, "Eve")).await;
        assert!(failure(&answer["result"]).contains(MSG_CALL_EXPIRED), "{answer}");
    }
    assert_eq!(done.runs(), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn steps_of_a_layer_are_not_those_of_the_tool() {
    let done = Arc::default();
    let instance = || {
        let layer = |request: Request, next: Next| async move {
            request.context().step("noted", || async { Ok(1) }).await?;
            next.run(request).await
        };
        server(&done).layer(layer).build().unwrap()
    };
    let (here, there, call) = (instance(), instance(), tool("destructive"));
    let state = call.begin(&here).await.state;
    let answer = call.retry(&there, &state, named("q1", "Ada")).await;
    assert!(failure(&answer["result"]).contains(MSG_CALL_EXPIRED), "{answer}");
    assert_eq!(done.runs(), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn steps_of_a_layer_after_the_tool_are_not_those_of_the_tool() {
    let done = Arc::default();
    let instance = || {
        let layer = |request: Request, next: Next| async move {
            let cx = request.context().clone();
            let response = next.run(request).await?;
            cx.step("noted", || async { Ok(1) }).await?;
            cx.elicit::<Name>("Who signs?").await?;
            Ok(response)
        };
        server(&done).layer(layer).build().unwrap()
    };
    let (here, there, call) = (instance(), instance(), tool("destructive"));
    let state = call.begin(&here).await.state;
    let state = input_required(&call.retry(&here, &state, named("q1", "Ada")).await).state;
    let answer = call.retry(&there, &state, named("q2", "Bob")).await;
    assert!(failure(&answer["result"]).contains(MSG_CALL_EXPIRED), "{answer}");
    assert_eq!(done.runs(), (1, 1), "the tool ran once");
    assert_eq!(call.finish(&here, &state, named("q2", "Bob")).await, "paid Ada");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_had_to_make_room_is_lost_or_done_again() {
    for (name, again) in
        ONCE.map(|name| (name, false)).into_iter().chain(REPEATABLE_TOOLS.map(|name| (name, true)))
    {
        let done = Arc::default();
        let here = server(&done).max_parked(1).build().unwrap();
        let state = tool(name).begin(&here).await.state;
        tool(name).begin(&here).await;
        let answer = tool(name).retry(&here, &state, named("q1", "Ada")).await;
        if again {
            assert_eq!(support::text(&answer["result"]), "paid Ada");
            assert_eq!(done.runs(), (3, 1), "{name}");
        } else {
            assert!(failure(&answer["result"]).contains(MSG_CALL_EXPIRED), "{answer}");
            assert_eq!(done.runs(), (2, 0), "{name}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_time_to_answer_is_bounded_by_the_clock_and_by_what_is_held() {
    let (clock, done) = (Arc::new(AtomicUsize::new(1_000_000)), Arc::default());
    let now = clock.clone();
    let now = move || SystemTime::UNIX_EPOCH + Duration::from_secs(now.load(Ordering::SeqCst) as u64);
    let here = server(&done).input_timeout(MINUTE).clock(now).build().unwrap();
    let call = tool("read_only");
    let state = call.begin(&here).await.state;
    clock.fetch_add(60, Ordering::SeqCst);
    assert_eq!(call.finish(&here, &state, named("q1", "Ada")).await, "paid Ada");
    let state = call.begin(&here).await.state;
    clock.fetch_add(61, Ordering::SeqCst);
    let (code, path, message) = call.expect_error(&here, &state, named("q1", "Ada")).await;
    assert_eq!((code, path), (-32602, json!("/requestState")));
    assert!(message.contains("the requestState has expired"), "{message}");
    // The state is still valid, but the call was evicted.
    let (once, again) = (tool("unmarked"), tool("read_only"));
    let (lost, kept) = (once.begin(&here).await.state, again.begin(&here).await.state);
    advance(MINUTE * 2).await;
    let answer = once.retry(&here, &lost, named("q1", "Ada")).await;
    assert!(failure(&answer["result"]).contains(MSG_CALL_EXPIRED), "{answer}");
    assert_eq!(again.finish(&here, &kept, named("q1", "Ada")).await, "paid Ada");
}

#[tokio::test(start_paused = true)]
async fn the_same_round_twice_gives_the_same_answer() {
    for name in ["unmarked", "read_only"] {
        let done = Arc::default();
        let here = instance(&done);
        let state = tool(name).begin(&here).await.state;
        let first = tool(name).retry(&here, &state, named("q1", "Ada")).await;
        let second = tool(name).retry(&here, &state, named("q1", "Eve")).await;
        assert_eq!(first, second, "a lost response is sent again");
        assert_eq!(done.runs(), (1, 1), "{name}");
    }
    let done = Arc::default();
    let here = instance(&done);
    let call = tool("stepped");
    let first = call.begin(&here).await.state;
    let second = input_required(&call.retry(&here, &first, named("q1", "Ada")).await);
    let repeated = input_required(&call.retry(&here, &first, named("q1", "Ada")).await);
    assert_eq!(second.state, repeated.state);
    assert_eq!(call.finish(&here, &repeated.state, named("q2", "Bob")).await, "1 Ada 2 Bob");
    let (code, path, message) = call.expect_error(&here, &first, named("q1", "Ada")).await;
    assert_eq!((code, path), (-32602, json!("/requestState")));
    assert!(message.contains("already used"), "{message}");
    assert_eq!((done.runs(), done.steps.load(Ordering::SeqCst)), ((1, 1), 2));
}

/// A server whose tool waits for a permit after the input response.
fn waits(done: &Arc<Done>, sign: &Arc<Semaphore>) -> Service {
    let sign = sign.clone();
    let tool = move |_: NoArgs, cx: Context| {
        let sign = sign.clone();
        async move {
            let done = cx.get::<Arc<Done>>().unwrap();
            count(&done.begun);
            let name = cx.elicit::<Name>("Who gets it?").await?.name;
            sign.acquire().await?.forget();
            count(&done.ended);
            Result::Ok(format!("paid {name}"))
        }
    };
    let server = Server::new("bank", "1").state(done.clone()).keys(StateKeys::new(StateKey::new(&KEY)));
    server.add(Tool::new("pay").idempotent().handler(tool)).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn two_requests_for_one_round_share_its_answer() {
    for elsewhere in [false, true] {
        let (done, sign) = (Arc::default(), Arc::new(Semaphore::new(0)));
        let here = waits(&done, &sign);
        let state = tool("pay").begin(&here).await.state;
        let there = if elsewhere { waits(&done, &sign) } else { here };
        let (call, answers) = (tool("pay"), named("q1", "Ada"));
        let (first, second, ()) = tokio::join!(
            call.finish(&there, &state, answers.clone()),
            call.finish(&there, &state, answers),
            async {
                tokio::task::yield_now().await;
                sign.add_permits(1);
            }
        );
        assert_eq!((&*first, &*second), ("paid Ada", "paid Ada"));
        assert_eq!(done.runs(), (if elsewhere { 2 } else { 1 }, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_given_up_lets_its_call_go() {
    let (done, sign) = (Arc::default(), Arc::new(Semaphore::new(0)));
    let here = waits(&done, &sign);
    let state = tool("pay").begin(&here).await.state;
    let call = tool("pay");
    let given_up = tokio::time::timeout(MINUTE, call.finish(&here, &state, named("q1", "Ada"))).await;
    assert!(given_up.is_err());
    sign.add_permits(1);
    assert_eq!(call.finish(&here, &state, named("q1", "Ada")).await, "paid Ada", "it may be replayed");
    assert_eq!(done.runs(), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn what_is_held_is_bounded_in_number_and_in_age() {
    let alive = Arc::new(AtomicUsize::new(0));
    let counted = alive.clone();
    let tool_that_counts = move |_: NoArgs, cx: Context| {
        let alive = LiveCounter::new(&counted);
        async move {
            let name = cx.elicit::<Name>("Who?").await?.name;
            drop(alive);
            Result::Ok(name)
        }
    };
    let server = Server::new("bank", "1").tool("pay", "", tool_that_counts);
    let here = server.max_parked(3).input_timeout(MINUTE).build().unwrap();
    for call in 1..=10 {
        tool("pay").begin(&here).await;
        assert_eq!(alive.load(Ordering::SeqCst), call.min(3));
    }
    // They expire without any other activity, and although the server was dropped.
    drop(here);
    support::paused::pass(MINUTE + Duration::from_secs(1)).await;
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn missing_answers_are_asked_for_again_and_others_are_ignored() {
    let both = |_: NoArgs, cx: Context| async move {
        let (one, two) = tokio::join!(cx.elicit::<Name>("One?"), cx.elicit::<Name>("Two?"));
        Result::Ok(format!("{} {}", one?.name, two?.name))
    };
    let instance = || {
        let server = Server::new("bank", "1").keys(StateKeys::new(StateKey::new(&KEY)));
        server.add(Tool::new("both").read_only().handler(both)).build().unwrap()
    };
    for service in [instance(), instance().without_parking()] {
        let call = tool("both");
        let round = call.begin(&service).await;
        assert_eq!(round.input_requests.as_object().unwrap().len(), 2);
        let none = input_required(&call.retry(&service, &round.state, json!({})).await);
        assert_eq!(none.input_requests, round.input_requests);
        let mut answers = named("q2", "Bob");
        answers["q9"] = filled(json!({"name": "Eve"}));
        answers["other"] = json!([1, 2, 3]);
        let one = input_required(&call.retry(&service, &none.state, answers).await);
        assert_eq!(one.input_requests, json!({"q1": round.input_requests["q1"]}));
        let mut answers = named("q1", "Ada");
        answers["q2"] = filled(json!({"name": "Eve"})); // already has a response
        assert_eq!(call.finish(&service, &one.state, answers).await, "Ada Bob");
    }
}

#[tokio::test(start_paused = true)]
async fn branches_that_ask_in_another_order_when_done_again_get_their_own_answers() {
    async fn branch(cx: &Context, side: &str) -> Result<String> {
        let first = cx.elicit::<Name>(side).await?.name;
        Ok(format!("{first}{}", cx.elicit::<Name>("More?").await?.name))
    }
    let branches = |_: NoArgs, cx: Context| async move {
        let (left, right) = tokio::join!(branch(&cx, "Left?"), branch(&cx, "Right?"));
        Result::Ok(format!("{} {}", left?, right?))
    };
    for parks in [true, false] {
        let server = Server::new("bank", "1").add(Tool::new("both").read_only().handler(branches));
        let service = server.build().unwrap();
        let service = if parks { service } else { service.without_parking() };
        let (call, mut said) = (tool("both"), Vec::new());
        let mut round = call.begin(&service).await;
        let text = loop {
            let mut answers = json!({});
            for (key, question) in round.input_requests.as_object().unwrap() {
                let message = question["params"]["message"].as_str().unwrap();
                said.push(message.to_owned());
                let initial = message.chars().next().unwrap();
                answers[key] = filled(json!({"name": initial.to_string()}));
            }
            let answer = call.retry(&service, &round.state, answers).await;
            if answer["result"]["resultType"] != "input_required" {
                break support::text(&answer["result"]);
            }
            round = input_required(&answer);
        };
        assert_eq!(text, "LM RM", "parks: {parks}");
        said.sort();
        assert_eq!(said, ["Left?", "More?", "More?", "Right?"], "no input request is repeated");
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_asks_something_else_when_done_again_fails_safely() {
    let run = Arc::new(AtomicUsize::new(0));
    let moody = move |_: NoArgs, cx: Context| {
        let question = format!("Question {}?", run.fetch_add(1, Ordering::SeqCst));
        async move { Result::Ok(cx.elicit::<Name>(question).await?.name) }
    };
    let server = Server::new("bank", "1").add(Tool::new("moody").read_only().handler(moody.clone()));
    let service = server.add(Prompt::new("moody").handler(moody)).build().unwrap().without_parking();
    let state = tool("moody").begin(&service).await.state;
    let answer = tool("moody").retry(&service, &state, named("q1", "Ada")).await;
    assert!(failure(&answer["result"]).contains("its replay requested different input"), "{answer}");
    let prompt = Rounds::of("prompts/get", json!({"name": "moody"}));
    let state = prompt.begin(&service).await.state;
    let (code, _, message) = prompt.expect_error(&service, &state, named("q1", "Ada")).await;
    assert_eq!(code, -32603);
    assert!(message.contains("its replay requested different input"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn a_step_has_a_name_of_its_own() {
    let twice = |_: NoArgs, cx: Context| async move {
        let failed = cx.step("one", || async { Err::<u8, _>(linchpin::Error::tool("not yet")) }).await;
        let first = cx.step("one", || async { Ok(1) }).await?; // a failed step may be retried
        let second = cx.step("one", || async { Ok(2) }).await.map_err(|error| error.to_string());
        Result::Ok(format!("{} {first} {second:?}", failed.unwrap_err()))
    };
    let service = Server::new("bank", "1").tool("twice", "", twice).build().unwrap();
    let client = service.connect_in_memory().await.unwrap();
    let said = client.call("twice", ()).await.unwrap().to_text();
    assert_eq!(
        said,
        r#"not yet 1 Err("the step `one` has already run: use a unique name for each step of a call")"#
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_that_knows_too_much_to_travel_stays_where_it_is() {
    let done: Arc<Done> = Arc::default();
    let long = |_: NoArgs, cx: Context| async move {
        let name = cx.elicit::<Name>("Who?").await?.name;
        Result::Ok(format!("{} {}", name.len(), cx.elicit::<Name>("Who else?").await?.name))
    };
    let instance = || {
        let server = server(&done).add(Tool::new("long").read_only().handler(long));
        server.add(Prompt::new("long").handler(long)).build().unwrap()
    };
    let (here, there) = (instance(), instance());
    let (call, prompt) = (tool("long"), Rounds::of("prompts/get", json!({"name": "long"})));
    let begin = async |rounds: &Rounds| -> Value {
        let state = rounds.begin(&here).await.state;
        input_required(&rounds.retry(&here, &state, named("q1", &"x".repeat(100_000))).await).state
    };
    let state = begin(&call).await;
    assert!(state.as_str().unwrap().len() < 1_000);
    let answer = call.retry(&there, &state, named("q2", "Bob")).await;
    assert!(failure(&answer["result"]).contains("no longer holds it"), "{answer}");
    assert_eq!(call.finish(&here, &state, named("q2", "Bob")).await, "100000 Bob");
    let state = begin(&prompt).await;
    let (code, _, message) = prompt.expect_error(&there, &state, named("q2", "Bob")).await;
    assert_eq!(code, -32603);
    assert!(message.contains("no longer holds it"), "{message}");
}
