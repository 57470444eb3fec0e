//! D: qualified names of tools, tool records, and results as models see them.

use interop_tests::hub::{HubDirectory, everything_config, start_guarded};
use interop_tests::peer::RunningServer;
use serde_json::{Value, json};

use crate::{strings_at, text};

#[test]
fn d1_names_stay_whatever_is_added() {
    let (home, server) = (HubDirectory::new(), start_guarded());
    let hub = home.start();
    hub.add_guarded(&server, json!({}));
    let tools = hub.list("/tools?server=guarded");
    let before = strings_at(&tools, "/name");
    assert!(before.contains(&"mcp_guarded__whoami"), "{before:?}");
    let adapted = text(&tools.iter().find(|tool| tool["tool"] == "files.read/all").unwrap()["name"]);
    let (begin, digest) = adapted.rsplit_once('_').unwrap();
    assert_eq!((begin, digest.len()), ("mcp_guarded__files_read_all", 8));
    let is_known = |char: char| char.is_ascii_alphanumeric() || "_-".contains(char);
    assert!(before.iter().all(|name| name.len() <= 128 && name.chars().all(is_known)), "{before:?}");
    assert_eq!(hub.call(adapted, json!({ "path": "a" }))["summary"], "contents of a");
    let called = home.ok(&["tool", "call", adapted, "--args", r#"{"path": "b"}"#]);
    assert_eq!(called, "contents of b\n");

    // Another server with the same tools, whose slug has that of the other as a prefix.
    let other = hub.add("guarded--files", server.url(), json!({ "authentication": { "type": "bearer" } }));
    hub.put("/servers/guarded--files/credential", json!({ "secret": "secret-of-other" }));
    hub.post("/servers/guarded--files/connect", Value::Null);
    assert_eq!(strings_at(&hub.list("/tools?server=guarded"), "/name"), before);
    assert_eq!(hub.list("/tools?server=guarded--files").len(), before.len());
    assert_eq!(hub.call("mcp_guarded--files__whoami", json!({}))["summary"], "other");
    assert_eq!(hub.call("mcp_guarded__whoami", json!({}))["summary"], "hub");
    let taken = json!({ "name": "x", "slug": "guarded", "url": server.url() });
    assert_eq!(hub.expect_error(409, "POST", "/servers", taken)["field"], "slug");
    let changed = hub.expect_error(422, "PATCH", "/servers/guarded--files", json!({ "slug": "short" }));
    assert_eq!(changed["field"], "slug", "it is fixed when a server is added: {other}");
}

#[test]
fn d2_a_dead_server_hides_no_other() {
    let home = HubDirectory::new();
    let served = RunningServer::everything("streamableHttp");
    let dead = start_guarded();
    home.write(&format!(
        "[egress]\nallow = [\"127.0.0.0/8\"]\n{}[servers.broken]\ncommand = \"/no/such/program\"\n",
        everything_config()
    ));
    let hub = home.start();
    hub.add("remote", served.url(), json!({}));
    hub.add_guarded(&dead, json!({ "retry_attempts": 0, "timeout_ms": 2_000 }));
    for server in ["demo", "everything", "remote"] {
        assert_eq!(hub.post(&format!("/servers/{server}/connect"), Value::Null)["status"], "connected");
    }
    let all = hub.list("/tools?limit=500").len();
    drop(dead);
    let problem = hub.expect_error(503, "POST", "/servers/guarded/sync", Value::Null);
    assert!(text(&problem["detail"]).contains("`guarded`"), "{problem}");
    let problem = hub.expect_error(503, "POST", "/servers/broken/connect", Value::Null);
    assert!(text(&problem["detail"]).contains("/no/such/program"), "{problem}");

    let tools = hub.list("/tools?limit=500");
    assert_eq!(tools.len(), all, "the tools of an unreachable server stay stored");
    for name in ["mcp_demo__add", "mcp_everything__get-sum", "mcp_remote__get-sum", "mcp_guarded__whoami"] {
        let tool = tools.iter().find(|tool| tool["name"] == name).unwrap();
        assert!(tool["definition"]["inputSchema"].is_object(), "{tool}");
    }
    assert_eq!(
        hub.call("mcp_remote__get-sum", json!({ "a": 1, "b": 2 }))["summary"],
        "The sum of 1 and 2 is 3."
    );
    assert_eq!(
        hub.call("mcp_everything__get-sum", json!({ "a": 1, "b": 2 }))["summary"],
        "The sum of 1 and 2 is 3."
    );
    let shown = home.ok(&["server", "list"]);
    let line = |slug: &str| shown.lines().find(|line| line.starts_with(slug)).unwrap().to_owned();
    assert!(line("broken").contains("error") && line("broken").contains("/no/such/program"), "{shown}");
    assert!(line("remote").contains("connected"), "{shown}");
}

#[test]
fn d3_results_have_a_summary_and_a_guarded_size() {
    let (home, server) = (HubDirectory::new(), start_guarded());
    home.write(&format!("[egress]\nallow = [\"127.0.0.0/8\"]\n{}", everything_config()));
    let hub = home.start();
    hub.add_guarded(&server, json!({}));
    hub.post("/servers/everything/connect", Value::Null);
    let weather = hub.call("mcp_everything__get-structured-content", json!({ "location": "Chicago" }));
    let structured = &weather["result"]["structuredContent"];
    assert_eq!(structured["conditions"], "Light rain / drizzle");
    let parsed: Value = serde_json::from_str(text(&weather["summary"])).unwrap();
    assert_eq!((&parsed, &weather["warning"]), (structured, &Value::Null), "it is not repeated");
    let image = hub.call("mcp_everything__get-tiny-image", json!({}));
    let summary = text(&image["summary"]);
    assert!(summary.contains("\n[image, image/png]\n") && summary.lines().count() >= 3, "{summary}");
    let links = hub.call("mcp_everything__get-resource-links", json!({ "count": 2 }));
    assert!(text(&links["summary"]).contains("[link to demo://resource/"), "{links}");

    let small = hub.call("mcp_guarded__large", json!({ "size": 90_000 }));
    assert_eq!((&small["warning"], text(&small["summary"]).len()), (&Value::Null, 90_000));
    let large = hub.call("mcp_guarded__large", json!({ "size": 300_000 }));
    let warning = text(&large["warning"]);
    assert!(warning.contains("truncated to 200000"), "{warning}");
    assert!(large["result"].to_string().len() <= 200_100, "{}", large["result"].to_string().len());
    let summary = text(&large["summary"]);
    assert!(summary.starts_with("xxx") && summary.ends_with(warning), "{}", &summary[199_000..]);
    let again = hub.get(&format!("/calls/{}", text(&large["id"])));
    assert_eq!((&again["warning"], &again["summary"]), (&large["warning"], &large["summary"]));
    let shown = home.ok(&["tool", "call", "mcp_guarded__large", "--args", r#"{"size": 300000}"#]);
    assert!(shown.trim_end().ends_with(warning), "{}", &shown[199_000..]);
}
