//! Resources, resource templates and prompts of upstream servers, fetched on request.

use std::collections::BTreeMap;
use std::sync::Arc;

use linchpin::client::{Item, Pages};
use linchpin::encode::{Encode, to_value};
use linchpin::model::{CompleteParams, CompleteResult, CompletionReference};
use linchpin::{CallError, Client, ClientError, ErrorObject, Revision, code};
use serde_json::Value;

use super::calling_client::attach_client;
use super::handle::CallOptions;
use crate::actor::Actor;
use crate::agent::Agent;
use crate::connection::{backoff, is_retryable};
use crate::error::{Error, Result};
use crate::hub::calls::Calls;
use crate::hub::upstream::connect::request_error;
use crate::id::ServerId;
use crate::policy::PolicyReason;
use crate::secrets::redact::Redactor;
use crate::server::Server;
use crate::store::{Batch, DocumentKey, DocumentKind, StoreChange};
use crate::text::shorten;

const MAX_URI_LEN: usize = 8_192;

/// Which list of a server is read: resources, resource templates or prompts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FeatureList {
    /// List of resources.
    Resources,
    /// List of resource templates.
    Templates,
    /// List of prompts.
    Prompts,
}

impl FeatureList {
    /// Returns whether an agent may use any item of the list.
    fn is_any_selected(self, agent: &Agent, server: ServerId) -> bool {
        match self {
            FeatureList::Resources | FeatureList::Templates => agent.may_read_any(server),
            FeatureList::Prompts => agent.may_render_any(server),
        }
    }

    /// Returns whether an agent may use an item of the list.
    fn is_selected(self, agent: &Agent, server: ServerId, item: &Value) -> bool {
        let text = |member: &str| item[member].as_str().unwrap_or_default();
        match self {
            FeatureList::Resources => agent.may_read(server, text("uri")),
            FeatureList::Templates => agent.may_read_template(server, text("uriTemplate")),
            FeatureList::Prompts => agent.may_render(server, text("name")),
        }
    }

    fn name(self) -> &'static str {
        match self {
            FeatureList::Resources => "resources",
            FeatureList::Templates => "resource templates",
            FeatureList::Prompts => "prompts",
        }
    }
}

/// Terms for reading a resource or rendering a prompt: noun and field in errors, actions in the audit.
pub(super) struct ReadOperation {
    pub(super) name: &'static str,
    pub(super) field: &'static str,
    pub(super) read_action: &'static str,
    pub(super) denied_action: &'static str,
    pub(super) is_selected: fn(&Agent, ServerId, &str) -> bool,
}

const RESOURCE: ReadOperation = ReadOperation {
    name: "resource",
    field: "uri",
    read_action: "resource.read",
    denied_action: "resource.rejected",
    is_selected: Agent::may_read,
};
const PROMPT: ReadOperation = ReadOperation {
    name: "prompt",
    field: "prompt",
    read_action: "prompt.rendered",
    denied_action: "prompt.rejected",
    is_selected: Agent::may_render,
};

impl Calls {
    /// Lists resources, templates or prompts of a server.
    pub async fn list_feature(&self, actor: Actor, server: &str, feature: FeatureList) -> Result<Vec<Value>> {
        let entry = |server: &str| {
            self.context.entry(actor, "call.rate_limited").with("server", server).with("list", feature.name())
        };
        self.consume_rate_limit(actor, || entry(server)).await?;
        let server = self.registry.visible_server(actor, server).await?;
        let agent = self.reading_agent(actor).await?;
        if agent.as_ref().is_some_and(|(agent, _)| !feature.is_any_selected(agent, server.id)) {
            return Ok(Vec::new());
        }
        let capabilities = self.upstream.connection_for(actor, &server).await?.capabilities().clone();
        let is_offered = match feature {
            FeatureList::Resources | FeatureList::Templates => capabilities.resources.is_some(),
            FeatureList::Prompts => capabilities.prompts.is_some(),
        };
        if !is_offered {
            return Ok(Vec::new());
        }
        self.consume_server_rate_limit(actor, &server, || entry(&server.id.to_string())).await?;
        let send = |client: Client, _: &Arc<Redactor>| async move {
            match feature {
                FeatureList::Resources => list_all(client.resources()).await,
                FeatureList::Templates => list_all(client.resource_templates()).await,
                FeatureList::Prompts => list_all(client.prompts()).await,
            }
        };
        let (listed, redactor) = self
            .send_read(actor, &server, "the resources or prompts of the server cannot be listed", send)
            .await?;
        let is_selected = |item: &Value| {
            agent.as_ref().is_none_or(|(agent, _)| feature.is_selected(agent, server.id, item))
        };
        Ok(listed.into_iter().filter(is_selected).map(|item| redactor.redact(item)).collect())
    }

