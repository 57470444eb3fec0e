//! Tour server: Streamable HTTP with sessions, and without them for clients of the newest revision.

#![allow(deprecated, reason = "deprecated features are tested too")]

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::*;
use rmcp::service::{RequestContext, SubscriptionContext};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, broadcast};

/// Serves on a free port and prints the URL.
pub async fn serve() -> anyhow::Result<()> {
    let tour = Tour { changes: broadcast::channel(16).0, cancelled: Arc::new(Semaphore::new(0)) };
    let service: StreamableHttpService<Tour, LocalSessionManager> = StreamableHttpService::new(
        move || Ok(tour.clone()),
        Arc::default(),
        StreamableHttpServerConfig::default().with_sse_retry(Some(Duration::from_millis(10))),
    );
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}/mcp", listener.local_addr()?);
    Ok(axum::serve(listener, axum::Router::new().nest_service("/mcp", service)).await?)
}

#[derive(Clone, Copy, PartialEq)]
enum Change {
    Status,
    Tools,
}

#[derive(Clone)]
struct Tour {
    /// Changes, for clients without a session.
    changes: broadcast::Sender<Change>,
    /// Number of cancelled calls of `wait` that `cancelled` has not reported yet.
    cancelled: Arc<Semaphore>,
}

type Cx = RequestContext<RoleServer>;

fn text(text: impl Into<String>) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("the SDK must accept this value")
}

/// Input request, and the function that formats its response.
type Question = (Value, fn(&Value) -> String);

/// Returns the input request of a tool.
fn question(tool: &str) -> Option<Question> {
    let form =
        json!({ "type": "object", "properties": { "name": { "type": "string" } }, "required": ["name"] });
    Some(match tool {
        "ask" => {
            let params = json!({ "mode": "form", "message": "What is your name?", "requestedSchema": form });
            (json!({ "method": "elicitation/create", "params": params }), |answer| {
                match answer["action"].as_str() {
                    Some("accept") => {
                        format!("hello {}", answer["content"]["name"].as_str().unwrap_or_default())
                    }
                    other => format!("the user said {}", other.unwrap_or_default()),
                }
            })
        }
        "sample" => {
            let message = json!({ "role": "user", "content": { "type": "text", "text": "Say something" } });
            let params = json!({ "messages": [message], "maxTokens": 50 });
            (json!({ "method": "sampling/createMessage", "params": params }), |answer| {
                answer["content"]["text"].as_str().unwrap_or_default().to_owned()
            })
        }
        "folders" => (json!({ "method": "roots/list" }), |answer| {
            let roots = answer["roots"].as_array().cloned().unwrap_or_default();
            roots.iter().filter_map(|root| root["uri"].as_str()).collect::<Vec<_>>().join("\n")
        }),
        _ => return None,
    })
}

impl Tour {
    async fn progress(&self, cx: &Cx, step: u32, total: u32, message: &str) -> Result<(), ErrorData> {
        let Some(token) = cx.meta.get_progress_token() else { return Ok(()) };
        let params = json!({ "progressToken": token, "progress": step, "total": total, "message": message });
        let sent = cx.peer.notify_progress(read(params)).await;
        sent.map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }

    /// Sends the input request in a result, or in a session as a request.
    async fn ask(
        &self,
        (question, tell): Question,
        request: &CallToolRequestParams,
        cx: &Cx,
    ) -> Result<CallToolResponse, ErrorData> {
        if let Some(answer) = request.input_responses.as_ref().and_then(|all| all.get("answer")) {
            return Ok(text(tell(answer)).into());
        }
        if cx.meta.protocol_version().is_some() {
            let asked =
                InputRequiredResult::new(Some(read(json!({ "answer": question }))), Some("asked".into()));
            return Ok(asked.into());
        }
        let fault = |error: rmcp::ServiceError| ErrorData::internal_error(error.to_string(), None);
        let params = question["params"].clone();
        let answer = match request.name.as_ref() {
            "ask" => json!(cx.peer.create_elicitation(read(params)).await.map_err(fault)?),
            "sample" => json!(cx.peer.create_message(read(params)).await.map_err(fault)?),
            _ => json!(cx.peer.list_roots().await.map_err(fault)?),
        };
        Ok(text(tell(&answer)).into())
    }

    async fn tell(&self, change: Change, cx: &Cx) -> Result<(), ErrorData> {
        let _ = self.changes.send(change); // fails without receivers
        if cx.meta.protocol_version().is_some() {
            return Ok(());
        }
        let told = match change {
            Change::Status => cx.peer.notify_resource_updated(read(json!({ "uri": "memo://status" }))).await,
            Change::Tools => cx.peer.notify_tool_list_changed().await,
        };
        told.map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }
}

