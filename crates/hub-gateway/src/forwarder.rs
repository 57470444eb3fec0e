//! Forwarder of one caller: passes the requests of its clients to the hub, which makes all access decisions.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use linchpin::model::{
    CallToolResult, CompleteParams, CompleteResult, CompletionReference, GetPromptResult, ReadResourceResult,
};
use linchpin::server::Forward;
use linchpin::{Context, Error};
use linchpin_hub_core::Actor;
use linchpin_hub_core::hub::Hub;
use serde_json::value::RawValue;

use crate::SurfaceKey;
use crate::client_link::call_options;
use crate::definitions::Names;
use crate::errors::{prompt_error, resource_error, unknown_prompt, unreadable};
use crate::subscriptions::{SubscriptionKey, Subscriptions};

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Forwarder of the requests of one caller.
pub(crate) struct Forwarder {
    pub(crate) hub: Arc<Hub>,
    pub(crate) actor: Actor,
    /// Slug of the only server that clients reach, under the names of that server.
    pub(crate) server: Option<String>,
    /// URL of the hub for users, where they approve calls.
    pub(crate) hub_url: Option<String>,
    names: RwLock<Arc<Names>>,
    /// URIs of the resources that clients of the surface are subscribed to.
    subscribed: Mutex<BTreeSet<String>>,
    /// Subscriptions of all surfaces.
    subscriptions: Subscriptions,
}

impl Forwarder {
    pub(crate) fn new(
        hub: Arc<Hub>,
        SurfaceKey { actor, server, .. }: &SurfaceKey,
        hub_url: Option<String>,
        subscriptions: Subscriptions,
    ) -> Arc<Self> {
        let (names, subscribed) = (RwLock::default(), Mutex::default());
        let (actor, server) = (*actor, server.clone());
        Arc::new(Forwarder { hub, actor, server, hub_url, names, subscribed, subscriptions })
    }

    pub(crate) fn names(&self) -> Arc<Names> {
        self.names.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_names(&self, names: Names) {
        *self.names.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(names);
    }

    /// Returns the URIs that clients are subscribed to, each with the subscription that it needs.
    pub(crate) fn subscribed_uris(&self) -> Vec<(String, SubscriptionKey)> {
        let names = self.names();
        let with_key = |uri: &String| Some((uri.clone(), self.subscription_key(&names, uri)?));
        self.lock_subscribed().iter().filter_map(with_key).collect()
    }

    fn subscription_key(&self, names: &Names, public_uri: &str) -> Option<SubscriptionKey> {
        let (server, uri) = names.uris.resolve(public_uri)?;
        Some(SubscriptionKey { actor: self.actor, server: server.to_owned(), uri: uri.to_owned() })
    }

    fn lock_subscribed(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.subscribed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the slug of a server for its requests to the client, unless the client reaches only that server.
    pub(crate) fn source<'a>(&self, server: &'a str) -> Option<&'a str> {
        self.server.is_none().then_some(server)
    }

    /// Returns the subscriptions that the clients need.
    pub(crate) fn subscriptions(&self) -> impl Iterator<Item = SubscriptionKey> + use<> {
        self.subscribed_uris().into_iter().map(|(_, key)| key)
    }
}

/// Forwarder as the receiver of the requests of a server.
pub(crate) struct Receiver(pub(crate) Arc<Forwarder>);

impl Forward for Receiver {
    fn call_tool(
        &self,
        name: &str,
        arguments: Box<RawValue>,
        cx: Context,
    ) -> BoxFuture<Result<CallToolResult, Error>> {
        Box::pin(self.0.clone().call_tool(name.to_owned(), arguments, cx))
    }

    fn read_resource(&self, uri: &str, cx: Context) -> BoxFuture<Result<ReadResourceResult, Error>> {
        let (forwarder, uri) = (self.0.clone(), uri.to_owned());
        Box::pin(async move { forwarder.read_resource(&uri, &cx).await })
    }

