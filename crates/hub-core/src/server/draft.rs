//! Server draft: a remote server as sent by REST or a form, read field by field.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use linchpin::Revision;
use linchpin::egress::Target;
use linchpin::server::web::decode_form;
use serde_json::Value;

use super::{Authentication, ConnectionLimits, CredentialMode, RemoteEndpoint, ServerSettings, Transport};
use crate::error::{Error, Result};
use crate::object_reader::ObjectReader;
use crate::secrets::scan::is_secret_name;
use crate::text::{check_visible_line, shorten};
use crate::tool::names::Slug;

const MAX_SERVER_NAME_LEN: usize = 100;
const MAX_DESCRIPTION_LEN: usize = 2_000;
const MAX_URL_LEN: usize = 2_048;
const MAX_HEADERS: usize = 32;
const MAX_HEADER_VALUE_LEN: usize = 4_096;
/// Allowed range of the request timeout of a server, in milliseconds.
pub const TIMEOUT_RANGE_MS: RangeInclusive<u64> = 1_000..=300_000;
const DEFAULT_TIMEOUT_MS: u64 = 30_000;
const MAX_RETRIES: u64 = 5;
const DEFAULT_RETRIES: u8 = 3;
pub(crate) const RATE_RANGE: RangeInclusive<u64> = 1..=100_000;
pub(crate) const CONCURRENCY_RANGE: RangeInclusive<u64> = 1..=1_000;
/// Advice of errors about secrets in the wrong field.
const MSG_STORE_SECRET: &str = "and store the secret with `linchpin server credential set`";

/// Remote server to be added through the API, with a name and a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerDraft {
    /// Slug that the user requested for the server, if any. Default: derived from the name.
    pub slug: Option<Slug>,
    /// Settings of the new server.
    pub settings: ServerSettings,
    /// Transport to the server: Streamable HTTP or HTTP+SSE, with its URL.
    pub transport: Transport,
}

impl ServerSettings {
    /// Returns the default settings of a server with this name.
    pub fn with_name(name: impl Into<String>) -> Self {
        ServerSettings {
            name: name.into(),
            description: None,
            authentication: Authentication::None,
            credentials: CredentialMode::Shared,
            timeout: Duration::from_millis(DEFAULT_TIMEOUT_MS),
            retry_attempts: DEFAULT_RETRIES,
            enabled: true,
            keep_history: true,
            calls_per_minute: None,
            max_concurrent_calls: None,
            revision: None,
            limits: ConnectionLimits::default(),
        }
    }

    pub(super) fn read(form: &mut ObjectReader) -> Result<Self> {
        let name = form
            .string("name", MAX_SERVER_NAME_LEN)?
            .ok_or_else(|| Error::invalid("name", "must be set: the display name of the server"))?;
        if name.trim().is_empty() {
            return Err(Error::invalid("name", format!("must have 1 to {MAX_SERVER_NAME_LEN} characters")));
        }
        let description = form.string("description", MAX_DESCRIPTION_LEN)?;
        check_visible_line("name", &name)?;
        for line in description.iter().flat_map(|text| text.split('\n')) {
            check_visible_line("description", line)?;
        }
        let defaults = ServerSettings::with_name(name);
        let timeout = form.number("timeout_ms", TIMEOUT_RANGE_MS)?.unwrap_or(DEFAULT_TIMEOUT_MS);
        let retries = form.number("retry_attempts", 0..=MAX_RETRIES)?;
        let limits = ConnectionLimits::read(form)?;
        limits.check(Duration::from_millis(timeout))?;
        let (rate, concurrency) = (
            form.number("calls_per_minute", RATE_RANGE)?,
            form.number("max_concurrent_calls", CONCURRENCY_RANGE)?,
        );
        Ok(ServerSettings {
            description,
            authentication: authentication(form)?,
            credentials: match form.string("credentials", 20)?.as_deref() {
                None | Some("shared") => CredentialMode::Shared,
                Some("per-agent") => CredentialMode::PerAgent,
                Some(_) => return Err(Error::invalid("credentials", "must be `shared` or `per-agent`")),
            },
            timeout: Duration::from_millis(timeout),
            retry_attempts: retries.and_then(|count| u8::try_from(count).ok()).unwrap_or(DEFAULT_RETRIES),
            enabled: form.boolean("enabled")?.unwrap_or(true),
            keep_history: form.boolean("keep_history")?.unwrap_or(true),
            calls_per_minute: rate.and_then(|rate| u32::try_from(rate).ok()),
            max_concurrent_calls: concurrency.and_then(|max| u32::try_from(max).ok()),
            revision: revision(form)?,
            limits,
            ..defaults
        })
    }
}

fn revision(form: &mut ObjectReader) -> Result<Option<Revision>> {
    let Some(name) = form.string("revision", 64)? else { return Ok(None) };
    let revision = shorten(&name).parse::<Revision>();
    revision.map(Some).map_err(|unknown| Error::invalid("revision", unknown.to_string()))
}

