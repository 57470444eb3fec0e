//! Tool calls of MCP clients: started in the hub, followed until they have finished, and continued after a retry of the
//! client.

use std::sync::Arc;

use linchpin::model::CallToolResult;
use linchpin::{Context, Era, Error};
use linchpin_hub_core::Actor;
use linchpin_hub_core::digest::Digest;
use linchpin_hub_core::hub::{CallArguments, CallRequest, CallView, ClientCall, Hub, Participation, ToolRef};
use linchpin_hub_core::store::CallStatus;
use linchpin_hub_core::trace_context::TraceContext;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::client_link::call_options;
use crate::errors::{rejection_error, tool_error, unreadable};
use crate::forwarder::Forwarder;

/// Number of hexadecimal digits of the digest that names the session of a client.
const SESSION_DIGEST_LEN: usize = 32;

/// Guard of a call whose request is open. If it is dropped before the outcome was returned, the client is gone.
struct CallGuard {
    hub: Arc<Hub>,
    actor: Actor,
    /// `None` for a request that continues a call that another one started, and after the outcome was returned.
    participation: Option<Participation>,
}

impl CallGuard {
    /// Ends the guard, because the outcome is returned to the client.
    fn returned(mut self) {
        self.participation = None;
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        if let Some(participation) = self.participation.take() {
            self.hub.calls().leave(self.actor, participation);
        }
    }
}

impl Forwarder {
    /// Calls a tool and returns its result.
    pub(crate) async fn call_tool(
        self: Arc<Self>,
        name: String,
        arguments: Box<RawValue>,
        cx: Context,
    ) -> Result<CallToolResult, Error> {
        let value: Value = serde_json::from_str(arguments.get())
            .map_err(|error| Error::invalid_params("/arguments", error.to_string()))?;
        let (options, invalid_reply) =
            call_options(&cx, slug_in(&name).and_then(|server| self.source(server)));
        let request = CallRequest {
            session: session_name(&cx),
            trace: trace_of(&cx),
            ..CallRequest::new(self.tool(&name), CallArguments::from_received(&arguments, value))
        };
        let mut started = None;
        let start = async {
            let call = self.hub.calls().start_for_client(self.actor, request, options).await;
            let call = call.map_err(|error| tool_error(&error, &name))?;
            let id = call.id();
            started = Some(call);
            Ok::<_, Error>(id)
        };
        // A client without a session may send the request again with its replies, to another hub or after a restart: the
        // call is found by its id.
        let is_stateless = cx.revision().era() == Era::Stateless;
        let id = if is_stateless { cx.step("call", || start).await? } else { start.await? };
        let guard = CallGuard {
            hub: self.hub.clone(),
            actor: self.actor,
            participation: started.as_ref().map(ClientCall::participation),
        };
        let outcome = match started {
            // The handler is not polled while the client replies to a server request of the call.
            Some(call) if is_stateless => call.outcome_in_task(self.hub.calls()).await,
            Some(call) => call.outcome().await,
            None => self.hub.calls().call(self.actor, id).await,
        };
        let mut view = outcome.map_err(|error| tool_error(&error, &name))?;
        let waits = !view.status.is_final();
        if waits {
            let waiting = Box::pin(self.wait_for_outcome(view, &cx)).await;
            view = waiting.map_err(|error| tool_error(&error, &name))?;
        }
        if !view.status.is_final() {
            let text =
                "the hub is shutting down while the call waits for approval: send the same request again";
            return Err(Error::tool(text));
        }
        if waits || view.approval.is_some() {
            let forgotten = self.hub.calls().end_waiting(self.actor.tenant(), id).await;
            forgotten.map_err(|error| tool_error(&error, &name))?;
        }
        guard.returned();
        if let Some(error) = invalid_reply.take() {
            return Err(error);
        }
        if let Some(rejection) = &view.rejection {
            return Err(rejection_error(rejection, &cx));
        }
        self.to_result(view)
    }

    fn tool(&self, name: &str) -> ToolRef {
        match &self.server {
            Some(server) => ToolRef::Upstream { server: server.clone(), tool: name.to_owned() },
            None => ToolRef::Qualified(name.to_owned()),
        }
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
        if let Some((content, warning)) = result["content"].as_array_mut().zip(warning) {
            content.push(json!({ "type": "text", "text": format!("Note of the hub: {warning}") }));
        }
        serde_json::from_value(result).map_err(|error| unreadable("result of the tool", &error))
    }
}

/// Returns the slug of the server in a qualified tool name.
fn slug_in(name: &str) -> Option<&str> {
    name.strip_prefix("mcp_")?.split_once("__").map(|(slug, _)| slug)
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