    /// Reads a resource of a server and records it in the audit.
    pub async fn read_resource(&self, actor: Actor, server: &str, uri: &str) -> Result<Value> {
        self.read_resource_for(actor, server, uri, &CallOptions::default()).await
    }

    /// Like [`Self::read_resource`], for a client that replies to server requests while the resource is read.
    pub async fn read_resource_for(
        &self,
        actor: Actor,
        server: &str,
        uri: &str,
        options: &CallOptions,
    ) -> Result<Value> {
        check_uri(uri)?;
        let server = self.admit(actor, server, &RESOURCE, uri).await?;
        let send = |client: Client, redactor: &Arc<Redactor>| {
            attach_client(client.read(uri), options, redactor).into_future()
        };
        let read = self.send_read(actor, &server, "failed to read the resource", send).await;
        let (contents, redactor) = read.map_err(|error| match error.rejection() {
            Some(rejection) if is_unknown_resource(rejection) => {
                // The message of the server's error, in which secrets are redacted.
                Error::new(crate::ErrorKind::NotFound, "not_found", error.message())
                    .with_rejection(Some(rejection.clone()))
            }
            _ => error,
        })?;
        self.bounded(&redactor, to_value(&contents, Revision::LATEST))
    }

    /// Renders a prompt of a server and records it in the audit.
    pub async fn get_prompt(
        &self,
        actor: Actor,
        server: &str,
        name: &str,
        arguments: BTreeMap<String, String>,
    ) -> Result<Value> {
        self.get_prompt_for(actor, server, (name, arguments), &CallOptions::default()).await
    }

    /// Like [`Self::get_prompt`], for a client that replies to server requests while the prompt is rendered.
    pub async fn get_prompt_for(
        &self,
        actor: Actor,
        server: &str,
        (name, arguments): (&str, BTreeMap<String, String>),
        options: &CallOptions,
    ) -> Result<Value> {
        let server = self.admit(actor, server, &PROMPT, name).await?;
        let send = |client: Client, redactor: &Arc<Redactor>| {
            attach_client(client.prompt(name, arguments.clone()), options, redactor).into_future()
        };
        let (prompt, redactor) = self.send_read(actor, &server, "failed to get the prompt", send).await?;
        self.bounded(&redactor, to_value(&prompt, Revision::LATEST))
    }

    /// Completes an argument of a prompt or a variable of a resource template of a server. Completions are not recorded
    /// in the audit.
    pub async fn complete(
        &self,
        actor: Actor,
        server: &str,
        params: &CompleteParams,
    ) -> Result<CompleteResult> {
        let entry = |server: &str| {
            self.context.entry(actor, "call.rate_limited").with("server", server).with("list", "completions")
        };
        self.consume_rate_limit(actor, || entry(server)).await?;
        let server = self.registry.visible_server(actor, server).await?;
        let agent = self.reading_agent(actor).await?;
        let is_selected = |agent: &Agent| match &params.reference {
            CompletionReference::Prompt { name, .. } => agent.may_render(server.id, name),
            CompletionReference::Resource { uri } => agent.may_read_template(server.id, uri),
        };
        if agent.as_ref().is_some_and(|(agent, _)| !is_selected(agent)) {
            return Err(Error::not_found("prompt or resource template", "of this completion"));
        }
        self.consume_server_rate_limit(actor, &server, || entry(&server.id.to_string())).await?;
        let send = |client: Client, _: &Arc<Redactor>| client.complete_with(params).into_future();
        let (result, redactor) =
            self.send_read(actor, &server, "failed to complete the argument", send).await?;
        let result = redactor.redact(to_value(&result, Revision::LATEST));
        serde_json::from_value(result).map_err(|error| {
            let text = format!("the completions of the server cannot be redacted: {error}");
            Error::new(crate::ErrorKind::Internal, "completion_unreadable", text)
        })
    }

    /// Returns the calling agent with its version. `None` for a user, who may use all resources and prompts.
    pub(super) async fn reading_agent(&self, actor: Actor) -> Result<Option<(Agent, u64)>> {
        let Some(id) = actor.agent() else { return Ok(None) };
        self.context.require::<Agent>(actor.tenant(), DocumentKind::Agent, id).await.map(Some)
    }

