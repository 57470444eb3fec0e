//! Tool calls of MCP clients: started in the hub, followed until they have finished, and continued after a retry of the
//! client.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use linchpin::model::CallToolResult;
use linchpin::{Context, Era, Error};
use linchpin_hub_core::Actor;
use linchpin_hub_core::digest::Digest;
use linchpin_hub_core::hub::{CallArguments, CallOptions, CallRequest, CallView, Hub, ToolRef};
use linchpin_hub_core::id::CallId;
use linchpin_hub_core::store::CallStatus;
use linchpin_hub_core::trace_context::TraceContext;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::client_link::{ClientLink, replies};
use crate::errors::{tool_error, unreadable};
use crate::forwarder::Forwarder;

/// Number of hexadecimal digits of the digest that names the session of a client.
const SESSION_DIGEST_LEN: usize = 32;

/// Guard of a call whose request is open. If it is dropped before the outcome was returned, the client is gone.
struct CallGuard {
    hub: Arc<Hub>,
    actor: Actor,
    call: CallId,
    is_returned: AtomicBool,
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        if !*self.is_returned.get_mut() {
            self.hub.calls().leave(self.actor, self.call);
        }
    }
}

impl Forwarder {
    /// Calls a tool and returns its result.
    pub(crate) async fn call_tool(
        &self,
        name: String,
        arguments: &RawValue,
        cx: Context,
    ) -> Result<CallToolResult, Error> {
        let value: Value = serde_json::from_str(arguments.get())
            .map_err(|error| Error::invalid_params("/arguments", error.to_string()))?;
        let replies = replies(&cx);
        // A client without a session replies with a retry, which may reach another hub: it finds the call by its id.
        let is_retried = cx.revision().era() == Era::Stateless && !replies.is_empty();
        let request = CallRequest {
            session: session_name(&cx),
            trace: trace_of(&cx),
            ..CallRequest::new(
                ToolRef::Qualified(name.clone()),
                CallArguments::from_received(arguments, value),
            )
        };
        let options =
            CallOptions { replies, client: Some(Arc::new(ClientLink(cx.clone()))), ..CallOptions::default() };
        let mut started = None;
        let start = async {
            let call = self.hub.calls().start_for_client(self.actor, request, options).await;
            let call = call.map_err(|error| tool_error(&error, &name))?;
            let id = call.id();
            started = Some(call);
            Ok::<_, Error>(id)
        };
        let id = if is_retried { cx.step("call", || start).await? } else { start.await? };
        let guard = CallGuard {
            hub: self.hub.clone(),
            actor: self.actor,
            call: id,
            is_returned: AtomicBool::new(false),
        };
        let outcome = match started {
            Some(call) => call.outcome().await,
            None => self.hub.calls().call(self.actor, id).await,
        };
        let mut view = outcome.map_err(|error| tool_error(&error, &name))?;
        let waits = !view.status.is_final();
        if waits {
            view = self.wait_for_outcome(view, &cx).await.map_err(|error| tool_error(&error, &name))?;
        }
        if waits || view.approval.is_some() {
            let ended = self.hub.calls().end_waiting(self.actor.tenant(), id).await;
            ended.map_err(|error| tool_error(&error, &name))?;
        }
        guard.is_returned.store(true, Ordering::Relaxed);
        self.to_result(view)
    }

    /// Converts a call into its result. Calls without a result of the tool have an error text for the model.
    fn to_result(&self, view: CallView) -> Result<CallToolResult, Error> {
        let CallView { status, result, error, server, warning, .. } = view;
        let Some(mut result) = result else {
            let error = error.unwrap_or_else(|| match status {
                CallStatus::Success => {
                    "the call succeeded, but its result is not stored: the server keeps no history".to_owned()
                }
                status => format!("the call has the status {}", status.name()),
            });
            return Err(Error::tool(error));
        };
        if let Some(slug) = server {
            self.names().uris.rewrite(&slug, &mut result);
        }
        if let Some(warning) = warning {
            tracing::debug!(call.id = %view.id, warning, "call of a gateway client finished with a warning");
        }
        serde_json::from_value(result).map_err(|error| unreadable("result of the tool", &error))
    }
}

/// Returns the name of the client's session for approval rules: a digest, since the session id is a credential.
fn session_name(cx: &Context) -> Option<String> {
    let http = cx.http()?;
    let id = http.headers.get("mcp-session-id")?;
    let digest = Digest::of("linchpin client session").part(id.as_bytes()).finish().to_string();
    Some(format!("mcp-{}", &digest[..SESSION_DIGEST_LEN]))
}

/// Returns the trace that a request belongs to, from its metadata.
fn trace_of(cx: &Context) -> Option<TraceContext> {
    let text = |name: &str| cx.meta().get(name).and_then(Value::as_str);
    let trace = TraceContext::parse(text("traceparent")?)?;
    Some(match text("tracestate") {
        Some(state) => trace.with_state(state),
        None => trace,
    })
}
