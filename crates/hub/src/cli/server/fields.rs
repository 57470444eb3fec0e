//! What can be said of a server when it is added and later.

use clap::Args;
use linchpin::Revision;
use serde_json::{Map, Value, json};

use crate::api::object;
use crate::cli::duration::parse_timeout;
use crate::cli::{parse_header, parse_revision};

#[derive(Args)]
pub(crate) struct Fields {
    /// What it is for
    #[arg(long)]
    description: Option<String>,
    /// Request timeout, from 1s to 300s, such as 45s or 1500ms; a plain number is in seconds. Default: 30s
    #[arg(long, value_name = "TIME", value_parser = parse_timeout)]
    timeout: Option<u64>,
    /// How often connecting and listing is tried again, 0 to 5; 3 when nothing is said
    #[arg(long, value_name = "COUNT")]
    retries: Option<u32>,
    /// How many calls a minute it takes
    #[arg(long, value_name = "COUNT")]
    calls_per_minute: Option<u32>,
    /// How many of its calls may be under way at once
    #[arg(long, value_name = "COUNT")]
    calls_at_once: Option<u32>,
    /// Pin the protocol revision of its connections. Default: the newest that both sides support
    #[arg(long, value_parser = parse_revision)]
    revision: Option<Revision>,

    /// A server on the network
    #[arg(long, help_heading = "At a URL")]
    pub(super) url: Option<String>,
    /// http, or sse for the first revision of the protocol
    #[arg(long, help_heading = "At a URL")]
    transport: Option<String>,
    /// A header for every request, nothing secret; may be given again
    #[arg(long = "header", help_heading = "At a URL", value_name = "NAME: VALUE", value_parser = parse_header)]
    headers: Vec<(String, String)>,
    /// How requests say who asks: none, bearer, api-key, basic or oauth; the secret is entered with `credential set`,
    /// and with oauth somebody signs in with `sign-in`
    #[arg(long, help_heading = "At a URL", value_name = "KIND")]
    pub(super) auth: Option<String>,
    /// The header of an api-key; x-api-key when left out
    #[arg(long, help_heading = "At a URL", value_name = "NAME", requires = "auth")]
    auth_header: Option<String>,
    /// The user name for basic
    #[arg(long, help_heading = "At a URL", value_name = "NAME", requires = "auth")]
    username: Option<String>,
    /// The id of the hub at the authorization server, for oauth where it is registered there already
    #[arg(long, help_heading = "At a URL", value_name = "ID", requires = "auth")]
    client_id: Option<String>,
    /// What to ask for with oauth; may be given again
    #[arg(long = "scope", help_heading = "At a URL", value_name = "SCOPE", requires = "auth")]
    scopes: Vec<String>,
}

impl Fields {
    /// What is said, in the words of the operator's file and of the API, which are the same.
    pub(super) fn said(&self) -> Map<String, Value> {
        let authentication = self.auth.as_ref().map(|kind| {
            object([
                ("type", Some(json!(kind))),
                ("header", self.auth_header.as_ref().map(|name| json!(name))),
                ("username", self.username.as_ref().map(|name| json!(name))),
                ("client_id", self.client_id.as_ref().map(|id| json!(id))),
                ("scopes", (!self.scopes.is_empty()).then(|| json!(self.scopes))),
            ])
        });
        let text = |text: &Option<String>| text.as_ref().map(|text| json!(text));
        members([
            ("description", text(&self.description)),
            ("url", text(&self.url)),
            ("transport", text(&self.transport)),
            ("headers", pairs(&self.headers)),
            ("authentication", authentication),
            ("revision", self.revision.map(|revision| json!(revision.as_str()))),
            ("timeout_ms", self.timeout.map(|time| json!(time))),
            ("retry_attempts", self.retries.map(|count| json!(count))),
            ("calls_per_minute", self.calls_per_minute.map(|count| json!(count))),
            ("calls_at_once", self.calls_at_once.map(|count| json!(count))),
        ])
    }
}

/// Those that have a value.
pub(super) fn members<const N: usize>(all: [(&str, Option<Value>); N]) -> Map<String, Value> {
    all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// Pairs as an object, if there are any.
pub(super) fn pairs(pairs: &[(String, String)]) -> Option<Value> {
    let object: Map<_, _> = pairs.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    (!object.is_empty()).then_some(Value::Object(object))
}
