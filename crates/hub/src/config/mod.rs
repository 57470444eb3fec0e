//! Configuration file `linchpin.toml`: configured servers and hub settings.
//!
//! [`file`] reads it, [`watch`] detects changes, [`edit`] modifies it and preserves its [`comments`], [`paths`]
//! resolves the paths of the hub, [`running`] locks the data directory and announces the hub, and [`egress`] is the
//! egress table. Configured servers are validated by [`ConfiguredServer`], with the same rules as all others.

mod audit;
mod comments;
mod edit;
mod egress;
mod error;
mod file;
mod limits;
mod paths;
mod running;
mod toml;
mod watch;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use linchpin::egress::Network;
use linchpin::server::web::OriginGuard;
use linchpin_hub_core::Error;
use linchpin_hub_core::object_reader::ObjectReader;
use linchpin_hub_core::server::ConfiguredServer;
use serde_json::Value;
use toml_edit::Document;

pub(crate) use audit::{AuditConfig, Durability};
pub(crate) use edit::{add, remove, set_demo_enabled, set_enabled, update};
pub(crate) use egress::EgressConfig;
pub(crate) use error::ConfigError;
pub(crate) use file::{Stamp, stamp};
pub(crate) use limits::LimitsConfig;
pub(crate) use paths::{HubPaths, LocationArgs, Variables, env_variable, own_directory};
pub(crate) use running::RunningHub;
pub(crate) use watch::WatchedConfig;

/// Valid range of the retention of call arguments and results, in days.
const HISTORY_DAYS: std::ops::RangeInclusive<u64> = 1..=3_650;

/// Public HTTPS URL of the hub or of its TLS proxy.
#[derive(Debug, Clone)]
pub(crate) struct PublicUrl {
    /// Public URL in lower case, without a trailing slash and without port 443.
    pub(crate) url: String,
    /// Host and origin check that accepts this URL.
    pub(crate) guard: OriginGuard,
}

impl PartialEq for PublicUrl {
    fn eq(&self, other: &Self) -> bool {
        self.url == other.url
    }
}

impl Eq for PublicUrl {}

impl PublicUrl {
    fn read(text: &str) -> linchpin_hub_core::Result<Self> {
        let advice = "must be the HTTPS URL of the hub or of its TLS proxy, such as `https://hub.example`";
        let invalid_url = || Error::invalid("url", advice);
        let text = text.trim_end_matches('/').to_ascii_lowercase();
        // Browsers omit the default port in the Host and Origin headers.
        let text = text.strip_suffix(":443").map_or(text.clone(), str::to_owned);
        let host = text.strip_prefix("https://").ok_or_else(invalid_url)?;
        let mut guard = OriginGuard::default();
        guard.allow_host(host).and_then(|()| guard.allow_origin(&text)).map_err(|_| invalid_url())?;
        Ok(PublicUrl { url: text, guard })
    }
}

/// Paths of the TLS certificate and its private key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl TlsFiles {
    fn read(mut form: ObjectReader) -> linchpin_hub_core::Result<Self> {
        let mut path = |name| {
            let advice = "set both `certificate` and `key`, each to a PEM file";
            form.string(name, 4_096)?.map(PathBuf::from).ok_or_else(|| form.error(name, advice))
        };
        let pair = TlsFiles { certificate: path("certificate")?, key: path("key")? };
        form.finish().map(|()| pair)
    }
}

/// Contents of the configuration file of the hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Config {
    /// Address on which the hub listens.
    pub(crate) listen: Option<SocketAddr>,
    /// Public HTTPS URL of the hub.
    pub(crate) url: Option<PublicUrl>,
    /// TLS certificate and key of the hub; relative paths are resolved against the folder of the configuration file.
    pub(crate) tls: Option<TlsFiles>,
    /// Proxies that may connect; all other addresses are rejected. Empty: no restriction.
    pub(crate) proxies: Vec<Network>,
    /// Retention of call arguments and results, in days.
    pub(crate) days: Option<u64>,
    /// Audit settings.
    pub(crate) audit: AuditConfig,
    /// Limits of results, connections and syncs.
    pub(crate) limits: LimitsConfig,
    /// Egress settings.
    pub(crate) egress: EgressConfig,
    /// Whether the built-in demo server is enabled. Default: true.
    pub(crate) demo: bool,
    /// Configured servers, in the order of the file.
    pub(crate) servers: Vec<ConfiguredServer>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            listen: None,
            url: None,
            tls: None,
            proxies: Vec::new(),
            days: None,
            audit: AuditConfig::default(),
            limits: LimitsConfig::default(),
            egress: EgressConfig::default(),
            demo: true,
            servers: Vec::new(),
        }
    }
}

