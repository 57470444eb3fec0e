//! Results of clients and servers.

use linchpin_protocol::model::{
    CallToolResult, CompleteResult, CreateMessageResult, DiscoverResult, ElicitResult, EmptyResult,
    GetPromptResult, InitializeResult, InputRequest, InputRequiredResult, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListRootsResult, ListToolsResult, ReadResourceResult,
};
use serde_json::{Value, json};

use super::{
    ALL, Row, SESSION, STATELESS, THIRD, implementation, meta, prompt, resource, row, server_capabilities,
    text, tool,
};

pub(super) fn rows() -> Vec<Row> {
    let list = |key: &str, item: Value| {
        let full =
            json!({key: [item], "nextCursor": "c", "ttlMs": 5, "cacheScope": "public", "_meta": meta()});
        (full, json!({key: [], "ttlMs": 0, "cacheScope": "private"}))
    };
    let mut template = resource();
    template["uriTemplate"] = "file:///{path}".into();
    let (tools, no_tools) = list("tools", tool());
    let (prompts, no_prompts) = list("prompts", prompt());
    let (resources, no_resources) = list("resources", resource());
    let (templates, no_templates) = list("resourceTemplates", template);
    let (contents, no_contents) = list("contents", json!({"uri": "file:///r", "blob": "AA=="}));
    let subscription = json!({"_meta": {"io.modelcontextprotocol/subscriptionId": "s"}});
    let initialized = json!({
        "protocolVersion": "1999-01-01", "capabilities": server_capabilities(), "serverInfo": implementation(),
        "instructions": "i", "_meta": meta(),
    });
    let discovered = json!({
        "supportedVersions": ["1999-01-01"], "capabilities": server_capabilities(), "instructions": "i",
        "ttlMs": 1, "cacheScope": "public", "_meta": meta(),
    });
    let question = json!({"method": "elicitation/create", "params": {
        "message": "m", "requestedSchema": {"type": "object", "properties": {}},
    }});
    let asked = json!({"inputRequests": {"q": question}, "requestState": "s", "_meta": meta()});
    let sampled = json!({
        "role": "assistant", "content": [text(), text()], "model": "m", "stopReason": "endTurn", "_meta": meta(),
    });
    let completed = json!({"completion": {"values": ["v"], "total": 3, "hasMore": true}, "_meta": meta()});
    let called = json!({"content": [text()], "structuredContent": [1, 2], "isError": false, "_meta": meta()});
    let got = json!({"description": "d", "messages": [{"role": "user", "content": text()}], "_meta": meta()});
    vec![
        row::<InitializeResult>(
            "InitializeResult",
            SESSION,
            initialized,
            json!({"protocolVersion": "x", "capabilities": {}, "serverInfo": {"name": "n", "version": "1"}}),
        ),
        row::<DiscoverResult>(
            "DiscoverResult",
            STATELESS,
            discovered,
            json!({"supportedVersions": [], "capabilities": {}, "ttlMs": 0, "cacheScope": "private"}),
        ),
        row::<CallToolResult>("CallToolResult", ALL, called, json!({"content": []})),
        row::<ListToolsResult>("ListToolsResult", ALL, tools, no_tools),
        row::<ListPromptsResult>("ListPromptsResult", ALL, prompts, no_prompts),
        row::<GetPromptResult>("GetPromptResult", ALL, got, json!({"messages": []})),
        row::<ListResourcesResult>("ListResourcesResult", ALL, resources, no_resources),
        row::<ListResourceTemplatesResult>("ListResourceTemplatesResult", ALL, templates, no_templates),
        row::<ReadResourceResult>("ReadResourceResult", ALL, contents, no_contents),
        row::<CompleteResult>("CompleteResult", ALL, completed, json!({"completion": {"values": []}})),
        row::<EmptyResult>("EmptyResult", ALL, json!({"_meta": meta()}), json!({})),
        row::<EmptyResult>("SubscriptionsListenResult", STATELESS, subscription.clone(), subscription),
        row::<InputRequiredResult>("InputRequiredResult", STATELESS, asked, json!({})),
        row::<InputRequest>("InputRequest", STATELESS, question, json!({"method": "roots/list"})),
        row::<ListRootsResult>(
            "ListRootsResult",
            ALL,
            json!({"roots": [{"uri": "file:///a"}], "_meta": meta()}),
            json!({"roots": []}),
        ),
        row::<CreateMessageResult>(
            "CreateMessageResult",
            ALL,
            sampled,
            json!({"role": "assistant", "content": {"type": "text", "text": ""}, "model": "m"}),
        ),
        row::<ElicitResult>(
            "ElicitResult",
            THIRD,
            json!({"action": "accept", "content": {"a": 1, "b": true}, "_meta": meta()}),
            json!({"action": "decline"}),
        ),
    ]
}
