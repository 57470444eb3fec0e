//! Resources, resource templates and prompts of upstream servers, fetched on request.

use std::collections::BTreeMap;
use std::sync::Arc;

use linchpin::client::{Item, Pages};
use linchpin::encode::{Encode, to_value};
use linchpin::{CallError, Client, ClientError, Revision, code};
use serde_json::Value;

use super::Hub;
use super::connect::failed;
use crate::actor::Scope;
use crate::agent::Agent;
use crate::connection::{backoff, may_pass};
use crate::error::{Error, Result};
use crate::policy::Reason;
use crate::secrets::redact::Hidden;
use crate::server::Server;
use crate::store::{Batch, Change, Key, Kind};
use crate::text::shortened;

const LONGEST_URI: usize = 8_192;

/// Kind of list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// Resources.
    Resources,
    /// Resource templates.
    Templates,
    /// Prompts.
    Prompts,
}

impl Offer {
    fn name(self) -> &'static str {
        match self {
            Offer::Resources => "resources",
            Offer::Templates => "resource templates",
            Offer::Prompts => "prompts",
        }
    }
}

/// Names of a read operation in errors and in the audit.
struct Reading {
    name: &'static str,
    field: &'static str,
    done: &'static str,
    refused: &'static str,
}

const RESOURCE: Reading =
    Reading { name: "resource", field: "uri", done: "resource.read", refused: "resource.refused" };
const PROMPT: Reading =
    Reading { name: "prompt", field: "prompt", done: "prompt.got", refused: "prompt.refused" };

impl Hub {
    /// Lists resources, templates or prompts of a server.
    pub async fn offers(&self, scope: Scope, server: &str, what: Offer) -> Result<Vec<Value>> {
        let entry =
            |server: &str| self.entry(scope, "call.limited").with("server", server).with("list", what.name());
        self.take_turn(scope, || entry(server)).await?;
        let server = self.visible_server(scope, server).await?;
        if !self.has_offers(scope, &server).await?.0 {
            return Ok(Vec::new());
        }
        let can = self.client(scope, &server).await?.capabilities().clone();
        let is_offered = match what {
            Offer::Resources | Offer::Templates => can.resources.is_some(),
            Offer::Prompts => can.prompts.is_some(),
        };
        if !is_offered {
            return Ok(Vec::new());
        }
        self.take_turn_at(scope, &server, || entry(&server.id.to_string())).await?;
        let ask = |client: Client| async move {
            match what {
                Offer::Resources => all(client.resources()).await,
                Offer::Templates => all(client.resource_templates()).await,
                Offer::Prompts => all(client.prompts()).await,
            }
        };
        let (listed, hidden) = self.ask_server(scope, &server, "its list cannot be read", ask).await?;
        Ok(listed.into_iter().map(|item| hidden.hide(item)).collect())
    }

    /// Reads a resource of a server and records it in the audit.
    pub async fn read_resource(&self, scope: Scope, server: &str, uri: &str) -> Result<Value> {
        if uri.is_empty() || uri.len() > LONGEST_URI {
            return Err(Error::invalid("uri", format!("must be 1 to {LONGEST_URI} bytes")));
        }
        let server = self.admit(scope, server, &RESOURCE, uri).await?;
        let ask = |client: Client| client.read(uri).into_future();
        let (read, hidden) = self.ask_server(scope, &server, "the resource cannot be read", ask).await?;
        self.passed_on(&hidden, to_value(&read, Revision::LATEST))
    }

    /// Renders a prompt of a server and records it in the audit.
    pub async fn get_prompt(
        &self,
        scope: Scope,
        server: &str,
        name: &str,
        arguments: BTreeMap<String, String>,
    ) -> Result<Value> {
        let server = self.admit(scope, server, &PROMPT, name).await?;
        let ask = |client: Client| client.prompt(name, arguments.clone()).into_future();
        let (got, hidden) = self.ask_server(scope, &server, "the prompt cannot be rendered", ask).await?;
        self.passed_on(&hidden, to_value(&got, Revision::LATEST))
    }

