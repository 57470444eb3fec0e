//! Server draft: a remote server as sent by REST or a form, read field by field.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use linchpin::Revision;
use linchpin::egress::Target;
use linchpin::server::web::decode_form;
use serde_json::Value;

use super::{Authentication, CredentialMode, Remote, Settings, Transport};
use crate::error::{Error, Result};
use crate::object_reader::Form;
use crate::secrets::redact::looks_secret;
use crate::text::{check_visible_line, shortened};
use crate::tool::names::Slug;

const LONGEST_NAME: usize = 100;
const LONGEST_DESCRIPTION: usize = 2_000;
const LONGEST_URL: usize = 2_048;
const MOST_HEADERS: usize = 32;
const LONGEST_HEADER: usize = 4_096;
/// Limits of the request timeout of a server, in milliseconds.
pub const TIMEOUTS: RangeInclusive<u64> = 1_000..=300_000;
const DEFAULT_TIMEOUT: u64 = 30_000;
const MOST_RETRIES: u64 = 5;
const DEFAULT_RETRIES: u8 = 3;
pub(crate) const RATES: RangeInclusive<u64> = 1..=100_000;
pub(crate) const AT_ONCE: RangeInclusive<u64> = 1..=1_000;
/// Advice of errors about secrets in the wrong field.
const ENTER: &str = "and store the secret with `linchpin server credential set`";

/// Remote server to be added, with a name and a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// Requested slug. Default: derived from the name.
    pub slug: Option<Slug>,
    /// Settings of the server.
    pub settings: Settings,
    /// Transport: Streamable HTTP or HTTP+SSE.
    pub transport: Transport,
}

impl Settings {
    /// Returns the default settings of a server with this name.
    pub fn named(name: impl Into<String>) -> Self {
        Settings {
            name: name.into(),
            description: None,
            authentication: Authentication::None,
            credentials: CredentialMode::Shared,
            timeout: Duration::from_millis(DEFAULT_TIMEOUT),
            retry_attempts: DEFAULT_RETRIES,
            enabled: true,
            keep_history: true,
            calls_per_minute: None,
            calls_at_once: None,
            revision: None,
        }
    }

    pub(super) fn read(form: &mut Form) -> Result<Self> {
        let name =
            form.text("name", LONGEST_NAME)?.ok_or_else(|| Error::invalid("name", "a name is required"))?;
        if name.trim().is_empty() {
            return Err(Error::invalid("name", format!("must have 1 to {LONGEST_NAME} characters")));
        }
        let description = form.text("description", LONGEST_DESCRIPTION)?;
        check_visible_line("name", &name)?;
        for line in description.iter().flat_map(|text| text.split('\n')) {
            check_visible_line("description", line)?;
        }
        let usual = Settings::named(name);
        let timeout = form.number("timeout_ms", TIMEOUTS)?.unwrap_or(DEFAULT_TIMEOUT);
        let retries = form.number("retry_attempts", 0..=MOST_RETRIES)?;
        let (rate, at_once) =
            (form.number("calls_per_minute", RATES)?, form.number("calls_at_once", AT_ONCE)?);
        Ok(Settings {
            description,
            authentication: authentication(form)?,
            credentials: match form.text("credentials", 20)?.as_deref() {
                None | Some("shared") => CredentialMode::Shared,
                Some("per-agent") => CredentialMode::PerAgent,
                Some(_) => return Err(Error::invalid("credentials", "must be `shared` or `per-agent`")),
            },
            timeout: Duration::from_millis(timeout),
            retry_attempts: retries.and_then(|count| u8::try_from(count).ok()).unwrap_or(DEFAULT_RETRIES),
            enabled: form.flag("enabled")?.unwrap_or(true),
            keep_history: form.flag("keep_history")?.unwrap_or(true),
            calls_per_minute: rate.and_then(|rate| u32::try_from(rate).ok()),
            calls_at_once: at_once.and_then(|most| u32::try_from(most).ok()),
            revision: revision(form)?,
            ..usual
        })
    }
}

fn revision(form: &mut Form) -> Result<Option<Revision>> {
    let Some(name) = form.text("revision", 64)? else { return Ok(None) };
    let revision = shortened(&name).parse::<Revision>();
    revision.map(Some).map_err(|unknown| Error::invalid("revision", unknown.to_string()))
}

