//! Names at the gateway: servers that collide with or imitate each other affect only their own entries.

use std::collections::BTreeSet;

use linchpin::{NoArgs, Prompt, Revision, Server, Tool};
use serde_json::json;

use crate::fixture::{Site, within_timeout};

#[tokio::test]
async fn servers_that_imitate_each_other_stay_apart() {
    let mut site = Site::start().await;
    // A server whose tools and resources have the names of another one.
    let imitation = Server::new("up", "1")
        .tool("echo", "Repeats a message", |_: NoArgs| async { "imitated" })
        .add(Tool::new("mcp_up__echo").handler(|_: NoArgs| async { "imitated" }))
        .add(Tool::new("up__echo").handler(|_: NoArgs| async { "imitated" }))
        .resource("memory://a", "a", || async { "imitated" })
        .add(Prompt::new("hello").handler(|_: NoArgs| async { "imitated" }));
    let original = Server::new("original", "1")
        .resource("memory://a", "a", || async { "original" })
        .add(Prompt::new("hello").handler(|_: NoArgs| async { "original" }));
    site.add_server("original", original).await;
    site.add_server("imitation", imitation).await;
    for revision in [Revision::ALL[0], Revision::LATEST] {
        let client = site.client(&site.token, revision).connect().await.unwrap();
        let echoed = client.call("mcp_up__echo", json!({ "message": "hello" }));
        assert_eq!(within_timeout(echoed.into_future()).await.unwrap().to_text(), "hello");
        let tools = client.tools().all().await.unwrap();
        let names: BTreeSet<_> = tools.iter().map(|tool| &*tool.name).collect();
        assert_eq!(names.len(), tools.len());
        for name in ["mcp_imitation__echo", "mcp_imitation__mcp_up__echo", "mcp_imitation__up__echo"] {
            assert!(names.contains(name), "{names:?}");
            assert_eq!(client.call(name, json!({})).await.unwrap().to_text(), "imitated");
        }
        for (uri, text) in [("memory://a", "original"), ("mcp+imitation:memory://a", "imitated")] {
            let read = client.read(uri).await.unwrap();
            assert_eq!((read.contents[0].text.as_deref(), &*read.contents[0].uri), (Some(text), uri));
        }
        for (name, text) in [("mcp_original__hello", "original"), ("mcp_imitation__hello", "imitated")] {
            let none: [(&str, &str); 0] = [];
            let rendered = client.prompt(name, none).await.unwrap();
            assert_eq!(rendered.messages[0].content.as_text(), Some(text));
        }
        let unknown = client.read("memory://nothing").await.unwrap_err().to_string();
        assert!(unknown.contains("memory://nothing"), "{unknown}");
    }
}

#[tokio::test]
async fn a_dead_server_affects_only_its_own_entries() {
    let mut site = Site::start().await;
    let endpoint = Server::new("dead", "1").tool("gone", "", |_: NoArgs| async { "here" }).http();
    let endpoint = endpoint.bind("127.0.0.1:0").await.unwrap();
    let (url, stop) = (endpoint.url(), std::sync::Arc::new(tokio::sync::Notify::new()));
    let stopped = stop.clone();
    let serving = tokio::task::JoinSet::from_iter([async move {
        endpoint.run_until(async move { stopped.notified().await }).await.unwrap();
    }]);
    let form = json!({ "name": "dead", "url": url, "retry_attempts": 0 });
    site.hub.registry().add_server(crate::fixture::USER, form).await.unwrap();
    site.hub.registry().sync_server(crate::fixture::USER, "dead", None).await.unwrap();
    stop.notify_one();
    within_timeout(serving.join_all()).await;
    site.add_server("late", Server::new("late", "1").tool("new", "", |_: NoArgs| async { "new" })).await;
    let client = site.client(&site.token, Revision::LATEST).connect().await.unwrap();
    let names: BTreeSet<_> = client.tools().all().await.unwrap().into_iter().map(|tool| tool.name).collect();
    assert!(names.contains("mcp_dead__gone") && names.contains("mcp_late__new"), "{names:?}");
    let failed = client.call("mcp_dead__gone", json!({})).await.unwrap();
    assert_eq!(failed.is_error, Some(true), "{failed:?}");
    assert!(!failed.to_text().is_empty());
    assert_eq!(client.call("mcp_late__new", json!({})).await.unwrap().to_text(), "new");
}
