//! All resources of the hub on the command line, as text and as JSON.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/hub.rs"]
mod hub;
mod support;

use hub::{Demo, Home};
use serde_json::{Value, json};
use support::{LINCHPIN, on_terminal, run_in, run_until_reading};

#[test]
fn programs_are_added_to_the_operators_file() {
    let home = Home::new();
    let add = [
        "server",
        "add",
        "My Server",
        "--env",
        "API_KEY=canary-1",
        "--timeout",
        "5s",
        "--",
        LINCHPIN,
        "demo",
    ];
    let said = home.ok(&add);
    assert!(said.contains("server `my-server` added to") && said.contains("start the hub"), "{said}");
    let _hub = home.start();
    let server = home.json(&["server", "connect", "my-server"]);
    assert_eq!((&server["status"], &server["timeout_ms"]), (&"connected".into(), &5_000.into()));
    assert!(!server.to_string().contains("canary"), "{server}");
    home.run(&add).expect_output(1, &["server `my-server` already exists", "--slug"]);
    let added = home.json(&["server", "add", "Other", "--slug", "two", "--disabled", "--", LINCHPIN, "demo"]);
    assert_eq!((&added["slug"], &added["enabled"]), (&"two".into(), &false.into()));
    home.run(&["server", "connect", "two"]).expect_output(1, &["`two` is disabled"]);
    assert_eq!(home.json(&["server", "enable", "two"])["enabled"], true);
    home.ok(&["server", "remove", "two"]);
    home.run(&["server", "show", "two"]).expect_output(1, &["there is no server `two`"]);
    home.run(&["server", "remove", "demo"]).expect_output(1, &["`linchpin server disable demo`"]);
    assert_eq!(home.json(&["server", "disable", "demo"])["enabled"], false);
    for (wrong, expected) in [
        (vec!["server", "add", "X"], "--url"),
        (vec!["server", "add", "X", "--url", "https://a.example", "--", "x"], "cannot be used with"),
        (vec!["server", "add", "X", "--url", "https://a.example", "--env", "A=B"], "cannot be used with"),
        (vec!["server", "add", "日本", "--", "x"], "--slug"),
        (vec!["server", "add", "X", "--slug", "No", "--", "x"], "--slug"),
        (vec!["server", "add", "X", "--slug", "No", "--url", "https://a.example"], "--slug"),
        (
            vec!["server", "add", "X", "--timeout", "1ms", "--", "x"],
            "must be from 1s to 300s; a plain number is in seconds",
        ),
        (vec!["server", "add", "X", "--retries", "9", "--", "x"], "linchpin: --retries: "),
        (vec!["server", "add", "X", "--calls-per-minute", "0", "--", "x"], "linchpin: --calls-per-minute: "),
        (vec!["server", "add", "X", "--env", "=c", "--", "x"], "linchpin: --env: "),
        (vec!["server", "add", "X", "--inherit", "A=B", "--", "x"], "linchpin: --inherit: "),
        (vec!["server", "add", "X", "--directory", "a", "--", "x"], "linchpin: --directory: "),
        (vec!["server", "add", "", "--slug", "x", "--", "x"], "linchpin: the name: "),
        (vec!["server", "add", "X", "--", ""], "linchpin: the command after `--`: "),
        (vec!["server", "add", "X", "--hub", "http://127.0.0.1:1", "--", "x"], "on the machine of the hub"),
    ] {
        home.run(&wrong).expect_output(2, &[expected]);
    }
}

#[test]
fn a_server_in_a_private_network_is_refused_with_the_way_out() {
    let home = Home::new();
    let _hub = home.start();
    home.ok(&["server", "add", "Inside", "--url", "https://10.1.2.3/mcp", "--retries", "0"]);
    let expected =
        ["10.1.2.3 is a private address", "`linchpin.toml`", "`[egress] allow = [\"10.0.0.0/8\"]`"];
    home.run(&["server", "connect", "inside"]).expect_output(1, &expected);
}

