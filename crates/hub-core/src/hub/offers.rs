//! What servers offer beside tools: resources and prompts, asked for when they are wanted.

use std::collections::BTreeMap;
use std::sync::Arc;

use linchpin::client::{Item, Pages};
use linchpin::encode::{Encode, to_value};
use linchpin::{CallError, Client, ClientError, Revision, code};
use serde_json::Value;

use super::Hub;
use super::connecting::failed;
use crate::agent::Agent;
use crate::connection::{backoff, may_pass};
use crate::error::{Error, Result};
use crate::hidden::Hidden;
use crate::policy::Reason;
use crate::scope::Scope;
use crate::server::Server;
use crate::store::{Batch, Change, Key, Kind};
use crate::text::shortened;

const LONGEST_URI: usize = 8_192;

/// A list that servers have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// Resources.
    Resources,
    /// Patterns of resources.
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

/// Something of a server that is read by its name, as errors and the audit call it.
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
    /// What a server offers, as it says it.
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

    /// Reads a resource of a server. The audit says who did.
    pub async fn read_resource(&self, scope: Scope, server: &str, uri: &str) -> Result<Value> {
        if uri.is_empty() || uri.len() > LONGEST_URI {
            return Err(Error::invalid("uri", format!("1 to {LONGEST_URI} characters are a URI")));
        }
        let server = self.admit(scope, server, &RESOURCE, uri).await?;
        let ask = |client: Client| client.read(uri).into_future();
        let (read, hidden) = self.ask_server(scope, &server, "the resource cannot be read", ask).await?;
        self.passed_on(&hidden, to_value(&read, Revision::LATEST))
    }

    /// Fills in a prompt of a server. The audit says who did.
    pub async fn get_prompt(
        &self,
        scope: Scope,
        server: &str,
        name: &str,
        arguments: BTreeMap<String, String>,
    ) -> Result<Value> {
        let server = self.admit(scope, server, &PROMPT, name).await?;
        let ask = |client: Client| client.prompt(name, arguments.clone()).into_future();
        let (got, hidden) = self.ask_server(scope, &server, "the prompt cannot be filled in", ask).await?;
        self.passed_on(&hidden, to_value(&got, Revision::LATEST))
    }

    /// Whether the caller may have resources and prompts of a server: an agent only if the whole server was granted, not
    /// some of its tools. With the version of the agent by which that was decided.
    async fn has_offers(&self, scope: Scope, server: &Server) -> Result<(bool, Option<(Key, u64)>)> {
        let Some(id) = scope.agent() else { return Ok((true, None)) };
        let (agent, version) = self.need::<Agent>(scope.tenant(), Kind::Agent, id).await?;
        Ok((agent.has_whole(server.id), Some((Key::new(Kind::Agent, id), version))))
    }

    /// Admits a read: rate limits, what the caller was granted, and the audit entry before it is done.
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
            // What another hub has changed counts at once.
            let by = std::iter::once((Key::new(Kind::Server, server.id), server.version)).chain(agent);
            batch = batch.change(Change::Same(by.collect()));
        }
        self.store.commit(scope.tenant(), batch).await?;
        Ok(server)
    }

    /// Sends a request that only reads. If it fails in a way that may pass, it is repeated after a pause, as often as
    /// the settings of the server say.
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
            // The connection had ended before anything was sent: the first time, a new one is used at once.
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

    /// Nothing secret of ours comes back, and nothing without end.
    fn passed_on(&self, hidden: &Hidden, result: Value) -> Result<Value> {
        let result = hidden.hide(result);
        let (size, limit) = (result.to_string().len(), self.options.result_limit);
        if size > limit {
            let text = format!("it has {size} bytes, and {limit} are passed on at most");
            return Err(Error::new(crate::Kind::Exhausted, "result_too_large", text));
        }
        Ok(result)
    }
}

async fn all<T: Item + Encode>(pages: Pages<T>) -> Result<Vec<Value>, ClientError> {
    match pages.all().await {
        Ok(items) => Ok(items.iter().map(|item| to_value(item, Revision::LATEST)).collect()),
        // Who has resources need not have patterns of them.
        Err(ClientError::Call(CallError::Rejected(error))) if error.code == code::METHOD_NOT_FOUND => {
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}
