//! `[egress]` table of the configuration file: allowed private networks and the proxy. The password of the proxy is
//! read from an environment variable.

use std::fmt::Write as _;

use linchpin::egress::{Egress, Network, Policy};
use linchpin_hub_core::object_reader::ObjectReader;
use linchpin_hub_core::{Error, Result};

/// Maximum number of networks in a list of the configuration file.
const MAX_NETWORKS: usize = 256;
const PROXY_FIELD: &str = "egress.proxy";

/// Settings of outgoing connections in the configuration file (`[egress]` table).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct EgressConfig {
    /// Private networks that the hub may reach.
    pub(crate) networks: Vec<Network>,
    /// Proxy for all outgoing connections.
    pub(crate) proxy: Option<ProxyConfig>,
}

/// Settings of the HTTP proxy for outgoing connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProxyConfig {
    /// URL of the proxy, without credentials.
    url: String,
    user: Option<String>,
    /// Name of the environment variable with the password.
    password_variable: Option<String>,
}

impl EgressConfig {
    pub(super) fn read(mut form: ObjectReader) -> Result<Self> {
        let networks = networks(&mut form, ("allow", "egress.allow"))?;
        let proxy = form.string("proxy", 2_048)?.map(|text| ProxyConfig::read(&text)).transpose()?;
        form.finish().map(|()| EgressConfig { networks, proxy })
    }

    /// Creates the egress policy: public addresses, the allowed networks, and the proxy with its password.
    pub(crate) fn build(&self, variables: &dyn Fn(&str) -> Option<String>) -> Result<Egress> {
        let allow = |policy: Policy, network: &Network| policy.allow(*network);
        let mut builder = Egress::builder().policy(self.networks.iter().fold(Policy::public_only(), allow));
        if let Some(proxy) = &self.proxy {
            builder = builder.proxy(&proxy.url_with_credentials(variables)?);
        }
        builder.build().map_err(|error| Error::invalid(PROXY_FIELD, error.to_string()))
    }
}

/// Reads a list of networks from a field of the configuration. The two names are the key in the form and its full path
/// for errors.
pub(super) fn networks(form: &mut ObjectReader, (name, whole): (&'static str, &str)) -> Result<Vec<Network>> {
    let network =
        |text: &String| text.parse::<Network>().map_err(|error| Error::invalid(whole, error.to_string()));
    form.strings(name, MAX_NETWORKS, 64)?.iter().map(network).collect()
}

impl ProxyConfig {
    /// Parses the proxy setting `http://[user:$PASSWORD@]host:port`.
    fn read(text: &str) -> Result<Self> {
        let invalid_proxy = |text: String| Error::invalid(PROXY_FIELD, text);
        let rest = text.strip_prefix("http://").ok_or_else(|| {
            invalid_proxy("must be the URL of an HTTP proxy, such as `http://proxy.example:3128`".to_owned())
        })?;
        let (credentials, authority) = rest
            .rsplit_once('@')
            .map_or((None, rest), |(credentials, authority)| (Some(credentials), authority));
        let url = format!("http://{}", authority.trim_end_matches('/'));
        Egress::builder().proxy(&url).build().map_err(|error| invalid_proxy(error.to_string()))?;
        let (user, password) = match credentials
            .map(|credentials| credentials.split_once(':').unwrap_or((credentials, "")))
        {
            None => (None, None),
            Some((user, password)) => {
                let name = password.strip_prefix('$').filter(|name| !name.is_empty()).ok_or_else(|| {
                    invalid_proxy(
                        "the password must be an environment variable: write `http://user:$NAME@host:port`, and \
                           set `NAME` for the hub"
                            .to_owned(),
                    )
                })?;
                (Some(user.to_owned()), Some(name.to_owned()))
            }
        };
        Ok(ProxyConfig { url, user, password_variable: password })
    }

    /// Returns the proxy URL with user name and password.
    fn url_with_credentials(&self, variables: &dyn Fn(&str) -> Option<String>) -> Result<String> {
        let (Some(user), Some(name)) = (&self.user, &self.password_variable) else {
            return Ok(self.url.clone());
        };
        let password = variables(name).ok_or_else(|| {
            let text = format!("the environment variable `{name}` is not set: set it and restart the hub");
            Error::invalid(PROXY_FIELD, text)
        })?;
        let authority = self.url.trim_start_matches("http://");
        Ok(format!("http://{}:{}@{authority}", percent_encode(user), percent_encode(&password)))
    }
}

fn percent_encode(text: &str) -> String {
    text.bytes().fold(String::new(), |mut all, byte| {
        let _ = write!(all, "%{byte:02X}"); // writing to a string never fails
        all
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_with_what_is_secret_elsewhere() {
        let proxy = ProxyConfig::read("http://hub:$PROXY_PASSWORD@proxy.example:3128/").unwrap();
        let variables = |name: &str| (name == "PROXY_PASSWORD").then(|| "p@ss:".to_owned());
        assert_eq!(
            proxy.url_with_credentials(&variables).unwrap(),
            "http://%68%75%62:%70%40%73%73%3A@proxy.example:3128"
        );
        let error = proxy.url_with_credentials(&|_| None).unwrap_err();
        assert!(error.message().contains("`PROXY_PASSWORD` is not set"), "{error}");
        let plain = ProxyConfig::read("http://proxy.example:3128").unwrap();
        assert_eq!(plain.url_with_credentials(&|_| None).unwrap(), "http://proxy.example:3128");
    }

    #[test]
    fn a_proxy_that_cannot_be_one() {
        for (text, expected) in [
            ("https://proxy.example", "must be the URL of an HTTP proxy, such as"),
            ("proxy.example:3128", "must be the URL of an HTTP proxy, such as"),
            ("http://", "the proxy cannot be used: "),
            ("http://proxy.example:x", "its port must be a number"),
            ("http://hub:secret@proxy.example:1", "the password must be an environment variable"),
            ("http://hub@proxy.example:1", "the password must be an environment variable"),
            ("http://hub:$@proxy.example:1", "the password must be an environment variable"),
        ] {
            let error = ProxyConfig::read(text).unwrap_err();
            assert!(
                error.message().contains(expected) && !error.message().contains("secret"),
                "{text}: {error}"
            );
            assert_eq!(error.field(), Some(PROXY_FIELD));
        }
    }
}