impl Config {
    /// Reads the configuration file at `path`; the default configuration if it does not exist.
    pub(crate) fn open(path: &Path) -> Result<Self, ConfigError> {
        Ok(file::read(path)?.unwrap_or_default())
    }

    /// Parses the text of the configuration file at `path`.
    pub(crate) fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let document = Document::parse(text).map_err(|error| {
            let (message, span) = (one_line(error.message()), error.span());
            let key = span.clone().and_then(|span| text.get(span));
            match key.filter(|_| message.starts_with("duplicate key")) {
                Some(key) => {
                    ConfigError::new(path, "duplicate key: remove one of them").with_field(one_line(key))
                }
                None => ConfigError::new(path, message),
            }
            .at_span(text, span)
        })?;
        let field_error = |above: &str, error: &Error| {
            let field = match (above, error.field().unwrap_or_default()) {
                (_, "slug" | "body" | "") => above.to_owned(),
                ("", field) => field.to_owned(),
                (_, field) => format!("{above}.{field}"),
            };
            let span = toml::find_position(document.as_table(), &field);
            ConfigError::new(path, error.message()).with_field(field).at_span(text, span)
        };
        let mut members = toml::to_object(document.as_table()).map_err(|foreign| {
            ConfigError::new(path, foreign.advice)
                .with_field(foreign.key.get())
                .at_span(text, foreign.key.span())
        })?;
        let servers = members.remove("servers");
        let mut config = Self::read(Value::Object(members)).map_err(|error| field_error("", &error))?;
        if let Some(TlsFiles { certificate, key }) = &mut config.tls {
            let folder = path.parent().unwrap_or(Path::new(""));
            (*certificate, *key) = (folder.join(&*certificate), folder.join(&*key));
        }
        match servers {
            None => {}
            Some(Value::Object(servers)) => {
                for (slug, value) in servers {
                    let read = ConfiguredServer::read(&slug, value);
                    config
                        .servers
                        .push(read.map_err(|error| field_error(&format!("servers.{slug}"), &error))?);
                }
            }
            Some(_) => {
                let text = "must contain one table per server: write `[servers.NAME]`";
                return Err(field_error("", &Error::invalid("servers", text)));
            }
        }
        Ok(config)
    }

    /// Parses all settings of the configuration file except the servers.
    fn read(value: Value) -> linchpin_hub_core::Result<Self> {
        let mut form = ObjectReader::new(value)?;
        let listen = form.string("listen", 64)?;
        let listen =
            listen.map(|text| parse_address(&text).map_err(|reason| Error::invalid("listen", reason)));
        let url = form.string("url", 300)?.map(|text| PublicUrl::read(&text));
        let tls = form.object("tls")?.map(TlsFiles::read).transpose()?;
        let proxies = egress::networks(&mut form, ("proxies", "proxies"))?;
        if !proxies.is_empty() && url.is_none() {
            let advice =
                "requires the public URL that these proxies serve, such as `url = \"https://hub.example\"`";
            return Err(Error::invalid("proxies", advice));
        }
        let days = form.object("history")?.map(|mut history| {
            let days = history.number("days", HISTORY_DAYS)?;
            history.finish().map(|()| days)
        });
        let audit = form.object("audit")?.map(AuditConfig::read);
        let limits = form.object("limits")?.map(LimitsConfig::read);
        let egress = form.object("egress")?.map(EgressConfig::read);
        let demo = form.boolean("demo")?.unwrap_or(true);
        form.also_accepts("servers").finish()?;
        Ok(Config {
            demo,
            listen: listen.transpose()?,
            url: url.transpose()?,
            tls,
            proxies,
            days: days.transpose()?.flatten(),
            audit: audit.transpose()?.unwrap_or_default(),
            limits: limits.transpose()?.unwrap_or_default(),
            egress: egress.transpose()?.unwrap_or_default(),
            servers: Vec::new(),
        })
    }
}

/// Parses a listen address. `localhost` means 127.0.0.1; no other name is resolved.
pub(crate) fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let local = text
        .rsplit_once(':')
        .filter(|(host, _)| host.eq_ignore_ascii_case("localhost"))
        .and_then(|(_, port)| port.parse().ok())
        .map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    local.or_else(|| text.parse().ok()).ok_or_else(|| {
        "must be an IP address and a port, such as `127.0.0.1:7420`, `[::1]:7420` or `localhost:7420`"
            .to_owned()
    })
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
