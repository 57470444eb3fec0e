//! Validation of every field within and beyond its range.

use serde_json::{Value, json};

use super::*;

fn with(name: &str, value: Value) -> Value {
    let mut draft = json!({"name": "Files", "url": "https://files.example/mcp"});
    draft[name] = value;
    draft
}

#[test]
fn the_least_that_can_be_said() {
    let draft = ServerDraft::read(with("description", Value::Null)).unwrap();
    assert_eq!(draft.settings, ServerSettings::with_name("Files"));
    let expected = json!({
        "name": "Files", "description": null, "authentication": {"type": "none"}, "credentials": "shared",
        "timeout_ms": 30_000, "retry_attempts": 3, "enabled": true, "keep_history": true,
        "calls_per_minute": null, "max_concurrent_calls": null, "revision": null,
        "open_timeout_ms": null, "read_timeout_ms": null, "max_reconnects": null, "max_response_bytes": null,
        "max_call_ms": null, "sync_interval_ms": null,
    });
    assert_eq!(serde_json::to_value(&draft.settings).unwrap(), expected);
    let Transport::Http(remote) = draft.transport else { panic!("{:?}", draft.transport) };
    assert_eq!((&*remote.url, remote.headers.len()), ("https://files.example/mcp", 0));
}

#[test]
fn settings_stored_under_the_former_name_of_a_limit_keep_it() {
    let mut stored = serde_json::to_value(ServerSettings::with_name("Files")).unwrap();
    let members = stored.as_object_mut().unwrap();
    members.remove("max_concurrent_calls");
    members.insert("calls_at_once".to_owned(), json!(7));
    let settings: ServerSettings = serde_json::from_value(stored).unwrap();
    assert_eq!(settings.max_concurrent_calls, Some(7));
}

#[test]
fn a_server_stored_before_it_had_limits_has_the_defaults() {
    let mut stored = serde_json::to_value(ServerSettings::with_name("Files")).unwrap();
    stored.as_object_mut().unwrap().retain(|name, _| name == "timeout_ms" || !name.ends_with("_ms"));
    for name in ["max_reconnects", "max_response_bytes"] {
        stored.as_object_mut().unwrap().remove(name);
    }
    let settings: ServerSettings = serde_json::from_value(stored).unwrap();
    assert_eq!(settings, ServerSettings::with_name("Files"));
}

#[test]
fn a_server_stored_before_revisions_could_be_pinned_has_none() {
    let mut stored = serde_json::to_value(ServerSettings::with_name("Files")).unwrap();
    stored.as_object_mut().unwrap().remove("revision");
    assert_eq!(serde_json::from_value::<ServerSettings>(stored).unwrap(), ServerSettings::with_name("Files"));
    let pinned = ServerSettings { revision: Some(Revision::LATEST), ..ServerSettings::with_name("Files") };
    let stored = serde_json::to_value(&pinned).unwrap();
    assert_eq!(stored["revision"], Revision::LATEST.as_str());
    assert_eq!(serde_json::from_value::<ServerSettings>(stored).unwrap(), pinned);
}

#[test]
fn everything_at_the_edge_of_its_range() {
    let long = "n".repeat(100);
    let cases = [
        ("name", json!(long)),
        ("name", json!("日".repeat(100))),
        ("slug", json!("files-2")),
        ("timeout_ms", json!(1_000)),
        ("timeout_ms", json!(300_000)),
        ("retry_attempts", json!(0)),
        ("retry_attempts", json!(5)),
        ("transport", json!("sse")),
        ("url", json!("http://127.0.0.1:8080/mcp")),
        ("credentials", json!("per-agent")),
        ("enabled", json!(false)),
        ("calls_per_minute", json!(1)),
        ("calls_per_minute", json!(100_000)),
        ("authentication", json!({"type": "api-key"})),
        ("authentication", json!({"type": "basic", "username": "ada"})),
        ("headers", json!({"X-Team": "a b"})),
    ];
    for (name, value) in cases {
        ServerDraft::read(with(name, value.clone()))
            .unwrap_or_else(|error| panic!("{name} {value}: {error}"));
    }
    let draft = ServerDraft::read(with("authentication", json!({"type": "api-key"}))).unwrap();
    assert_eq!(draft.settings.authentication, Authentication::ApiKey { header: "x-api-key".into() });
}