fn authentication(form: &mut ObjectReader) -> Result<Authentication> {
    let Some(mut inner) = form.object("authentication")? else { return Ok(Authentication::None) };
    let kind = inner.string("type", 20)?.unwrap_or_default();
    let read = match &*kind {
        "none" => Authentication::None,
        "bearer" => Authentication::Bearer,
        "api-key" => {
            let header = inner.string("header", 64)?.unwrap_or_else(|| "x-api-key".to_owned());
            check_header_name(&header).map_err(|text| Error::invalid("authentication.header", text))?;
            Authentication::ApiKey { header }
        }
        "basic" => {
            let missing = || Error::invalid("authentication.username", "a user name is required for `basic`");
            Authentication::Basic { username: inner.string("username", 256)?.ok_or_else(missing)? }
        }
        "oauth" => Authentication::OAuth {
            client_id: inner.string("client_id", 1_024)?.filter(|id| !id.is_empty()),
            scopes: inner.strings("scopes", 64, 256)?,
            issuer: inner.string("issuer", MAX_URL_LEN)?.filter(|issuer| !issuer.is_empty()),
        },
        _ => {
            let text = "must be `none`, `bearer`, `api-key`, `basic` or `oauth`";
            return Err(Error::invalid("authentication.type", text));
        }
    };
    inner.finish()?;
    Ok(read)
}

impl ServerDraft {
    /// Reads a server draft from a JSON object. Fails with advice if a field is unknown or belongs elsewhere.
    pub fn read(value: Value) -> Result<Self> {
        let mut form = ObjectReader::new(value)?;
        let text = "stdio servers come only from the configuration file: run `linchpin server add NAME -- command \
                    arguments` on the machine of the hub";
        form.reject_fields(&["command", "args", "env", "inherit", "secrets", "directory", "cwd"], text)?;
        let slug = form.string("slug", 64)?.map(|slug| Slug::new(&slug)).transpose()?;
        let settings = ServerSettings::read(&mut form)?;
        let transport = Transport::read_remote(&mut form)?;
        form.finish()?;
        Ok(ServerDraft { slug, settings, transport })
    }
}

impl Transport {
    /// Reads the URL, transport kind and headers of a remote server from the members of an API or configuration object.
    pub(super) fn read_remote(form: &mut ObjectReader) -> Result<Self> {
        let kind = form.string("transport", 20)?;
        let remote = RemoteEndpoint::read(form)?;
        match kind.as_deref() {
            None | Some("http") => Ok(Transport::Http(remote)),
            Some("sse") => Ok(Transport::Sse(remote)),
            Some(_) => {
                let text = "must be `http` or `sse`; stdio servers come only from the configuration file";
                Err(Error::invalid("transport", text))
            }
        }
    }
}

impl RemoteEndpoint {
    fn read(form: &mut ObjectReader) -> Result<Self> {
        let missing = || Error::invalid("url", "a remote server requires a URL");
        let url = form.string("url", MAX_URL_LEN)?.ok_or_else(missing)?;
        let target = Target::configured(&url).map_err(|error| Error::invalid("url", error.to_string()))?;
        if !target.is_secure() {
            let text = "plain `http` is not encrypted and is allowed only for addresses of this machine: use `https`";
            return Err(Error::invalid("url", text));
        }
        check_query(&url)?;
        let mut headers = BTreeMap::new();
        for (name, value) in form.object("headers")?.map(|inner| inner.members).unwrap_or_default() {
            let field = format!("headers.{}", shorten(&name));
            check_header_name(&name).map_err(|text| Error::invalid(&*field, text))?;
            if is_secret_name(&name) {
                let text = format!(
                    "the name indicates a secret, and headers are stored and shown in clear text: use \
                     `authentication` of type `api-key` with this `header`, {MSG_STORE_SECRET}"
                );
                return Err(Error::invalid(&*field, text));
            }
            let is_valid = |text: &&str| {
                text.len() <= MAX_HEADER_VALUE_LEN
                    && text.bytes().all(|byte| matches!(byte, b'\t' | 0x20..=0x7e))
            };
            let text = value.as_str().filter(is_valid).ok_or_else(|| {
                Error::invalid(
                    &*field,
                    format!("must be printable ASCII of at most {MAX_HEADER_VALUE_LEN} characters"),
                )
            })?;
            headers.insert(name.to_ascii_lowercase(), text.to_owned());
        }
        if headers.len() > MAX_HEADERS {
            return Err(Error::invalid("headers", format!("must have at most {MAX_HEADERS} members")));
        }
        Ok(RemoteEndpoint { url, headers })
    }
}

/// Rejects secrets in the query: they would be visible to every reader of the URL.
fn check_query(url: &str) -> Result<()> {
    let query = url.split('#').next().and_then(|url| url.split_once('?')).map_or("", |(_, query)| query);
    let mut names = query.split(';').flat_map(decode_form).map(|(name, _)| name);
    let Some(name) = names.find(|name| is_secret_name(name)) else { return Ok(()) };
    let text = format!(
        "`{}` in its query indicates a secret, and URLs are stored and shown in clear text: use \
         `authentication`, {MSG_STORE_SECRET}",
        shorten(&name)
    );
    Err(Error::invalid("url", text))
}

/// Rejects headers that carry credentials, which belong to `authentication`, and headers that the hub sets itself.
fn check_header_name(name: &str) -> Result<(), String> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || name.len() > 64 || !name.bytes().all(is_token) {
        return Err("must be a header name of 1 to 64 characters without spaces, such as `x-team`".to_owned());
    }
    let lower = name.to_ascii_lowercase();
    match &*lower {
        "authorization" | "cookie" | "proxy-authorization" => {
            Err("credentials must not be set as headers: use `authentication`".to_owned())
        }
        "host" | "connection" | "content-length" | "content-type" | "transfer-encoding" | "accept" | "te"
        | "upgrade" => Err("the hub sets this header itself: remove it".to_owned()),
        _ if lower.starts_with("mcp-") => {
            Err("headers that begin with `mcp-` are set by the protocol: remove this one".to_owned())
        }
        _ => Ok(()),
    }
}
