//! Export of servers to the files of other clients: without secrets, and unchanged after a new import.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/hub.rs"]
mod hub;
#[path = "support/rest.rs"]
mod rest;
mod support;

use std::fs;

use hub::Home;
use serde_json::{Value, json};
use support::LINCHPIN;

const CLIENTS: [(&str, &str); 4] = [
    ("claude-desktop", "mcpServers"),
    ("claude-code", "mcpServers"),
    ("cursor", "mcpServers"),
    ("vscode", "servers"),
];

/// Starts a hub with a server of each kind.
fn home() -> Home {
    let home = Home::new().with("INHERITED_TOKEN", "canary-inherited");
    home.write(&format!(
        r#"
        [servers.files]
        name = "My files"
        command = "{LINCHPIN}"
        args = ["demo"]
        env = {{ MODE = "fast" }}
        inherit = ["INHERITED_TOKEN"]
        secrets = ["API_KEY", "STORE"]
        directory = "/"
        [servers.off]
        command = "true"
        enabled = false
        [servers.told]
        command = "true"
        env = {{ A_TOKEN = "canary-env" }}
        enabled = false
        [servers.shown]
        command = "true"
        args = ["--token", "canary-argument"]
        enabled = false
        [servers.odd]
        command = "true"
        args = ["${{x}}"]
        enabled = false
        [servers.far]
        url = "https://far.example/sse"
        transport = "sse"
        headers = {{ x-team = "blue" }}
        authentication = {{ type = "api-key", header = "X-Key" }}
        "#
    ));
    home
}

fn fill(home: &Home) {
    for variable in ["API_KEY", "STORE"] {
        home.run_with("canary-vault\n", &["server", "secret", "set", "files", variable])
            .expect_output(0, &[]);
    }
    let add = |name: &str, more: &[&str]| {
        let url = format!("https://{}.example/mcp", name.to_lowercase());
        home.ok(&[&["server", "add", name, "--url", &url, "--retries", "0"], more].concat());
    };
    add("Open", &[]);
    add("My-Tracker", &["--auth", "bearer"]);
    home.run_with("canary-bearer\n", &["server", "credential", "set", "my-tracker"]).expect_output(0, &[]);
    add("Signed", &["--auth", "oauth"]);
    add("Each", &["--auth", "bearer", "--per-agent"]);
    add("Basic", &["--auth", "basic", "--username", "ada"]);
}

fn export(home: &Home, arguments: &[&str]) -> (Value, String) {
    let run = home.run(&[&["export"], arguments].concat()).expect_output(0, &[]);
    assert!(!run.stdout.contains("canary") && !run.stderr.contains("canary"), "{}{}", run.stdout, run.stderr);
    (run.json(), run.stderr)
}

#[test]
fn what_is_exported_and_imported_again_changes_nothing() {
    let home = home();
    let _hub = home.start();
    fill(&home);
    let servers = || {
        let mut all = home.json(&["server", "list"]);
        let of = |server: &mut Value| (server["slug"].take(), server["version"].take());
        all.as_array_mut().unwrap().iter_mut().map(of).collect::<Vec<_>>()
    };
    let (config, before) = (fs::read_to_string(home.config()).unwrap(), servers());
    for (client, key) in CLIENTS {
        let (file, _) = export(&home, &[client]);
        let names: Vec<_> = file[key].as_object().unwrap().keys().cloned().collect();
        let expected: &[&str] = match client {
            "claude-desktop" => &["demo", "files"],
            _ => &["basic", "demo", "each", "far", "files", "my-tracker", "open", "signed"],
        };
        assert_eq!(names, expected, "{client}");
        let path = home.file(&format!("{client}.json"));
        fs::write(&path, file.to_string()).unwrap();
        let done = home.json(&["import", path.to_str().unwrap(), "--format", client]);
        for row in done["servers"].as_array().unwrap() {
            assert_eq!(row["step"], "unchanged", "{client}: {row}");
        }
        assert_eq!(done["servers"].as_array().unwrap().len(), expected.len());
        assert_eq!((fs::read_to_string(home.config()).unwrap(), servers()), (config.clone(), before.clone()));
    }
}