#[test]
fn everything_out_of_range_names_its_field() {
    let cases = [
        ("name", json!(""), "name"),
        ("name", json!("  "), "name"),
        ("name", json!("n".repeat(101)), "name"),
        ("name", json!(1), "name"),
        ("name", Value::Null, "name"),
        ("description", json!("d".repeat(2_001)), "description"),
        ("slug", json!("Files"), "slug"),
        ("timeout_ms", json!(999), "timeout_ms"),
        ("timeout_ms", json!(300_001), "timeout_ms"),
        ("timeout_ms", json!(1_000.5), "timeout_ms"),
        ("timeout_ms", json!("1000"), "timeout_ms"),
        ("retry_attempts", json!(6), "retry_attempts"),
        ("retry_attempts", json!(-1), "retry_attempts"),
        ("enabled", json!("yes"), "enabled"),
        ("calls_per_minute", json!(0), "calls_per_minute"),
        ("calls_per_minute", json!(100_001), "calls_per_minute"),
        ("calls_per_minute", json!(-1), "calls_per_minute"),
        ("calls_per_minute", json!("1"), "calls_per_minute"),
        ("transport", json!("stdio"), "transport"),
        ("transport", json!("pigeon"), "transport"),
        ("url", Value::Null, "url"),
        ("url", json!("ftp://files.example"), "url"),
        ("url", json!("http://files.example/mcp"), "url"),
        ("url", json!("https://"), "url"),
        ("command", json!("rm"), "command"),
        ("args", json!([]), "args"),
        ("env", json!({}), "env"),
        ("credentials", json!("mine"), "credentials"),
        ("authentication", json!("bearer"), "authentication"),
        ("authentication", json!({"type": "magic"}), "authentication.type"),
        ("authentication", json!({"type": "basic"}), "authentication.username"),
        ("authentication", json!({"type": "api-key", "header": "a b"}), "authentication.header"),
        ("authentication", json!({"type": "bearer", "header": "x"}), "authentication.header"),
        ("headers", json!([]), "headers"),
        ("headers", json!({"a b": "x"}), "headers.a b"),
        ("headers", json!({"Authorization": "Bearer x"}), "headers.Authorization"),
        ("headers", json!({"mcp-session-id": "x"}), "headers.mcp-session-id"),
        ("headers", json!({"x": "a\r\nb"}), "headers.x"),
        ("headers", json!({"x": 1}), "headers.x"),
        ("colour", json!("red"), "colour"),
    ];
    for (name, value, field) in cases {
        let error = ServerDraft::read(with(name, value.clone())).unwrap_err();
        assert_eq!(
            (error.kind(), error.field()),
            (crate::ErrorKind::Invalid, Some(field)),
            "{name} {value}: {error}"
        );
    }
    assert_eq!(ServerDraft::read(json!([])).unwrap_err().field(), Some("body"));
}

#[test]
fn secrets_have_a_place_of_their_own() {
    let url = "https://a.example/mcp";
    let cases = [
        ("headers", json!({"X-Api-Key": "canary"}), "headers.X-Api-Key", "`api-key` with this `header`"),
        ("headers", json!({"x-auth-token": "canary"}), "headers.x-auth-token", "credential set"),
        ("url", json!(format!("{url}?api_key=canary")), "url", "`api_key` in its query"),
        ("url", json!(format!("{url}?a=1&accessToken=canary#b")), "url", "credential set"),
        ("url", json!("https://ada:canary@a.example/mcp"), "url", "a user name or password"),
    ];
    for (name, value, field, text) in cases {
        let operated = json!({"url": url});
        let mut operated = operated.as_object().unwrap().clone();
        operated.insert(name.into(), value.clone());
        let errors = [
            ServerDraft::read(with(name, value.clone())).unwrap_err(),
            ConfiguredServer::read("a", operated.into()).unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.field(), Some(field), "{value}: {error}");
            assert!(
                error.message().contains(text) && !error.to_string().contains("canary"),
                "{value}: {error}"
            );
        }
    }
    ServerDraft::read(with("authentication", json!({"type": "api-key", "header": "X-Auth-Token"}))).unwrap();
    ServerDraft::read(with("headers", json!({"x-keyboard": "a"}))).unwrap();
    ServerDraft::read(with("url", json!(format!("{url}?page=1&tenant=key")))).unwrap();
}

#[test]
fn a_name_that_is_much_too_long_is_not_repeated() {
    for name in ["x".repeat(1 << 20), format!("x-key-{}", "y".repeat(50))] {
        let error = ServerDraft::read(with("headers", json!({ &*name: "a" }))).unwrap_err();
        assert_eq!(error.field(), Some(&*format!("headers.{}", &name[..40])));
        assert!(error.to_string().len() < 300, "{error}");
    }
    let error =
        ServerDraft::read(with("url", json!(format!("https://a.example/?key-{}=1", "y".repeat(1_000)))))
            .unwrap_err();
    assert!(error.to_string().len() < 300, "{error}");
}

#[test]
fn a_misspelt_field_is_told_the_right_one() {
    let error = ServerDraft::read(with("timeout", json!(1_000))).unwrap_err();
    assert_eq!(error.to_string(), "`timeout`: unknown field: did you mean `timeout_ms`?");
    let error =
        ServerDraft::read(with("authentication", json!({"type": "api-key", "heade": "x"}))).unwrap_err();
    assert_eq!(error.to_string(), "`authentication.heade`: unknown field: did you mean `header`?");
    let error = ServerDraft::read(with("calls_at_once", json!(1))).unwrap_err();
    let expected = "`calls_at_once`: unknown field: did you mean `max_concurrent_calls`?";
    assert_eq!(error.to_string(), expected);
    let error = ServerDraft::read(with("qqq", json!(1))).unwrap_err();
    assert_eq!(error.to_string(), "`qqq`: unknown field");
}

