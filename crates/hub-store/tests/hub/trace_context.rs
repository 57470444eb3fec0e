//! Trace context: upstream servers receive that of the request, or the span of the call if spans are exported.

use linchpin::{Context, Json, NoArgs, Tool};
use linchpin_hub_core::hub::{CallRequest, ToolRef};
use linchpin_hub_core::trace_context::TraceContext;
use serde_json::{Value, json};

use crate::fixture::{ADA, Stage, local_user};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Calls a tool that returns the trace context in its `_meta`.
async fn received(stage: &Stage, trace: Option<TraceContext>) -> Value {
    let tool = ToolRef::Qualified("mcp_up__trace".into());
    let request = CallRequest { trace, ..CallRequest::new(tool, json!({})) };
    let call = stage.hub.calls().call_tool(local_user(ADA), request, true).await.unwrap();
    call.result.unwrap()["structuredContent"].clone()
}

#[tokio::test]
async fn a_server_receives_the_trace_of_the_request() {
    let stage = Stage::new().await;
    let tool =
        Tool::new("trace").description("Returns its trace").handler(|_: NoArgs, cx: Context| async move {
            let member = |name: &str| cx.meta().get(name).cloned();
            Json(json!({ "parent": member("traceparent"), "state": member("tracestate") }))
        });
    stage.upstream.handle.add(tool).unwrap();
    stage.hub.registry().sync_server(local_user(ADA), "up", None).await.unwrap();
    assert_eq!(received(&stage, None).await, json!({ "parent": null, "state": null }));
    let trace = TraceContext::parse(PARENT).unwrap();
    assert_eq!(received(&stage, Some(trace.clone())).await, json!({ "parent": PARENT, "state": null }));
    let expected = json!({ "parent": PARENT, "state": "vendor=1" });
    assert_eq!(received(&stage, Some(trace.with_state("vendor=1"))).await, expected);
}
