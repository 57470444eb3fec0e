//! Tour client: uses all features of a server and prints the report as one JSON object.

#![allow(deprecated, reason = "deprecated features are tested too")]

use std::time::Duration;

use anyhow::Context;
use rmcp::model::*;
use rmcp::service::{
    ClientLifecycleMode, ClientServiceExt, NotificationContext, PeerRequestOptions, RequestContext,
    RunningService,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientHandler, ErrorData, RoleClient, ServiceError};
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::timeout;

const TEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Client handler, which forwards notifications by method.
struct Tour(Sender<(&'static str, Value)>);

impl Tour {
    async fn told(&self, method: &'static str, params: Value) {
        let _ = self.0.send((method, params)).await; // the receiver may be dropped
    }
}

impl ClientHandler for Tour {
    fn get_info(&self) -> ClientConfig {
        let capabilities = json!({ "elicitation": { "form": {} }, "sampling": {}, "roots": {} });
        let capabilities = serde_json::from_value(capabilities).expect("valid capabilities");
        ClientConfig::new(capabilities, Implementation::new("interop-rmcp", "1.0.0"))
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn create_elicitation(
        &self,
        params: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        // A form that asks for a decision is that of an approval of the gateway.
        let is_approval = json!(params)["requestedSchema"]["properties"].get("decision").is_some();
        let content = if is_approval { json!({ "decision": "approve" }) } else { json!({ "name": "Ada" }) };
        Ok(serde_json::from_value(json!({ "action": "accept", "content": content })).expect("a valid result"))
    }

    async fn create_message(
        &self,
        _: CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        let content = json!({ "type": "text", "text": "sampled" });
        let message = json!({ "role": "assistant", "model": "interop", "content": content });
        Ok(serde_json::from_value(message).expect("a valid result of sampling"))
    }

    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        Ok(serde_json::from_value(json!({ "roots": [{ "uri": "file:///tmp/a", "name": "a" }] }))
            .expect("roots"))
    }

    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        // The gateway reports that a call waits for approval; this SDK requests progress for all calls.
        if params.message.as_ref().is_some_and(|message| message.starts_with("waiting for approval")) {
            return;
        }
        self.told("progress", json!(params)).await;
    }

    async fn on_logging_message(
        &self,
        params: LoggingMessageNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.told("log", json!({ "level": params.level, "data": params.data })).await;
    }

    async fn on_resource_updated(
        &self,
        params: ResourceUpdatedNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.told("updated", json!(params.uri)).await;
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.told("changed", json!("tools")).await;
    }
}

struct Report {
    client: RunningService<RoleClient, Tour>,
    told: Mutex<Receiver<(&'static str, Value)>>,
    seen: Map<String, Value>,
}

pub async fn tour(url: &str, legacy: bool) -> anyhow::Result<()> {
    let (tell, told) = channel(100);
    let lifecycle = if legacy {
        ClientLifecycleMode::Initialize
    } else {
        ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::LATEST] }
    };
    let mut config = StreamableHttpClientTransportConfig::with_uri(url);
    if let Ok(token) = std::env::var("TOUR_TOKEN") {
        config = config.auth_header(token);
    }
    let transport = StreamableHttpClientTransport::from_config(config);
    let client = timeout(TEST_TIMEOUT, Tour(tell).serve_with_lifecycle(transport, lifecycle)).await??;
    let revision = client
        .peer_info()
        .context("the server sent no information about itself")?
        .protocol_version
        .to_string();
    let mut report = Report { client, told: Mutex::new(told), seen: Map::new() };
    report.seen.insert("revision".into(), revision.into());
    report.take(legacy).await?;
    println!("{}", Value::Object(report.seen));
    report.client.cancel().await?;
    Ok(())
}

impl Report {
    fn note(&mut self, name: &str, outcome: anyhow::Result<Value>) {
        let value = outcome.unwrap_or_else(|error| json!({ "error": error.to_string() }));
        self.seen.insert(name.to_owned(), value);
    }

    /// Waits for the next notification of a kind.
    async fn next(&self, kind: &str) -> anyhow::Result<Value> {
        let mut told = self.told.lock().await;
        let next = async {
            loop {
                match told.recv().await {
                    Some((own, value)) if own == kind => return Ok(value),
                    Some(_) => {}
                    None => anyhow::bail!("the connection has ended"),
                }
            }
        };
        timeout(TEST_TIMEOUT, next).await.context("no notification in time")?
    }

    async fn call(&self, name: &'static str, input: Value) -> anyhow::Result<CallToolResult> {
        let mut params = CallToolRequestParams::new(name);
        params.arguments = input.as_object().cloned();
        Ok(timeout(TEST_TIMEOUT, self.client.call_tool(params)).await??)
    }

    async fn say(&self, name: &'static str, input: Value) -> anyhow::Result<Value> {
        Ok(text(&self.call(name, input).await?))
    }

    async fn read(&self, uri: &str) -> anyhow::Result<Value> {
        let result = self.client.read_resource(ReadResourceRequestParams::new(uri)).await?;
        Ok(json!(result)["contents"][0]["text"].clone())
    }

