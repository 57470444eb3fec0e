//! E4, E5: which credentials a server receives, and that they leak to no one else.

use std::sync::atomic::{AtomicBool, Ordering};

use interop_tests::hub::{HubDirectory, start_guarded};
use serde_json::{Value, json};

use crate::text;

#[test]
fn e4_each_agent_has_its_own_credential() {
    let (home, server) = (HubDirectory::new(), start_guarded());
    let hub = home.start();
    let form =
        json!({ "authentication": { "type": "bearer" }, "credentials": "per-agent", "retry_attempts": 0 });
    hub.add("guarded", server.url(), form);
    let (ada, as_ada) = hub.agent("Ada", "auto", &json!({ "guarded": {} }));
    let (bob, as_bob) = hub.agent("Bob", "auto", &json!({ "guarded": {} }));
    let (_, as_eve) = hub.agent("Eve", "auto", &json!({ "guarded": {} }));
    let set = |agent: &str, secret: &str| {
        let path = format!("/servers/guarded/credential?agent={agent}");
        hub.put(&path, json!({ "secret": secret }))
    };
    let who = |agent: &interop_tests::rest_client::RestClient| agent.call("mcp_guarded__whoami", json!({}));
    assert_eq!(set(&ada, "secret-of-ada")["agent"], *ada);
    set(&bob, "secret-of-bob");
    hub.post(&format!("/servers/guarded/sync?agent={ada}"), Value::Null);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(who(&as_ada)["summary"], "ada"));
            scope.spawn(|| assert_eq!(who(&as_bob)["summary"], "bob"));
        }
    });
    let without_credential = who(&as_eve);
    assert_eq!(without_credential["status"], "error");
    assert!(text(&without_credential["error"]).contains("no credential is stored"), "{without_credential}");

    // A new token for one agent closes only the connections of that agent.
    set(&ada, "secret-of-ada-2");
    assert_eq!((&who(&as_ada)["summary"], &who(&as_bob)["summary"]), (&"ada-2".into(), &"bob".into()));
    let set = ["server", "credential", "set", "guarded", "--agent", "Bob"];
    assert_eq!(home.run_with("secret-of-bob-2\n", &set).code, Some(0));
    assert_eq!((&who(&as_ada)["summary"], &who(&as_bob)["summary"]), (&"ada-2".into(), &"bob-2".into()));
    set_wrong(&hub, &ada);
    let refused = who(&as_ada);
    assert_eq!((&refused["status"], &who(&as_bob)["summary"]), (&"error".into(), &"bob-2".into()));
    hub.delete(&format!("/servers/guarded/credential?agent={bob}"));
    assert_eq!(who(&as_bob)["status"], "error");

    // One shared credential.
    let shared = hub.patch("/servers/guarded", json!({ "credentials": "shared" }));
    assert_eq!(shared["credentials"], "shared");
    hub.put("/servers/guarded/credential", json!({ "secret": "secret-of-all" }));
    for caller in [&as_ada, &as_bob, &as_eve, &*hub] {
        assert_eq!(who(caller)["summary"], "all");
    }
}

fn set_wrong(hub: &interop_tests::hub::Hub, agent: &str) {
    let path = format!("/servers/guarded/credential?agent={agent}");
    hub.put(&path, json!({ "secret": "no-such-token" }));
}

#[test]
fn e5_credentials_are_never_read_again() {
    let (home, server) = (HubDirectory::new(), start_guarded());
    let hub = home.start();
    hub.add_guarded(&server, json!({}));
    let (agent, as_agent) = hub.agent("Ada", "auto", &json!({ "guarded": {} }));
    as_agent.call("mcp_guarded__whoami", json!({}));
    hub.put("/servers/guarded/credential", json!({ "secret": "canary-of-nobody" }));
    as_agent.call("mcp_guarded__whoami", json!({}));
    hub.put("/servers/guarded/credential", json!({ "secret": "secret-of-hub" }));
    let mut paths =
        vec!["/servers".to_owned(), format!("/agents/{agent}"), format!("/agents/{agent}/tokens")];
    paths.extend(
        ["/servers/guarded", "/servers/guarded/credential", "/audit", "/calls", "/tools", "/tokens"]
            .map(str::to_owned),
    );
    paths.extend(hub.list("/calls").iter().map(|call| format!("/calls/{}", text(&call["id"]))));
    for path in paths {
        let answer = hub.get(&path).to_string();
        assert!(
            !answer.contains("secret-of-hub") && !answer.contains("canary-of-nobody"),
            "{path}: {answer}"
        );
    }
    for path in ["/servers/guarded/credential", "/servers/guarded", "/audit"] {
        assert_eq!(as_agent.send("GET", path, None).status, 403, "{path}");
    }
    assert_eq!(home.json(&["server", "credential", "show", "guarded"])["kind"], "bearer");

    // The root key is rotated while calls are running.
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let calls: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut count = 0;
                    while !is_over.load(Ordering::Relaxed) || count < 3 {
                        let call = as_agent.call("mcp_guarded__whoami", json!({}));
                        assert_eq!((&call["status"], &call["summary"]), (&"success".into(), &"hub".into()));
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        let keys = home.data().with_extension("keys");
        for _ in 0..3 {
            let before = std::fs::read(&keys).unwrap();
            home.ok(&["key", "rotate"]);
            assert_ne!(std::fs::read(&keys).unwrap(), before);
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(calls.into_iter().map(|call| call.join().unwrap()).sum::<usize>() >= 9);
    });
    let calls = hub.list("/calls?tool=whoami&status=success&limit=500");
    for call in [&calls[0], &calls[calls.len() - 1]] {
        assert_eq!(hub.get(&format!("/calls/{}", text(&call["id"])))["summary"], "hub");
    }
    let log = hub.end();
    assert!(!log.contains("secret-of") && !log.contains("canary-of"), "{log}");
    let hub = home.start();
    assert_eq!(hub.call("mcp_guarded__whoami", json!({}))["summary"], "hub");
}