#[test]
fn the_operators_file_has_programs_and_places() {
    let program = json!({
        "command": "npx", "args": ["-y", "server"], "env": {"KEY": "canary"}, "inherit": ["TOKEN"],
        "secrets": ["PASSWORD"], "directory": "/srv", "transport": "stdio", "timeout_ms": 1_000, "calls_per_minute": 600,
    });
    let read = ConfiguredServer::read("files", program).unwrap();
    assert_eq!((&*read.settings.name, read.settings.calls_per_minute), ("files", Some(600)));
    assert_eq!(read.inherit, ["TOKEN"]);
    assert!(!format!("{read:?}").contains("canary"));
    let Transport::Stdio(program) = read.transport else { panic!("{:?}", read.transport) };
    assert_eq!((&*program.command, program.args.len(), &*program.env["KEY"]), ("npx", 2, "canary"));
    assert_eq!(program.secrets, ["PASSWORD".to_owned()].into());
    let remote = json!({"name": "Remote", "url": "https://a.example/mcp", "transport": "sse", "credentials": "per-agent"});
    let read = ConfiguredServer::read("remote", remote).unwrap();
    assert!(matches!(read.transport, Transport::Sse(_)) && read.settings.name == "Remote");
}

#[test]
fn what_the_operators_file_gets_wrong() {
    let url = "https://a.example/mcp";
    let cases = [
        (json!({}), "command", "add one of them"),
        (json!({"comand": "x"}), "comand", "did you mean `command`?"),
        (json!({"uri": url}), "uri", "did you mean `url`?"),
        (json!({"command": "x", "url": url}), "url", "remove one of them"),
        (json!({"command": "x", "headers": {}}), "headers", "together with `command`"),
        (
            json!({"command": "x", "authentication": {"type": "bearer"}}),
            "authentication",
            "together with `command`",
        ),
        (json!({"url": url, "args": []}), "args", "no `command`"),
        (json!({"url": url, "inherit": []}), "inherit", "no `command`"),
        (json!({"command": " "}), "command", "a command name or a path"),
        (json!({"command": 1}), "command", "must be a string"),
        (json!({"command": "x", "transport": "http"}), "transport", "use `url`"),
        (json!({"command": "x", "args": "y"}), "args", "a list of at most 256 strings"),
        (json!({"command": "x", "args": [1]}), "args", "a list of at most 256 strings"),
        (json!({"command": "x", "args": ["a\0b"]}), "args", "a list of at most 256 strings"),
        (json!({"command": "x", "args": vec![""; 257]}), "args", "a list of at most 256 strings"),
        (json!({"command": "x", "env": []}), "env", "must be an object"),
        (json!({"command": "x", "env": {"A": 1}}), "env.A", "must be a string"),
        (json!({"command": "x", "env": {"A=B": "1"}}), "env", "without `=`"),
        (json!({"command": "x", "inherit": [""]}), "inherit", "without `=`"),
        (json!({"command": "x", "secrets": ["A=B"]}), "secrets", "without `=`"),
        (json!({"command": "x", "secrets": ["A"], "env": {"A": "1"}}), "secrets", "`A` is also in `env`"),
        (json!({"command": "x", "secrets": ["A"], "inherit": ["A"]}), "secrets", "`A` is also in `env`"),
        (json!({"url": url, "secrets": []}), "secrets", "no `command`"),
        (json!({"command": "x", "directory": "here"}), "directory", "an absolute path"),
        (json!({"command": "x", "timeout_ms": 1}), "timeout_ms", "from 1000 to 300000"),
        (json!({"command": "x", "timeout": 1}), "timeout", "did you mean `timeout_ms`?"),
        (
            json!({"command": "x", "calls_at_once": 1}),
            "calls_at_once",
            "did you mean `max_concurrent_calls`?",
        ),
        (json!({"command": "x", "slug": "y"}), "slug", "unknown field"),
        (json!("x"), "body", "an object"),
    ];
    for (value, field, text) in cases {
        let error = ConfiguredServer::read("files", value.clone()).unwrap_err();
        assert_eq!(error.field(), Some(field), "{value}: {error}");
        assert!(error.message().contains(text), "{value}: {error}");
    }
    assert_eq!(ConfiguredServer::read("Not One", json!({"command": "x"})).unwrap_err().field(), Some("slug"));
}

#[test]
fn nothing_hides_in_what_people_read() {
    for (field, text) in [
        ("name", "Fi\u{202e}les"),
        ("name", "Fi\nles"),
        ("name", "Files\u{3164}"),
        ("description", "a\u{200b}"),
    ] {
        assert_eq!(ServerDraft::read(with(field, json!(text))).unwrap_err().field(), Some(field));
    }
    ServerDraft::read(with("description", json!("two\nlines"))).unwrap();
}
