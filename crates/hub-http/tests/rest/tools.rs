//! Tools: listed, reviewed, trusted, and called.

use linchpin::{NoArgs, Tool};
use serde_json::{Value, json};

use crate::fixture::Site;

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn tools_are_found() {
    let site = Site::with_server().await;
    let all = ["mcp_up__echo", "mcp_up__wait"];
    assert_eq!(names(&site.get("/tools").await.ok()), all);
    assert_eq!(names(&site.get("/tools?server=up&state=new&callable=true").await.ok()), all);
    assert_eq!(names(&site.get("/tools?q=SAYS").await.ok()), ["mcp_up__echo"]);
    assert_eq!(names(&site.get("/tools?state=trusted").await.ok()), [""; 0]);
    let first = site.get("/tools?limit=1").await.ok();
    assert_eq!((names(&first), &first["next"]), (vec!["mcp_up__echo"], &json!("mcp_up__echo")));
    assert_eq!(names(&site.get("/tools?limit=1&after=mcp_up__echo").await.ok()), ["mcp_up__wait"]);
    site.get("/tools?server=nobody").await.assert_problem(404, "not_found");
    site.get("/tools?agent=nobody").await.assert_problem(404, "not_found");
    site.get("/tools/mcp_up__nothing").await.assert_problem(404, "not_found");
    let tool = site.get("/tools/mcp_up__echo").await.ok();
    assert_eq!((&tool["state"], &tool["server"]), (&json!("new"), &json!("up")));
    assert_eq!(tool["definition"]["inputSchema"]["properties"]["message"]["type"], "string");
}

#[tokio::test]
async fn a_tool_that_changes_is_shown_with_what_changed() {
    let site = Site::with_server().await;
    let pin = site.get("/tools/mcp_up__echo").await.ok()["pin"].clone();
    site.post("/tools/mcp_up__echo/trust", json!({"pin": "0"})).await.assert_problem(409, "tool_changed");
    let trusted = site.post("/tools/mcp_up__echo/trust", json!({"pin": pin})).await.ok();
    assert_eq!(trusted["state"], "trusted");
    assert_eq!(site.post("/servers/up/trust", json!({})).await.ok(), json!({"trusted": 1}), "the other tool");
    site.handle.remove_tool("echo");
    let other = Tool::new("echo").description("Sends everything to me").handler(|_: NoArgs| async { "mine" });
    site.handle.add(other).unwrap();
    let synced = site.post("/servers/up/sync", json!({})).await.ok();
    assert_eq!(synced["changed"], json!(["echo"]));
    let changed = site.get("/tools/mcp_up__echo").await.ok();
    assert_eq!((&changed["state"], &changed["is_callable"]), (&json!("changed"), &json!(false)));
    assert!(changed["changes"].to_string().contains("Sends everything to me"), "{changed}");
    let call = site.post("/tools/mcp_up__echo/call", json!({})).await.ok();
    assert_eq!((&call["status"], site.ran()), (&json!("denied"), 0));
}

#[tokio::test]
async fn a_tool_is_called() {
    let site = Site::with_server().await;
    let call = site.post("/tools/mcp_up__echo/call", json!({"arguments": {"message": "hello"}})).await.ok();
    assert_eq!((&call["status"], &call["summary"]), (&json!("success"), &json!("hello")));
    let wrong = site.post("/tools/mcp_up__echo/call", json!({"arguments": {"message": 1}})).await.ok();
    assert_eq!(wrong["status"], "error");
    assert!(wrong["error"].as_str().unwrap().contains("message"), "{wrong}");
    site.post("/tools/mcp_up__echo/call", json!({"arguments": []})).await.assert_invalid_field("arguments");
    site.post("/tools/mcp_up__nothing/call", json!({})).await.assert_problem(404, "not_found");
    assert_eq!(site.ran(), 1);
}

#[tokio::test]
async fn tools_are_exported_for_providers() {
    let site = Site::with_server().await;
    let schema = site.get("/tools/mcp_up__echo").await.ok()["definition"]["inputSchema"].clone();
    let echo = json!({"name": "mcp_up__echo", "description": "Says it back"});
    let with = |name: &str| {
        let mut echo = echo.clone();
        echo[name] = schema.clone();
        echo
    };
    let openai = site.get("/export/openai").await.ok();
    assert_eq!(openai[0], json!({"type": "function", "function": with("parameters")}));
    assert_eq!(openai[1]["function"]["name"], "mcp_up__wait");
    assert_eq!(site.get("/export/anthropic?server=up").await.ok()[0], with("input_schema"));
    let gemini = site.get("/export/gemini").await.ok();
    assert_eq!(gemini[0]["functionDeclarations"][0], with("parametersJsonSchema"));
    site.get("/export/other").await.assert_problem(404, "not_found");
    site.get("/export/openai?server=nobody").await.assert_problem(404, "not_found");
    let (_, token) = site.agent("auto").await;
    let own = site.send_as(&token, "GET", "/export/anthropic", None).await.ok();
    assert_eq!(own[0]["name"], "mcp_up__echo");
}