impl ServerHandler for Tour {
    fn get_info(&self) -> ServerConfig {
        let capabilities = json!({
            "completions": {}, "logging": {}, "prompts": {}, "resources": { "subscribe": true },
            "tools": { "listChanged": true },
        });
        ServerConfig::new(read(capabilities)).with_server_info(Implementation::new("interop-rmcp", "1.0.0"))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Cx,
    ) -> Result<ListToolsResult, ErrorData> {
        let names = [
            "echo",
            "slow",
            "ask",
            "sample",
            "folders",
            "fail",
            "log",
            "touch",
            "announce",
            "wait",
            "cancelled",
        ];
        let object = |properties: Value| json!({ "type": "object", "properties": properties });
        let number = json!({ "type": "number" });
        let add = json!({
            "name": "add", "inputSchema": object(json!({ "a": number, "b": number })),
            "outputSchema": object(json!({ "sum": number })),
        });
        let plain = |name| match name {
            "echo" => json!({ "name": name, "inputSchema": object(json!({ "text": { "type": "string" } })) }),
            _ => json!({ "name": name, "inputSchema": object(json!({})) }),
        };
        let tools: Vec<Value> = [add].into_iter().chain(names.map(plain)).collect();
        Ok(ListToolsResult { tools: read(tools.into()), ..Default::default() })
    }

    async fn call_tool(&self, request: CallToolRequestParams, cx: Cx) -> Result<CallToolResponse, ErrorData> {
        let input = Value::Object(request.arguments.clone().unwrap_or_default());
        if let Some(question) = question(&request.name) {
            return self.ask(question, &request, &cx).await;
        }
        let done = match request.name.as_ref() {
            "add" => {
                let number = |name: &str| input[name].as_f64().unwrap_or(f64::NAN);
                CallToolResult::structured(json!({ "sum": number("a") + number("b") }))
            }
            "echo" => text(input["text"].as_str().unwrap_or_default()),
            "slow" => {
                for step in [1, 2, 3] {
                    self.progress(&cx, step, 3, &format!("step {step}")).await?;
                }
                text("done")
            }
            "fail" => CallToolResult::error(vec![ContentBlock::text("this tool always fails")]),
            "log" => {
                let message = json!({ "level": "info", "logger": "tour", "data": "a line" });
                let sent = cx.peer.notify_logging_message(read(message)).await;
                sent.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
                text("logged")
            }
            "touch" => {
                self.tell(Change::Status, &cx).await?;
                text("touched")
            }
            "announce" => {
                self.tell(Change::Tools, &cx).await?;
                text("announced")
            }
            "wait" => {
                self.progress(&cx, 1, 1, "waiting").await?;
                cx.ct.cancelled().await;
                self.cancelled.add_permits(1);
                text("nobody reads this")
            }
            "cancelled" => {
                self.cancelled.acquire().await.expect("the semaphore is never closed").forget();
                text("a call was cancelled")
            }
            other => return Err(ErrorData::invalid_params(format!("there is no tool {other}"), None)),
        };
        Ok(done.into())
    }

    async fn set_level(&self, _: SetLevelRequestParams, _: Cx) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn subscribe(&self, _: SubscribeRequestParams, _: Cx) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(&self, _: UnsubscribeRequestParams, _: Cx) -> Result<(), ErrorData> {
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.changes.subscribe();
        let accepted = context.accepted().clone();
        loop {
            let change = tokio::select! {
                () = context.cancelled() => return Ok(()),
                change = changes.recv() => change,
            };
            // The client may have disconnected.
            let _ = match change {
                Ok(Change::Status) if accepted.resource_subscriptions.is_some() => {
                    context.sink().notify_resource_updated("memo://status").await
                }
                Ok(Change::Tools) if accepted.tools_list_changed == Some(true) => {
                    context.sink().notify_tool_list_changed().await
                }
                _ => Ok(()),
            };
        }
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: Cx,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let contents = match request.uri.strip_prefix("memo://") {
            Some("status") => "ok".to_owned(),
            Some(id) if !id.contains('/') => format!("memo {id}"),
            _ => return Err(ErrorData::resource_not_found(format!("there is no {}", request.uri), None)),
        };
        Ok(ReadResourceResult::new(vec![ResourceContents::text(contents, request.uri)]).into())
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: Cx,
    ) -> Result<GetPromptResponse, ErrorData> {
        let arguments = json!(request.arguments);
        let text = format!("Review this {} code.", arguments["language"].as_str().unwrap_or_default());
        let message = json!({ "role": "user", "content": { "type": "text", "text": text } });
        Ok(read::<GetPromptResult>(json!({ "messages": [message], "resultType": "complete" })).into())
    }

    async fn complete(&self, request: CompleteRequestParams, _: Cx) -> Result<CompleteResult, ErrorData> {
        let typed = &request.argument.value;
        let values: Vec<&str> =
            ["rust", "ruby", "go"].into_iter().filter(|name| name.starts_with(typed)).collect();
        Ok(read(json!({ "completion": { "values": values }, "resultType": "complete" })))
    }
}