fn authentication(form: &mut Form) -> Result<Authentication> {
    let Some(mut inner) = form.object("authentication")? else { return Ok(Authentication::None) };
    let kind = inner.text("type", 20)?.unwrap_or_default();
    let read = match &*kind {
        "none" => Authentication::None,
        "bearer" => Authentication::Bearer,
        "api-key" => {
            let header = inner.text("header", 64)?.unwrap_or_else(|| "x-api-key".to_owned());
            check_header_name(&header).map_err(|text| Error::invalid("authentication.header", text))?;
            Authentication::ApiKey { header }
        }
        "basic" => {
            let missing = || Error::invalid("authentication.username", "a user name is required for `basic`");
            Authentication::Basic { username: inner.text("username", 256)?.ok_or_else(missing)? }
        }
        "oauth" => Authentication::OAuth {
            client_id: inner.text("client_id", 1_024)?.filter(|id| !id.is_empty()),
            scopes: inner.texts("scopes", 64, 256)?,
            issuer: inner.text("issuer", LONGEST_URL)?.filter(|issuer| !issuer.is_empty()),
        },
        _ => {
            let text = "must be `none`, `bearer`, `api-key`, `basic` or `oauth`";
            return Err(Error::invalid("authentication.type", text));
        }
    };
    inner.end()?;
    Ok(read)
}

impl Draft {
    /// Reads a draft. Fails with advice if a field is unknown or belongs elsewhere.
    pub fn read(value: Value) -> Result<Self> {
        let mut form = Form::new(value)?;
        let text = "stdio servers come only from the configuration file: run `linchpin server add NAME -- command \
                    arguments` on the machine of the hub";
        form.refuse(&["command", "args", "env", "inherit", "secrets", "directory", "cwd"], text)?;
        let slug = form.text("slug", 64)?.map(|slug| Slug::new(&slug)).transpose()?;
        let settings = Settings::read(&mut form)?;
        let transport = Transport::remote(&mut form)?;
        form.end()?;
        Ok(Draft { slug, settings, transport })
    }
}

impl Transport {
    /// Reads the transport of a remote server.
    pub(super) fn remote(form: &mut Form) -> Result<Self> {
        let kind = form.text("transport", 20)?;
        let remote = Remote::read(form)?;
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

impl Remote {
    fn read(form: &mut Form) -> Result<Self> {
        let missing = || Error::invalid("url", "a remote server requires a URL");
        let url = form.text("url", LONGEST_URL)?.ok_or_else(missing)?;
        let target = Target::typed(&url).map_err(|error| Error::invalid("url", error.to_string()))?;
        if !target.is_secure() {
            let text = "plain `http` is not encrypted and is allowed only for addresses of this machine: use `https`";
            return Err(Error::invalid("url", text));
        }
        check_query(&url)?;
        let mut headers = BTreeMap::new();
        for (name, value) in form.object("headers")?.map(|inner| inner.members).unwrap_or_default() {
            let field = format!("headers.{}", shortened(&name));
            check_header_name(&name).map_err(|text| Error::invalid(&*field, text))?;
            if looks_secret(&name) {
                let text = format!(
                    "the name indicates a secret, and headers are stored and shown in clear text: use \
                     `authentication` of type `api-key` with this `header`, {ENTER}"
                );
                return Err(Error::invalid(&*field, text));
            }
            let fits = |text: &&str| {
                text.len() <= LONGEST_HEADER && text.bytes().all(|byte| matches!(byte, b'\t' | 0x20..=0x7e))
            };
            let text = value.as_str().filter(fits).ok_or_else(|| {
                Error::invalid(
                    &*field,
                    format!("must be printable ASCII of at most {LONGEST_HEADER} characters"),
                )
            })?;
            headers.insert(name.to_ascii_lowercase(), text.to_owned());
        }
        if headers.len() > MOST_HEADERS {
            return Err(Error::invalid("headers", format!("must have at most {MOST_HEADERS} members")));
        }
        Ok(Remote { url, headers })
    }
}

/// Rejects secrets in the query: they would be visible to every reader of the URL.
fn check_query(url: &str) -> Result<()> {
    let query = url.split('#').next().and_then(|url| url.split_once('?')).map_or("", |(_, query)| query);
    let mut names = query.split(';').flat_map(decode_form).map(|(name, _)| name);
    let Some(name) = names.find(|name| looks_secret(name)) else { return Ok(()) };
    let text = format!(
        "`{}` in its query indicates a secret, and URLs are stored and shown in clear text: use \
         `authentication`, {ENTER}",
        shortened(&name)
    );
    Err(Error::invalid("url", text))
}

/// Rejects headers that carry credentials, which belong to `authentication`, and headers that the hub sets itself.
fn check_header_name(name: &str) -> Result<(), String> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || name.len() > 64 || !name.bytes().all(is_token) {
        return Err("must be a header name of letters, digits and `-`, such as `x-team`".to_owned());
    }
    let lower = name.to_ascii_lowercase();
    match &*lower {
        "authorization" | "cookie" | "proxy-authorization" => {
            Err("credentials must not be set as headers: use `authentication`".to_owned())
        }
        "host" | "connection" | "content-length" | "content-type" | "transfer-encoding" | "accept" | "te"
        | "upgrade" => Err("the hub sets this header itself".to_owned()),
        _ if lower.starts_with("mcp-") => Err("the protocol sets this header itself".to_owned()),
        _ => Ok(()),
    }
}