    /// Admits a read: checks the rate limits and the grants of the caller, and writes the audit entry before the read.
    pub(super) async fn admit(
        &self,
        actor: Actor,
        server: &str,
        read: &ReadOperation,
        name: &str,
    ) -> Result<Server> {
        let entry = |action, server: &str| {
            self.context.entry(actor, action).with("server", server).with(read.field, name)
        };
        self.consume_rate_limit(actor, || entry("call.rate_limited", server)).await?;
        let server = self.registry.visible_server(actor, server).await?;
        let id = server.id.to_string();
        let agent = self.reading_agent(actor).await?;
        if agent.as_ref().is_some_and(|(agent, _)| !(read.is_selected)(agent, server.id, name)) {
            let rejected = entry(read.denied_action, &id).with("reason", PolicyReason::NotSelected.code());
            self.audit.audit_rejection_later(actor.tenant(), rejected);
            return Err(Error::not_found(read.name, shorten(name)));
        }
        self.consume_server_rate_limit(actor, &server, || entry("call.rate_limited", &id)).await?;
        let mut batch = Batch::new().audit(entry(read.read_action, &id));
        if self.context.store.shared().is_some() {
            // Fail if another hub has changed one of these documents.
            let agent =
                agent.map(|(agent, version)| (DocumentKey::new(DocumentKind::Agent, agent.id), version));
            let by = std::iter::once((DocumentKey::new(DocumentKind::Server, server.id), server.version))
                .chain(agent);
            batch = batch.change(StoreChange::RequireVersions(by.collect()));
        }
        self.context.store.commit(actor.tenant(), batch).await?;
        Ok(server)
    }

    /// Sends a read-only request, such as `resources/read`, to a server. Retries transient failures after a backoff, up
    /// to the configured attempts of the server.
    async fn send_read<T, F: Future<Output = Result<T, ClientError>>>(
        &self,
        actor: Actor,
        server: &Server,
        failure: &str,
        send: impl Fn(Client, &Arc<Redactor>) -> F,
    ) -> Result<(T, Arc<Redactor>)> {
        let (mut attempts, mut was_closed) = (0, false);
        loop {
            let client = self.upstream.connection_for(actor, server).await?;
            let error = match send(Client::clone(&client), &client.redactor).await {
                Ok(response) => return Ok((response, client.redactor.clone())),
                Err(error) => error,
            };
            // The connection had closed before anything was sent: use a new one at once, the first time.
            let is_closed = matches!(error, ClientError::Call(CallError::Closed(_)));
            if is_closed && !std::mem::replace(&mut was_closed, true) {
                continue;
            }
            if attempts >= server.settings.retry_attempts || !is_retryable(&error) {
                self.upstream.failed_request(&client, &error).await;
                return Err(request_error(server, &client.redactor, failure, &error));
            }
            tokio::time::sleep(backoff(attempts)).await;
            attempts += 1;
        }
    }

    /// Redacts secrets in a resource or prompt of a server and enforces the size limit.
    fn bounded(&self, redactor: &Redactor, result: Value) -> Result<Value> {
        let result = redactor.redact(result);
        let (size, limit) = (result.to_string().len(), self.context.limits().result_bytes);
        if size > limit {
            let text = format!("the result has {size} bytes; the limit is {limit} bytes");
            return Err(Error::new(crate::ErrorKind::LimitExceeded, "result_too_large", text));
        }
        Ok(result)
    }
}

/// Returns whether a server rejected a read because it does not have the resource. The code differs between revisions.
fn is_unknown_resource(error: &ErrorObject) -> bool {
    let names_uri = error.data.as_ref().is_some_and(|data| data.get("uri").is_some());
    error.code == code::RESOURCE_NOT_FOUND || (error.code == code::INVALID_PARAMS && names_uri)
}

/// Checks the length of the URI of a resource.
pub(super) fn check_uri(uri: &str) -> Result<()> {
    if uri.is_empty() || uri.len() > MAX_URI_LEN {
        return Err(Error::invalid("uri", format!("must be 1 to {MAX_URI_LEN} bytes")));
    }
    Ok(())
}

async fn list_all<T: Item + Encode>(pages: Pages<T>) -> Result<Vec<Value>, ClientError> {
    match pages.all().await {
        Ok(items) => Ok(items.iter().map(|item| to_value(item, Revision::LATEST)).collect()),
        // A server with resources need not support templates.
        Err(ClientError::Call(CallError::Rejected(error))) if error.code == code::METHOD_NOT_FOUND => {
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}
