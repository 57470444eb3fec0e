//! Command-line options that `linchpin server add` and `linchpin server update` share.

use clap::Args;
use linchpin::Revision;
use linchpin_hub_core::server::{
    MAX_CALL_RANGE_MS, MAX_RESPONSE_RANGE, OPEN_TIMEOUT_RANGE_MS, READ_TIMEOUT_RANGE_MS, RECONNECTS_RANGE,
    SYNC_INTERVAL_RANGE_MS,
};
use serde_json::{Map, Value, json};

use crate::api_client::json_object;
use crate::cli::duration::{parse_millis, parse_timeout};
use crate::cli::{parse_header, parse_revision};

#[derive(Args)]
pub(crate) struct ServerFieldArgs {
    /// Description of the server
    #[arg(long)]
    description: Option<String>,
    /// Request timeout, 1s–300s, for example 45s or 1500ms; a plain number is in seconds. Default: 30s
    #[arg(long, value_name = "TIME", value_parser = parse_timeout)]
    timeout: Option<u64>,
    /// Number of retries of connecting, listing and reading, 0–5; tool calls are never retried. Default: 3
    #[arg(long, value_name = "COUNT")]
    retries: Option<u32>,
    /// Rate limit of the server in calls per minute. Default: none
    #[arg(long, value_name = "COUNT")]
    calls_per_minute: Option<u32>,
    /// Concurrency limit of the server: maximum number of running calls. Default: none
    #[arg(long, value_name = "COUNT")]
    max_concurrent_calls: Option<u32>,
    /// Use only this protocol revision. Default: the newest that both sides support
    #[arg(long, value_parser = parse_revision)]
    revision: Option<Revision>,

    /// Maximum duration of a call, 1s–24h, up to which progress, tasks and open server requests extend the timeout.
    /// Default: 10m
    #[arg(long, value_name = "TIME", value_parser = |text: &str| parse_millis(text, &MAX_CALL_RANGE_MS))]
    max_call: Option<u64>,
    /// Timeout for starting or reaching the server, 1s–10m. Default: 60s
    #[arg(long, value_name = "TIME", value_parser = |text: &str| parse_millis(text, &OPEN_TIMEOUT_RANGE_MS))]
    open_timeout: Option<u64>,
    /// Maximum size of a message of the server in bytes, 65536–268435456. Default: 8388608
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(MAX_RESPONSE_RANGE))]
    max_response: Option<u64>,
    /// Interval of periodic syncs of the server, 1m–168h. Default: that of the hub
    #[arg(long, value_name = "TIME", value_parser = |text: &str| parse_millis(text, &SYNC_INTERVAL_RANGE_MS))]
    sync_interval: Option<u64>,

    /// URL of the MCP endpoint of the server
    #[arg(long, help_heading = "Remote server")]
    pub(super) url: Option<String>,
    /// Transport: http, or sse for servers of the first revision. Default: http
    #[arg(long, help_heading = "Remote server")]
    transport: Option<String>,
    /// Idle time after which a stream or response counts as lost, 1s–1h. Default: 300s
    #[arg(long, help_heading = "Remote server", value_name = "TIME", value_parser = |text: &str| parse_millis(text, &READ_TIMEOUT_RANGE_MS))]
    read_timeout: Option<u64>,
    /// Maximum number of consecutive reconnects of a lost stream, 0–1000. Default: 20
    #[arg(long, help_heading = "Remote server", value_name = "COUNT", value_parser = clap::value_parser!(u64).range(RECONNECTS_RANGE))]
    max_reconnects: Option<u64>,
    /// Header that the hub sends with every request to the server, not for secrets; repeatable. An update replaces all
    /// headers
    #[arg(long = "header", help_heading = "Remote server", value_name = "NAME: VALUE", value_parser = parse_header)]
    headers: Vec<(String, String)>,
    /// Authentication of the hub at the server: none, bearer, api-key, basic or oauth. Store the secret with
    /// `server credential set`; for oauth run `server sign-in`
    #[arg(long, help_heading = "Remote server", value_name = "KIND")]
    pub(super) auth: Option<String>,
    /// Header that carries the API key, with --auth api-key. Default: x-api-key
    #[arg(long, help_heading = "Remote server", value_name = "NAME", requires = "auth")]
    auth_header: Option<String>,
    /// User name, with --auth basic
    #[arg(long, help_heading = "Remote server", value_name = "NAME", requires = "auth")]
    username: Option<String>,
    /// OAuth client id, if the hub is preregistered at the authorization server
    #[arg(long, help_heading = "Remote server", value_name = "ID", requires = "auth")]
    client_id: Option<String>,
    /// OAuth scope to request; repeatable
    #[arg(long = "scope", help_heading = "Remote server", value_name = "SCOPE", requires = "auth")]
    scopes: Vec<String>,
}

impl ServerFieldArgs {
    /// Returns the server fields given as options of `linchpin server add` or `server update` as JSON. The
    /// configuration file and the API use the same names.
    pub(super) fn to_json(&self) -> Map<String, Value> {
        let authentication = self.auth.as_ref().map(|kind| {
            json_object([
                ("type", Some(json!(kind))),
                ("header", self.auth_header.as_ref().map(|name| json!(name))),
                ("username", self.username.as_ref().map(|name| json!(name))),
                ("client_id", self.client_id.as_ref().map(|id| json!(id))),
                ("scopes", (!self.scopes.is_empty()).then(|| json!(self.scopes))),
            ])
        });
        let text = |text: &Option<String>| text.as_ref().map(|text| json!(text));
        present_members([
            ("description", text(&self.description)),
            ("url", text(&self.url)),
            ("transport", text(&self.transport)),
            ("headers", pairs_to_object(&self.headers)),
            ("authentication", authentication),
            ("revision", self.revision.map(|revision| json!(revision.as_str()))),
            ("timeout_ms", self.timeout.map(|time| json!(time))),
            ("max_call_ms", self.max_call.map(|time| json!(time))),
            ("open_timeout_ms", self.open_timeout.map(|time| json!(time))),
            ("read_timeout_ms", self.read_timeout.map(|time| json!(time))),
            ("sync_interval_ms", self.sync_interval.map(|time| json!(time))),
            ("max_response_bytes", self.max_response.map(|bytes| json!(bytes))),
            ("max_reconnects", self.max_reconnects.map(|count| json!(count))),
            ("retry_attempts", self.retries.map(|count| json!(count))),
            ("calls_per_minute", self.calls_per_minute.map(|count| json!(count))),
            ("max_concurrent_calls", self.max_concurrent_calls.map(|count| json!(count))),
        ])
    }
}

/// Converts the pairs that have a value into a JSON object.
pub(super) fn present_members<const N: usize>(all: [(&str, Option<Value>); N]) -> Map<String, Value> {
    all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// Converts pairs into an object; `None` if there are no pairs.
pub(super) fn pairs_to_object(pairs: &[(String, String)]) -> Option<Value> {
    let object: Map<_, _> = pairs.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    (!object.is_empty()).then_some(Value::Object(object))
}
