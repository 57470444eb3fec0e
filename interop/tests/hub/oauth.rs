//! E4 with OAuth: a third-party provider, and two agents with separate accounts there.

use std::path::Path;

use interop_tests::hub::{Hub, HubDirectory};
use interop_tests::oauth_fixture::OAuthFixture;
use interop_tests::rest_client::RestClient;
use interop_tests::test_browser::TestBrowser;
use serde_json::{Value, json};

use crate::text;

/// Signs in for an agent with the URL that the command prints. Returns the URLs visited by the browser.
async fn sign_in(home: &HubDirectory, agent: &str, account: &'static str) -> Vec<String> {
    let begun = home.json(&["server", "sign-in", "notes", "--agent", agent, "--no-wait"]);
    assert_eq!(begun["status"], "waiting", "{begun}");
    let mut person = TestBrowser::new(account);
    let (status, page) = person.open(text(&begun["link"])).await;
    assert!(status == 200 && page.contains("You are signed in"), "{page} {:?}", person.visited);
    person.visited
}

fn who(agent: &RestClient) -> Value {
    agent.call("mcp_notes__who", json!({}))
}

#[track_caller]
fn is(agent: &RestClient, account: &str) {
    let call = who(agent);
    assert_eq!(call["summary"], account, "{call}");
}

#[track_caller]
fn is_nobody(agent: &RestClient, says: &str) {
    let call = who(agent);
    assert!(call["status"] == "error" && text(&call["error"]).contains(says), "{call}");
}

fn standing(hub: &Hub, agent: &str) -> Value {
    hub.get(&format!("/servers/notes/sign-in?agent={agent}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e4_each_agent_signs_in_with_its_own_account() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hub-oauth");
    let (home, mut place) = (HubDirectory::new(), OAuthFixture::open(&folder, None).await);
    let hub = home.start();
    let form =
        json!({ "authentication": { "type": "oauth" }, "credentials": "per-agent", "retry_attempts": 0 });
    hub.add("notes", place.server(), form);
    let (ada, as_ada) = hub.agent("Ada", "auto", &json!({ "notes": {} }));
    let (bob, as_bob) = hub.agent("Bob", "auto", &json!({ "notes": {} }));

    let visited = sign_in(&home, "Ada", "ada").await;
    assert!(visited.iter().any(|url| url.contains("/interaction/")), "{visited:?}");
    assert_eq!(hub.get("/servers/notes")["tools"], 2, "the sync is automatic");
    is_nobody(
        &as_bob,
        "not signed in to `notes`: sign in with `linchpin server sign-in notes --agent \"Bob\"`",
    );
    sign_in(&home, "Bob", "bob").await;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| is(&as_ada, "ada"));
            scope.spawn(|| is(&as_bob, "bob"));
        }
    });

    let granted =
        place.take_actions().into_iter().filter(|line| line.starts_with("granted authorization_code"));
    assert_eq!(granted.count(), 2);

    // One grant is revoked at the provider, which shows when its token expires; the other one is refreshed.
    place.revoke("ada");
    place.take_actions();
    place.expire_tokens();
    place.expire_tokens(); // margin for clock skew
    is_nobody(&as_ada, "sign in again with `linchpin server sign-in notes --agent \"Ada\"`");
    is(&as_bob, "bob");
    let (again, yes) = (standing(&hub, &ada), standing(&hub, &bob));
    assert_eq!(
        (&again["state"], &yes["state"]),
        (&json!("reauthorization_required"), &json!("active")),
        "{again} {yes}"
    );
    let shown = home.run(&["doctor", "--server", "notes", "--agent", "Ada"]);
    assert!(
        shown.code == Some(1) && shown.stdout.contains("the OAuth grant is no longer accepted"),
        "{}",
        shown.stdout
    );
    sign_in(&home, "Ada", "ada").await;
    is(&as_ada, "ada");

    // A further scope for one agent does not change the grant of the other.
    let refused = as_bob.call("mcp_notes__write", json!({}));
    assert!(text(&refused["error"]).contains("the scope `mcp:"), "{refused}");
    sign_in(&home, "Bob", "bob").await;
    assert_eq!(as_bob.call("mcp_notes__write", json!({}))["summary"], "written");
    assert_eq!(as_ada.call("mcp_notes__write", json!({}))["status"], "error");

    // Sign-out: the grant is deleted here and its tokens are revoked.
    place.take_actions();
    home.ok(&["server", "sign-out", "notes", "--agent", "Ada"]);
    assert_eq!(place.take_actions(), ["revoked"]);
    is_nobody(&as_ada, "not signed in");
    is(&as_bob, "bob");
    assert_eq!(standing(&hub, &ada)["state"], "none");
    let log = hub.end();
    assert!(!log.contains("ERROR"), "{log}");
}