#[test]
fn each_client_has_its_own_way_to_name_a_secret() {
    let home = home();
    let hub = home.start();
    fill(&home);
    let program = |key: &str, store: &str| {
        json!({ "command": LINCHPIN, "args": ["demo"], "cwd": "/",
            "env": { "API_KEY": key, "MODE": "fast", "STORE": store } })
    };
    let (file, notes) = export(&home, &["cursor", "--server", "files", "--server", "my-tracker"]);
    let tracker = json!({ "type": "http", "url": "https://my-tracker.example/mcp",
        "headers": { "Authorization": "Bearer ${env:MY_TRACKER_TOKEN}" } });
    let files = program("${env:API_KEY}", "${env:STORE_SECRET}");
    assert_eq!(file, json!({ "mcpServers": { "files": files, "my-tracker": tracker } }));
    for note in [
        "`files`: set `API_KEY` in the environment of Cursor",
        "`files`: the server needs the environment variable `INHERITED_TOKEN`: set it for Cursor",
        "`my-tracker`: set `MY_TRACKER_TOKEN` in the environment of Cursor",
    ] {
        assert!(notes.contains(note), "{notes}");
    }
    let (file, notes) = export(&home, &["claude-desktop", "--server", "files", "--server", "open"]);
    assert_eq!(file, json!({ "mcpServers": { "files": program("", "") } }));
    assert!(
        notes.contains("`open`: skipped: Claude Desktop supports only stdio servers in its file"),
        "{notes}"
    );
    let (file, _) = export(&home, &["claude-code", "--server", "far"]);
    let far = json!({ "type": "sse", "url": "https://far.example/sse",
        "headers": { "X-Key": "${FAR_TOKEN}", "x-team": "blue" } });
    assert_eq!(file["mcpServers"]["far"], far);
    let named = ["vscode", "--server", "told", "--server", "shown", "--server", "odd", "--server", "signed"];
    let (file, notes) = export(&home, &named);
    let told = json!({ "type": "stdio", "command": "true", "env": { "A_TOKEN": "${env:A_TOKEN}" } });
    let signed = json!({ "type": "http", "url": "https://signed.example/mcp" });
    assert_eq!(file, json!({ "servers": { "signed": signed, "told": told } }));
    for note in [
        "`shown`: skipped: the arguments of its command contain a secret, which the file must not contain",
        "`odd`: skipped: an argument contains `${`",
        "`signed`: VS Code signs in to the server on its own",
    ] {
        assert!(notes.contains(note), "{notes}");
    }
    home.run(&["export", "cursor", "--server", "nobody"]).expect_output(1, &["nobody"]);
    home.run(&["export", "cursor", "--agent", "a"]).expect_output(2, &["--agent requires a tool format"]);
    home.run(&["export", "openai", "--server", "a", "--server", "b"])
        .expect_output(2, &["at most one server"]);

    let rest = rest::Rest::ready(&home.data().join("hub.json"));
    let answer = rest.send("GET", "/api/v1/export/clients/cursor?servers=open,far", None).unwrap().json();
    assert_eq!(answer["file"]["mcpServers"].as_object().unwrap().len(), 2);
    assert_eq!(answer["notes"].as_array().unwrap().len(), 1);
    assert_eq!(rest.send("GET", "/api/v1/export/clients/emacs", None).unwrap().status, 404);
    let (_, written) = hub.end();
    assert!(!written.contains("canary"), "{written}");
}

#[test]
fn a_secret_is_forgotten() {
    let home = home();
    let _hub = home.start();
    fill(&home);
    assert_eq!(home.json(&["server", "test", "files"])["name"], "linchpin-demo");
    home.ok(&["server", "secret", "drop", "files", "STORE"]);
    assert_eq!(home.json(&["server", "show", "files"])["missing_secrets"], json!(["STORE"]));
    home.run(&["server", "test", "files"]).expect_output(1, &["its secret `STORE` is missing"]);
    home.run(&["server", "secret", "drop", "files", "STORE"]).expect_output(1, &["STORE"]);
    home.run_with("canary-vault\n", &["server", "secret", "set", "files", "STORE"]).expect_output(0, &[]);
    home.ok(&["server", "test", "files"]);
}

#[test]
fn what_was_written_is_not_called_left_out() {
    let home = Home::new();
    let _hub = home.start();
    let path = home.file("claude_desktop_config.json");
    let server = json!({ "command": "true", "env": { "API_KEY": "x".repeat(40_000) } });
    fs::write(&path, json!({ "mcpServers": { "large": server } }).to_string()).unwrap();
    let run = home.run(&["--json", "import", path.to_str().unwrap(), "--yes"]).expect_output(1, &[]);
    let row = &run.json()["servers"][0];
    assert_eq!(row["step"], "added", "{row}");
    assert!(row["reason"].as_str().unwrap().contains("at most 32768"), "{row}");
    assert_eq!(home.json(&["server", "show", "large"])["missing_secrets"], json!(["API_KEY"]));
    home.ok(&["server", "remove", "large"]);
    let run = home.run(&["import", path.to_str().unwrap(), "--yes"]).expect_output(1, &[]);
    let expected = "server `large` added, but not completely: ";
    assert!(
        run.stdout.contains(expected) && run.stdout.contains("linchpin server enable large"),
        "{}",
        run.stdout
    );
}