    /// Reports whether the caller may use resources and prompts of a server: an agent only if the whole server was
    /// granted, not some of its tools. Also returns the version of the agent that the decision is based on.
    async fn has_offers(&self, scope: Scope, server: &Server) -> Result<(bool, Option<(Key, u64)>)> {
        let Some(id) = scope.agent() else { return Ok((true, None)) };
        let (agent, version) = self.need::<Agent>(scope.tenant(), Kind::Agent, id).await?;
        Ok((agent.has_whole(server.id), Some((Key::new(Kind::Agent, id), version))))
    }

    /// Admits a read: checks the rate limits and the grants of the caller, and writes the audit entry before the read.
    async fn admit(&self, scope: Scope, server: &str, what: &Reading, name: &str) -> Result<Server> {
        let entry =
            |action, server: &str| self.entry(scope, action).with("server", server).with(what.field, name);
        self.take_turn(scope, || entry("call.limited", server)).await?;
        let server = self.visible_server(scope, server).await?;
        let id = server.id.to_string();
        let (is_granted, agent) = self.has_offers(scope, &server).await?;
        if !is_granted {
            let refused = entry(what.refused, &id).with("reason", Reason::NotSelected.code());
            self.audit_refusal_later(scope.tenant(), refused);
            return Err(Error::not_found(what.name, shortened(name)));
        }
        self.take_turn_at(scope, &server, || entry("call.limited", &id)).await?;
        let mut batch = Batch::new().audit(entry(what.done, &id));
        if self.store.shared().is_some() {
            // Fail if another hub has changed one of these documents.
            let by = std::iter::once((Key::new(Kind::Server, server.id), server.version)).chain(agent);
            batch = batch.change(Change::Same(by.collect()));
        }
        self.store.commit(scope.tenant(), batch).await?;
        Ok(server)
    }

    /// Sends a read-only request. Retries transient failures after a backoff, up to the configured attempts of the
    /// server.
    async fn ask_server<T, F: Future<Output = Result<T, ClientError>>>(
        &self,
        scope: Scope,
        server: &Server,
        trouble: &str,
        ask: impl Fn(Client) -> F,
    ) -> Result<(T, Arc<Hidden>)> {
        let (mut tries, mut was_closed) = (0, false);
        loop {
            let client = self.client(scope, server).await?;
            let error = match ask(Client::clone(&client)).await {
                Ok(answer) => return Ok((answer, client.hidden.clone())),
                Err(error) => error,
            };
            // The connection had closed before anything was sent: use a new one at once, the first time.
            let is_closed = matches!(error, ClientError::Call(CallError::Closed(_)));
            if is_closed && !std::mem::replace(&mut was_closed, true) {
                continue;
            }
            if tries >= server.settings.retry_attempts || !may_pass(&error) {
                self.failed_request(&client, &error).await;
                return Err(failed(server, &client.hidden, trouble, &error));
            }
            tokio::time::sleep(backoff(tries)).await;
            tries += 1;
        }
    }

    /// Redacts a result and enforces the size limit.
    fn passed_on(&self, hidden: &Hidden, result: Value) -> Result<Value> {
        let result = hidden.hide(result);
        let (size, limit) = (result.to_string().len(), self.options.result_limit);
        if size > limit {
            let text = format!("the result has {size} bytes; the limit is {limit} bytes");
            return Err(Error::new(crate::Kind::Exhausted, "result_too_large", text));
        }
        Ok(result)
    }
}

async fn all<T: Item + Encode>(pages: Pages<T>) -> Result<Vec<Value>, ClientError> {
    match pages.all().await {
        Ok(items) => Ok(items.iter().map(|item| to_value(item, Revision::LATEST)).collect()),
        // A server with resources need not support templates.
        Err(ClientError::Call(CallError::Rejected(error))) if error.code == code::METHOD_NOT_FOUND => {
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}