#[test]
fn servers_at_a_url_and_their_credentials() {
    let (home, demo) = (Home::new(), Demo::start());
    home.write("[egress]\nallow = [\"127.0.0.0/8\"]\n");
    let _hub = home.start();
    let added = home.json(&[
        "server",
        "add",
        "Far",
        "--url",
        &demo.url,
        "--auth",
        "api-key",
        "--auth-header",
        "x-key",
    ]);
    assert_eq!((&added["slug"], &added["authentication"]["header"]), (&"far".into(), &"x-key".into()));
    home.run(&["server", "test", "far"]).expect_output(1, &["no credential is stored for the server `far`"]);
    home.run(&["server", "credential", "set", "far"]).expect_output(2, &["no secret was entered"]);
    home.run_with("canary-2\n", &["server", "credential", "set", "far"]).expect_output(0, &[]);
    let shown = home.json(&["server", "credential", "show", "far"]);
    assert_eq!(shown["kind"], "api-key");
    let tried = home.json(&["server", "test", "far"]);
    assert_eq!(tried["name"], "linchpin-demo");
    assert_eq!(home.json(&["server", "sync", "far"])["tools"], 5);
    assert_eq!(
        home.ok(&["tool", "call", "echo", "--server", "far", "--args", r#"{"message": "hi"}"#]),
        "hi\n"
    );
    home.ok(&["server", "disconnect", "far"]);
    assert_eq!(home.json(&["server", "disable", "far"])["enabled"], false);
    home.ok(&["server", "credential", "drop", "far"]);
    home.ok(&["server", "remove", "far"]);

    let data = home.data();
    let arguments = ["--data-dir", data.to_str().unwrap(), "server", "credential", "set", "again"];
    home.ok(&["server", "add", "Again", "--url", &demo.url, "--auth", "bearer"]);
    let shown =
        on_terminal(&[("Credential for `again`: ", "canary-3\n")], &arguments).expect_output(0, &[]).stdout;
    assert!(shown.contains("credential for `again` stored") && !shown.contains("canary"), "{shown}");
    let interrupted = on_terminal(&[("Credential for `again`: ", "\u{3}")], &arguments);
    assert_eq!(interrupted.code, Some(130), "{}", interrupted.stdout);
}

#[test]
fn servers_are_changed_where_they_are_kept() {
    let home = Home::new();
    home.ok(&["server", "add", "Mine", "--", LINCHPIN, "demo"]);
    home.ok(&["server", "update", "mine", "--timeout", "4"]);
    let _hub = home.start();
    assert_eq!(home.json(&["server", "show", "mine"])["timeout_ms"], 4_000);
    let update = ["server", "update", "mine", "--name", "Ours", "--timeout", "5s", "--calls-per-minute", "7"];
    for _ in 0..2 {
        let ours = home.json(&update);
        assert_eq!((&ours["name"], &ours["timeout_ms"]), (&"Ours".into(), &5_000.into()));
        assert_eq!((&ours["calls_per_minute"], &ours["is_configured"]), (&7.into(), &true.into()));
    }
    assert_eq!(home.json(&["server", "update", "mine", "--no-limit"])["calls_per_minute"], Value::Null);
    home.run(&["server", "update", "mine", "--url", "https://a.example"])
        .expect_output(1, &["`servers.mine.url`"]);
    home.run(&["server", "update", "mine", "--retries", "9"])
        .expect_output(1, &["`servers.mine.retry_attempts`"]);

    home.ok(&["server", "add", "Far", "--url", "https://a.example/mcp", "--auth", "bearer", "--disabled"]);
    let said =
        home.ok(&["server", "update", "far", "--url", "https://b.example/mcp", "--header", "x-team: a"]);
    assert!(
        said.contains("server `far` updated") && said.contains("linchpin server credential set far"),
        "{said}"
    );
    let far = home.json(&["server", "update", "far", "--retries", "0", "--description", "Elsewhere"]);
    assert_eq!((&far["url"], &far["headers"]), (&"https://b.example/mcp".into(), &json!({ "x-team": "a" })));
    assert_eq!((&far["retry_attempts"], &far["description"]), (&0.into(), &"Elsewhere".into()));
    let far =
        home.json(&["server", "update", "far", "--auth", "api-key", "--no-headers", "--description", ""]);
    assert_eq!((&far["authentication"]["header"], &far["headers"]), (&"x-api-key".into(), &json!({})));
    assert_eq!(far["description"], Value::Null);
    home.run(&["server", "update", "far"]).expect_output(2, &["nothing to update"]);
    home.run(&["server", "update", "demo", "--timeout", "5s"]).expect_output(1, &["`demo` is built in"]);
    home.run(&["server", "update", "nothing", "--timeout", "5s"])
        .expect_output(1, &["there is no server `nothing`"]);
}

#[test]
fn tools_resources_and_prompts() {
    let home = Home::new();
    let _hub = home.start();
    home.ok(&["server", "connect", "demo"]);
    let tools = home.json(&["tool", "list", "--server", "demo", "--state", "new", "-q", "count"]);
    assert_eq!((tools.as_array().unwrap().len(), &tools[0]["tool"]), (1, &"countdown".into()));
    let tool = home.json(&["tool", "describe", "add", "--server", "demo"]);
    assert_eq!(tool["name"], "mcp_demo__add");
    assert!(home.ok(&["tool", "describe", "mcp_demo__add"]).contains("\"The first number\""));
    home.run(&["tool", "trust", "mcp_demo__add", "--pin", &"0".repeat(64)]).expect_output(1, &[]);
    let pin = tool["pin"].as_str().unwrap();
    assert_eq!(home.json(&["tool", "trust", "mcp_demo__add", "--pin", pin])["state"], "trusted");
    assert_eq!(home.json(&["server", "trust", "demo"])["trusted"], 4);
    home.run(&["tool", "describe", "mcp_demo__nothing"]).expect_output(1, &["there is no tool"]);
    home.run(&["tool", "describe", "nothing", "--server", "demo"])
        .expect_output(1, &["`demo` has no tool `nothing`"]);
    home.run(&["tool", "call", "mcp_demo__add", "--args", "[]"]).expect_output(2, &["must be a JSON object"]);
    let twice = r#"{"a": 1, "b": 2, "a": 3}"#;
    home.run(&["tool", "call", "mcp_demo__add", "--args", twice])
        .expect_output(2, &["--args", "the key \"a\" occurs twice"]);
    home.run(&["approvals", "approve", "1", "--args", twice])
        .expect_output(2, &["--args", "the key \"a\" occurs twice"]);
    let failed = home.run(&["tool", "call", "mcp_demo__add", "--args", r#"{"a": "x", "b": 1}"#]);
    failed.expect_output(1, &["error: ", "a"]);
    let failed = home.run(&["tool", "call", "mcp_demo__add", "--json"]);
    assert_eq!((failed.code, &failed.json()["status"]), (Some(1), &"error".into()));

    assert_eq!(home.json(&["resource", "list", "demo"])[0]["uri"], "memory://status");
    assert_eq!(home.json(&["resource", "list", "demo", "--templates"])[0]["uriTemplate"], "notes://{name}");
    assert!(
        home.ok(&["resource", "read", "demo", "notes://welcome"])
            .starts_with("Linchpin serves every revision")
    );
    assert_eq!(
        home.json(&["resource", "read", "demo", "notes://welcome"])["contents"][0]["uri"],
        "notes://welcome"
    );
    assert_eq!(home.json(&["prompt", "list", "demo"])[0]["name"], "review");
    let said = home.ok(&["prompt", "get", "demo", "review", "--arg", "language=Rust"]);
    assert!(said.starts_with("user: Review this Rust code"), "{said}");
    home.run(&["prompt", "get", "demo", "nothing"]).expect_output(1, &[]);
}

#[test]
fn an_agent_asks_and_a_person_answers() {
    let home = Home::new();
    let hub = home.start();
    home.ok(&["server", "connect", "demo"]);
    let agent =
        home.json(&["agent", "add", "Helper", "--server", "demo:add,echo", "--instructions", "Be kind"]);
    assert_eq!((&agent["approval"], &agent["instructions"]), (&"always-ask".into(), &"Be kind".into()));
    assert!(home.ok(&["agent", "show", "Helper"]).contains("demo:add,echo"));
    let reader =
        ["agent", "add", "Reader", "--server", "demo", "--resource", "demo=notes://*", "--prompt", "demo="];
    assert_eq!(home.json(&reader)["server_count"], 1);
    let shown = home.ok(&["agent", "show", "Reader"]);
    assert!(shown.contains("demo:all (resources notes://*; prompts none)"), "{shown}");
    let token = home.ok(&["token", "add", "for tests", "--agent", "Helper", "--days", "1"]);
    let listed = home.json(&["token", "list", "--agent", "Helper"]);
    assert!(!listed.to_string().contains(token.trim()) && listed[0]["name"] == "for tests", "{listed}");

    let as_agent = |arguments: &[&str]| {
        run_in(&[("LINCHPIN_TOKEN", token.trim())], &[&["--hub", &*hub.url, "--json"], arguments].concat())
    };
    let tools = as_agent(&["tool", "list"]).expect_output(0, &[]).json();
    assert_eq!(tools.as_array().unwrap().len(), 2, "{tools}");
    let call = |message: &str| {
        let args = json!({ "message": message }).to_string();
        let call = as_agent(&["tool", "call", "mcp_demo__echo", "--no-wait", "--args", &args])
            .expect_output(0, &[])
            .json();
        assert_eq!(call["status"], "pending", "{call}");
        (call["id"].as_str().unwrap().to_owned(), call["approval"].as_str().unwrap().to_owned())
    };
    let ((first, yes), (second, no)) = (call("one"), call("two  and   three"));
    let waiting = home.ok(&["approvals"]);
    assert!(waiting.contains(r#"{"message":"two  and   three"}"#), "{waiting}");
    as_agent(&["approvals", "approve", &yes]).expect_output(1, &[]);
    assert_eq!(home.json(&["approvals"]).as_array().unwrap().len(), 2);
    home.ok(&["approvals", "approve", &yes, "--args", r#"{"message": "three"}"#]);
    home.ok(&["approvals", "deny", &no, "--reason", "not today"]);
    home.run(&["approvals", "approve", &no]).expect_output(1, &[]);
    assert_eq!(home.ok(&["approvals", "list"]), "no approvals\n");
    assert_eq!(home.json(&["approvals", "list", "--decision", "all"]).as_array().unwrap().len(), 2);
    let second = home.json(&["calls", "show", &second]);
    assert_eq!(second["status"], "denied");
    assert!(second["error"].as_str().unwrap().contains("not today"), "{second}");
    // The call runs concurrently and may take a moment.
    let mut looks = (0..1_000).map(|_| as_agent(&["calls", "show", &first]).expect_output(0, &[]).json());
    let first = looks.find(|call| call["completed"].is_string()).unwrap();
    assert_eq!((&first["summary"], &first["arguments"]["message"]), (&"three".into(), &"three".into()));
    let denied = home.json(&["calls", "list", "--status", "denied", "--server", "demo", "--limit", "5"]);
    assert_eq!(denied.as_array().unwrap().len(), 1);
    home.run(&["calls", "cancel", first["id"].as_str().unwrap()]).expect_output(1, &[]);

    home.run(&["agent", "update", "Helper"]).expect_output(2, &["nothing to update", "--approval"]);
    let changed = home.json(&["agent", "update", "Helper", "--name", "Aide", "--disabled"]);
    assert_eq!((&changed["name"], &changed["enabled"]), (&"Aide".into(), &false.into()));
    as_agent(&["tool", "list"]).expect_output(1, &[]);
    assert_eq!(
        home.json(&["agent", "update", "Aide", "--enabled", "--approval", "auto"])["approval"],
        "auto"
    );
    let revoke = ["token", "revoke", listed[0]["id"].as_str().unwrap(), "--agent"];
    home.run(&revoke[..3]).expect_output(1, &["token"]);
    home.ok(&[&revoke[..], &["Aide"]].concat());
    let refused = as_agent(&["tool", "list"]);
    assert_eq!((refused.code, &refused.json()["error"]["status"]), (Some(1), &401.into()));
    home.ok(&["agent", "remove", "Aide"]);
    home.run(&["agent", "show", "Aide"]).expect_output(1, &["no such agent `Aide`"]);
    run_in(&[("LINCHPIN_TOKEN", "")], &["--hub", &hub.url, "tool", "list"])
        .expect_output(2, &["LINCHPIN_TOKEN"]);
}

#[test]
fn whoever_waits_for_input_can_be_asked_to_end() {
    let home = Home::new();
    let _hub = home.start();
    let data = home.data();
    for command in [
        &["user", "password", "local"][..],
        &["tool", "call", "mcp_demo__add", "--args", "-"],
        &["tool", "call", "mcp_demo__add", "--args", "@/dev/stdin"],
        &["approvals", "approve", "1", "--args", "-"],
        &["agent", "add", "Helper", "--instructions", "@/dev/stdin"],
        &["call", "add", "--args", "-", LINCHPIN, "demo"],
    ] {
        let place = ["--data-dir", data.to_str().unwrap()];
        let ended = run_until_reading(&[&place, command].concat());
        // Before it has a server there is nothing to clean up, and `call` just exits.
        let expected = (command[0] != "call").then_some(143);
        assert_eq!((ended.code, &*ended.stderr), (expected, ""), "{command:?}");
    }
}

#[test]
fn a_user_of_another_machine_gives_the_current_password() {
    let home = Home::new();
    let hub = home.start();
    home.run_with("the first password", &["user", "password", "local"]).expect_output(0, &[]);
    let token = home.json(&["token", "add", "laptop"])["token"].as_str().unwrap().to_owned();
    let remote = Home::new().with("LINCHPIN_TOKEN", token);
    let command = ["--hub", &*hub.url, "user", "password", "local"];
    let new = "the second password";
    remote.run_with(new, &command).expect_output(1, &["one per line", "old_password"]);
    remote
        .run_with(&format!("a wrong password\n{new}\n"), &command)
        .expect_output(1, &["is wrong: enter the current password"]);
    remote.run_with(&format!("the first password\r\n{new}\n"), &command).expect_output(0, &[]);
    remote.run_with(&format!("{new}\n{new}\n"), &command).expect_output(1, &["token"]);
}

#[test]
fn people_and_the_key() {
    let home = Home::new();
    let _hub = home.start();
    assert_eq!(home.json(&["user", "list"])[0]["name"], "local");
    home.ok(&["user", "add", "ada"]);
    home.run_with("short", &["user", "password", "ada"]).expect_output(1, &["password"]);
    home.run_with("correct horse battery", &["user", "password", "ada"]).expect_output(0, &[]);
    let users = home.json(&["user", "list"]);
    let ada = users.as_array().unwrap().iter().find(|user| user["name"] == "ada").unwrap();
    assert_eq!(ada["has_password"], true);
    let again = home.run_with("another horse battery\n", &["user", "password", "ada"]).expect_output(0, &[]);
    assert!(again.stdout.contains("all sessions and tokens"), "{}", again.stdout);
    home.ok(&["user", "remove", "ada"]);
    home.run(&["user", "remove", "local"])
        .expect_output(1, &["the last user and the built-in user cannot be removed"]);
    let before = std::fs::read(home.keys()).unwrap();
    let said = home.ok(&["key", "rotate"]);
    assert!(said.starts_with("root key rotated, 1 tenant key re-wrapped. "), "{said}");
    assert_ne!(std::fs::read(home.keys()).unwrap(), before);
    let said = home.ok(&["key", "rotate", "--data"]);
    assert!(said.contains("re-wrapped; 0 secrets re-encrypted with a new tenant key. "), "{said}");
    let own = home.json(&["token", "add", "mine"]);
    assert!(own["token"].as_str().unwrap().starts_with("lp_"), "{own}");
}

/// Asserts that an export is verified on a machine without the data of the hub, with and without the public key.
fn assert_export_is_verified(home: &Home, exported: &str, verification: &Value) {
    let (file, elsewhere) = (home.file("export.jsonl"), Home::new());
    let path = file.to_str().unwrap();
    std::fs::write(&file, exported).unwrap();
    let key = verification["public_key"].as_str().unwrap();
    let found = elsewhere.json(&["audit", "verify", "--file", path, "--public-key", key]);
    assert_eq!((&found["first"], &found["last"]), (&1.into(), &verification["entries"]), "{found}");
    assert_eq!((&found["entries"], &found["public_key"]), (&verification["entries"], &key.into()), "{found}");
    elsewhere
        .run(&["audit", "verify", "--file", path, "--public-key", "00"])
        .expect_output(1, &["is signed with the key", "not with 00"]);
    std::fs::write(&file, exported.replacen("server.added", "server.edited", 1)).unwrap();
    elsewhere.run(&["audit", "verify", "--file", path]).expect_output(1, &["of the audit is damaged", path]);
    elsewhere.run(&["audit", "verify", "--public-key", key]).expect_output(2, &["--file"]);
}

#[test]
fn the_audit_is_checked_with_and_without_a_hub() {
    let home = Home::new();
    home.run(&["audit", "verify"]).expect_output(1, &["no database at", "--data-dir"]);
    let hub = home.start();
    home.ok(&["server", "connect", "demo"]);
    home.ok(&["tool", "call", "mcp_demo__echo", "--args", r#"{"message": "hi"}"#]);
    let live = home.json(&["audit", "verify"]);
    assert_eq!(live["intact"], true, "{live}");
    hub.end();
    let found = home.json(&["audit", "verify"]);
    let entries = found["entries"].as_u64().unwrap();
    assert_eq!((&found["intact"], &found["checkpoint"]), (&true.into(), &entries.into()), "{found}");
    let exported = home.ok(&["audit", "export"]);
    let rows: Vec<Value> = exported.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (footer, rows) = rows.split_last().unwrap();
    assert_eq!((rows.len() as u64, &footer["public_key"]), (entries, &found["public_key"]));
    assert!(rows.iter().any(|row| row["action"] == "server.added"), "{exported}");
    assert_eq!(home.ok(&["audit", "export", "--after", &(entries - 1).to_string()]).lines().count(), 2);
    assert_eq!(home.ok(&["audit", "export", "--after", "9223372036854775807"]), "");
    assert_export_is_verified(&home, &exported, &found);
    home.run(&["audit", "export", "--after", "9223372036854775808"])
        .expect_output(2, &["--after", "9223372036854775807"]);

    home.sql(&format!("DELETE FROM audit WHERE position & 0xffffffffff = {entries}"));
    let cut = home.run(&["audit", "verify", "--json"]);
    assert_eq!((cut.code, &cut.json()["intact"]), (Some(1), &false.into()), "{}", cut.stdout);
    home.sql("UPDATE audit SET actor = 'user:x' WHERE position & 0xffffffffff = 2");
    let changed = home.run(&["audit", "verify", "--json"]).json();
    assert_eq!((&changed["intact"], &changed["first_bad_entry"]), (&false.into(), &2.into()), "{changed}");
}

#[test]
fn every_list_and_every_filter_is_known_to_the_hub() {
    let home = Home::new();
    let _hub = home.start();
    home.ok(&["server", "add", "Far", "--url", "https://127.0.0.1:9/mcp", "--auth", "oauth"]);
    home.ok(&["server", "connect", "demo"]);
    home.ok(&["agent", "add", "Helper", "--server", "demo"]);
    let time = "2026-01-31T12:00:00Z";
    for arguments in [
        &["server", "list", "--status", "connected", "-q", "demo"][..],
        &["server", "trace", "far"],
        &["server", "sync", "demo"],
        &["tool", "list", "--server", "demo", "--state", "new", "-q", "echo"],
        &["tool", "list", "--agent", "Helper"],
        &["resource", "list", "demo"],
        &["resource", "list", "demo", "--templates"],
        &["prompt", "list", "demo"],
        &["agent", "list"],
        &["approvals", "list", "--decision", "denied"],
        &[
            "calls", "list", "--server", "demo", "--tool", "echo", "--status", "error", "--since", time,
            "--limit", "3",
        ],
        &["calls", "list", "--subject", "hub", "--until", time],
        &["token", "list"],
        &["token", "list", "--agent", "Helper"],
        &["user", "list"],
        &["export", "openai", "--agent", "Helper", "--server", "demo"],
        &["export", "cursor", "--server", "far"],
    ] {
        let run = home.run(arguments);
        assert_eq!(run.code, Some(0), "{arguments:?}: {}", run.stderr);
    }
}

#[test]
fn approval_rules_are_added_used_and_revoked() {
    let home = Home::new();
    let hub = home.start();
    home.ok(&["server", "connect", "demo"]);
    home.ok(&["agent", "add", "Helper", "--server", "demo"]);
    let token = home.ok(&["token", "add", "for tests", "--agent", "Helper"]);
    let call = |message: &str| {
        let args = json!({ "message": message }).to_string();
        let call =
            ["--hub", &*hub.url, "--json", "tool", "call", "mcp_demo__echo", "--no-wait", "--args", &args];
        run_in(&[("LINCHPIN_TOKEN", token.trim())], &call).expect_output(0, &[]).json()
    };
    let pending = call("hello Ada");
    let approval = pending["approval"].as_str().unwrap();
    home.run(&["approvals", "approve", approval, "--for-session"])
        .expect_output(1, &["`rule.session`", "has not named a session"]);
    home.run(&["approvals", "approve", approval, "--for", "90s"]).expect_output(2, &["whole minutes"]);
    home.run(&["approvals", "approve", approval, "--if-prefix", "/message=bye"])
        .expect_output(1, &["`rule.conditions[0]`"]);
    home.ok(&["approvals", "approve", approval, "--for", "8h", "--if-prefix", "/message=hello "]);
    assert_ne!(call("hello Bob")["status"], "pending");
    assert_eq!(call("bye Bob")["status"], "pending");
    let rules = home.json(&["approval-rule", "list", "--agent", "Helper", "--server", "demo"]);
    assert_eq!((rules.as_array().unwrap().len(), &rules[0]["approval"]), (1, &json!(approval)));
    let rule = rules[0]["id"].as_str().unwrap();
    let shown = home.ok(&["approval-rule", "show", rule]);
    assert!(
        shown.contains("Helper") && shown.contains("mcp_demo__echo") && shown.contains("hello "),
        "{shown}"
    );
    assert!(home.ok(&["approval-rule", "revoke", rule]).contains("revoked"));
    assert_eq!(call("hello Bob")["status"], "pending");
    assert_eq!(home.ok(&["approval-rule", "list"]), "no approval rules\n");
    let add = ["approval-rule", "add", "Helper", "mcp_demo__echo"];
    home.run(&add).expect_output(1, &["`minutes`", "requires a limit"]);
    home.ok(&[&add[..], &["--if-in", r#"/message=["hello Eve"]"#]].concat());
    assert_ne!(call("hello Eve")["status"], "pending");
}

#[test]
fn a_tool_call_asks_the_user_and_shows_progress() {
    let home = Home::new();
    let _hub = home.start();
    home.ok(&["server", "connect", "demo"]);
    let order = ["tool", "call", "mcp_demo__order"];
    let answers = ["--answer", "size=large", "--answer", "count=3", "--answer", "x=y"];
    let run = home.run(&[&order[..], &answers].concat());
    let run = run.expect_output(0, &["--answer x: unused, the server did not request this field"]);
    assert_eq!(run.stdout, "3 × large tea, to stay\n");
    let declined = "does not reply to server requests";
    home.run(&order).expect_output(1, &[declined, "the user declined the elicitation"]);
    let counted =
        home.run(&["tool", "call", "mcp_demo__countdown", "--args", r#"{"from": 2}"#, "--answer", "x=y"]);
    assert_eq!(counted.expect_output(0, &[]).stdout, "Counted down from 2.\n");
}