    async fn take(&mut self, legacy: bool) -> anyhow::Result<()> {
        let mut tools: Vec<String> =
            self.client.list_all_tools().await?.iter().map(|tool| tool.name.to_string()).collect();
        tools.sort();
        self.note("tools", Ok(json!(tools)));
        let add = self.call("add", json!({ "a": 2, "b": 0.5 })).await;
        self.note("add", add.map(|sum| sum.structured_content.clone().unwrap_or_else(|| text(&sum))));
        let echo = self.say("echo", json!({ "text": "grüße" })).await;
        self.note("echo", echo);
        let slow = self.say("slow", json!({})).await;
        self.note("slow", slow);
        let progress = self.progress().await;
        self.note("progress", progress);
        for name in ["ask", "sample", "folders"] {
            let answer = self.say(name, json!({})).await;
            self.note(name, answer);
        }
        let fail = self.call("fail", json!({})).await;
        self.note("fail", fail.map(|fail| json!({ "isError": fail.is_error, "text": text(&fail) })));
        let (status, memo) = (self.read("memo://status").await, self.read("memo://7").await);
        self.note("status", status);
        self.note("memo", memo);
        let prompt = self.prompt().await;
        self.note("prompt", prompt);
        self.listen(legacy).await?;
        let complete = self.client.complete_prompt_simple("review", "language", "ru").await;
        self.note("complete", complete.map(|values| json!(values)).map_err(Into::into));
        let cancel = self.cancel().await;
        self.note("cancel", cancel);
        let code = |error: ServiceError| match error {
            ServiceError::McpError(error) => json!(error.code.0),
            other => json!(other.to_string()),
        };
        let tool = self.client.call_tool(CallToolRequestParams::new("nonsense")).await;
        self.note("unknownTool", Ok(tool.map_or_else(code, |result| json!(result))));
        let resource = self.client.read_resource(ReadResourceRequestParams::new("memo://no/such")).await;
        self.note("unknownResource", Ok(resource.map_or_else(code, |result| json!(result))));
        Ok(())
    }

    async fn progress(&self) -> anyhow::Result<Value> {
        let mut steps = Vec::new();
        for _ in 1..=3 {
            let mut step = self.next("progress").await?;
            let step = step.as_object_mut().context("progress must be an object")?;
            step.remove("progressToken");
            // The SDK decodes every number as a float; the report has integers.
            for name in ["progress", "total"] {
                let number = step[name].as_f64().context("must be a number")?;
                step[name] = json!(number.round() as i64);
            }
            steps.push(json!(step));
        }
        Ok(steps.into())
    }

    async fn prompt(&self) -> anyhow::Result<Value> {
        let mut params = GetPromptRequestParams::new("review");
        params.arguments = json!({ "language": "rust" }).as_object().cloned();
        let prompt = self.client.get_prompt(params).await?;
        Ok(json!(prompt)["messages"][0]["content"]["text"].clone())
    }

    /// Tests the notifications of the server.
    async fn listen(&mut self, legacy: bool) -> anyhow::Result<()> {
        if legacy {
            self.client.set_level(SetLevelRequestParams::new(LoggingLevel::Info)).await?;
            self.client.subscribe(SubscribeRequestParams::new("memo://status")).await?;
            for (name, tool) in [("log", "log"), ("updated", "touch"), ("changed", "announce")] {
                self.say(tool, json!({})).await?;
                let told = self.next(name).await;
                self.note(name, told);
            }
            return Ok(());
        }
        let mut log = CallToolRequestParams::new("log");
        log.meta = Some(serde_json::from_value(json!({ "io.modelcontextprotocol/logLevel": "info" }))?);
        self.client.call_tool(log).await?;
        let told = self.next("log").await;
        self.note("log", told);
        let filter = json!({ "toolsListChanged": true, "resourceSubscriptions": ["memo://status"] });
        let mut changes = self.client.listen(serde_json::from_value(filter)?).await?;
        for (name, tool) in [("updated", "touch"), ("changed", "announce")] {
            self.say(tool, json!({})).await?;
            let told = timeout(TEST_TIMEOUT, changes.next()).await??.context("the subscription has ended")?;
            let told = json!(told);
            let value = if name == "updated" { told["params"]["uri"].clone() } else { json!("tools") };
            anyhow::ensure!(
                name == "updated" || told["method"] == "notifications/tools/list_changed",
                "{told}"
            );
            self.note(name, Ok(value));
        }
        changes.cancel().await?;
        Ok(())
    }

    async fn cancel(&self) -> anyhow::Result<Value> {
        let wait = CallToolRequest::new(CallToolRequestParams::new("wait"));
        let options = PeerRequestOptions::no_options();
        let call =
            self.client.send_cancellable_request(ClientRequest::CallToolRequest(wait), options).await?;
        self.next("progress").await?;
        call.cancel(Some("no longer wanted".into())).await?;
        self.say("cancelled", json!({})).await
    }
}

fn text(result: &CallToolResult) -> Value {
    let content = json!(result.content);
    let blocks = content.as_array().into_iter().flatten();
    blocks.filter_map(|block| block["text"].as_str()).collect::<String>().into()
}
