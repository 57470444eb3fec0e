//! What servers offer beside tools: resources and prompts, asked for when they are wanted.

use std::collections::BTreeMap;

use linchpin::client::{Item, Pages};
use linchpin::encode::{Encode, to_value};
use linchpin::{CallError, ClientError, Revision, code};
use serde_json::Value;

use super::Hub;
use super::connecting::failed;
use crate::connection::Reached;
use crate::error::{Error, Result};
use crate::hidden::Hidden;
use crate::scope::Scope;
use crate::server::Server;
use crate::store::Batch;

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

impl Hub {
    /// What a server offers, as it says it.
    pub async fn offers(&self, scope: Scope, server: &str, what: Offer) -> Result<Vec<Value>> {
        let (server, client) = self.open_for(scope, server).await?;
        let can = client.capabilities();
        let is_offered = match what {
            Offer::Resources | Offer::Templates => can.resources.is_some(),
            Offer::Prompts => can.prompts.is_some(),
        };
        if !is_offered {
            return Ok(Vec::new());
        }
        let listed = match what {
            Offer::Resources => all(client.resources()).await,
            Offer::Templates => all(client.resource_templates()).await,
            Offer::Prompts => all(client.prompts()).await,
        };
        let listed =
            listed.map_err(|error| failed(&server, &client.hidden, "its list cannot be read", &error))?;
        Ok(listed.into_iter().map(|item| client.hidden.hide(item)).collect())
    }

    /// Reads a resource of a server. The audit says who did.
    pub async fn read_resource(&self, scope: Scope, server: &str, uri: &str) -> Result<Value> {
        if uri.is_empty() || uri.len() > LONGEST_URI {
            return Err(Error::invalid("uri", format!("1 to {LONGEST_URI} characters are a URI")));
        }
        let (server, client) = self.open_for(scope, server).await?;
        let entry = self.entry(scope, "resource.read").with("server", server.id.to_string()).with("uri", uri);
        self.store.commit(scope.tenant(), Batch::new().audit(entry)).await?;
        let read = client
            .read(uri)
            .await
            .map_err(|error| failed(&server, &client.hidden, "the resource cannot be read", &error))?;
        self.passed_on(&client.hidden, to_value(&read, Revision::LATEST))
    }

    /// Fills in a prompt of a server. The audit says who did.
    pub async fn get_prompt(
        &self,
        scope: Scope,
        server: &str,
        name: &str,
        arguments: BTreeMap<String, String>,
    ) -> Result<Value> {
        let (server, client) = self.open_for(scope, server).await?;
        let entry =
            self.entry(scope, "prompt.got").with("server", server.id.to_string()).with("prompt", name);
        self.store.commit(scope.tenant(), Batch::new().audit(entry)).await?;
        let got = client.prompt(name, arguments).await;
        let got =
            got.map_err(|error| failed(&server, &client.hidden, "the prompt cannot be filled in", &error))?;
        self.passed_on(&client.hidden, to_value(&got, Revision::LATEST))
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

    async fn open_for(&self, scope: Scope, server: &str) -> Result<(Server, Reached)> {
        let server = self.find_server(scope.tenant(), server).await?;
        self.may_see(scope, &server).await?;
        let client = self.client(scope, &server).await?;
        Ok((server, client))
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