    fn get_prompt(
        &self,
        name: &str,
        arguments: BTreeMap<String, String>,
        cx: Context,
    ) -> BoxFuture<Result<GetPromptResult, Error>> {
        let (forwarder, name) = (self.0.clone(), name.to_owned());
        Box::pin(async move { forwarder.get_prompt(&name, arguments, &cx).await })
    }

    fn complete(&self, params: CompleteParams, cx: Context) -> BoxFuture<Result<CompleteResult, Error>> {
        let forwarder = self.0.clone();
        Box::pin(async move { forwarder.complete(params, &cx).await })
    }

    fn subscribe(&self, uris: Vec<String>) -> BoxFuture<()> {
        let forwarder = self.0.clone();
        Box::pin(async move {
            let names = forwarder.names();
            let keys = uris.iter().filter_map(|uri| forwarder.subscription_key(&names, uri)).collect();
            forwarder.lock_subscribed().extend(uris); // `subscriptions_changed` comes later
            forwarder.subscriptions.wait_until_settled(keys).await;
        })
    }

    fn subscriptions_changed(&self, uris: BTreeSet<String>) {
        *self.0.lock_subscribed() = uris;
        self.0.subscriptions.changed.notify_one();
    }
}

impl Forwarder {
    async fn read_resource(&self, uri: &str, cx: &Context) -> Result<ReadResourceResult, Error> {
        let names = self.names();
        let (server, upstream_uri) = names.uris.resolve(uri).ok_or_else(|| Error::resource_not_found(uri))?;
        let (calls, (options, invalid_reply)) = (self.hub.calls(), call_options(cx, self.source(server)));
        let read = calls.read_resource_for(self.actor, server, upstream_uri, &options).await;
        if let Some(error) = invalid_reply.take() {
            return Err(error);
        }
        let mut result = read.map_err(|error| resource_error(&error, uri, cx))?;
        for contents in result["contents"].as_array_mut().into_iter().flatten() {
            if contents["uri"] == upstream_uri {
                contents["uri"] = uri.into(); // the client recognizes the resource by the URI that it requested
            } else {
                names.uris.rewrite(server, contents);
            }
        }
        serde_json::from_value(result).map_err(|error| unreadable("resource", &error))
    }

    async fn get_prompt(
        &self,
        name: &str,
        arguments: BTreeMap<String, String>,
        cx: &Context,
    ) -> Result<GetPromptResult, Error> {
        let names = self.names();
        let (server, prompt) = names.prompt(name).ok_or_else(|| unknown_prompt(name))?;
        let (calls, (options, invalid_reply)) = (self.hub.calls(), call_options(cx, self.source(server)));
        let rendered = calls.get_prompt_for(self.actor, server, (prompt, arguments), &options).await;
        if let Some(error) = invalid_reply.take() {
            return Err(error);
        }
        let mut result = rendered.map_err(|error| prompt_error(&error, name, cx))?;
        names.uris.rewrite(server, &mut result["messages"]);
        serde_json::from_value(result).map_err(|error| unreadable("prompt", &error))
    }

    async fn complete(&self, params: CompleteParams, cx: &Context) -> Result<CompleteResult, Error> {
        let names = self.names();
        let (server, reference) = match &params.reference {
            CompletionReference::Prompt { name, title } => {
                let (server, prompt) = names.prompt(name).ok_or_else(|| unknown_prompt(name))?;
                (server, CompletionReference::Prompt { name: prompt.to_owned(), title: title.clone() })
            }
            CompletionReference::Resource { uri } => {
                let unknown =
                    || Error::invalid_params("/ref/uri", format!("Unknown resource template: {uri}"));
                let (server, template) = names.uris.resolve_template(uri).ok_or_else(unknown)?;
                (server, CompletionReference::Resource { uri: template.to_owned() })
            }
        };
        let params = CompleteParams { reference, meta: None, ..params };
        let completed = self.hub.calls().complete(self.actor, server, &params).await;
        completed.map_err(|error| prompt_error(&error, "of the completion", cx))
    }
}
