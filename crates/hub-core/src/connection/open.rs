//! Opening of a connection to a server, with the credential of the caller.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use linchpin::auth::{ApiKey, Basic, Bearer};
use linchpin::client::{Changed, Command};
use linchpin::egress::{Egress, Redirects, Target};
use linchpin::{CallError, Client, ClientBuilder, ClientError};

use super::{Connections, Processes, Proof};
use crate::error::{Error, Kind, Result};
use crate::secrets::redact::Hidden;
use crate::server::{Authentication, CredentialMode, Launch, Remote, Server, Transport};
use crate::tool::pin::visible;

/// First delay before a retry; it doubles.
const PAUSE: Duration = Duration::from_millis(200);

/// Time that a stdio server has to exit after its input was closed, and again after `SIGTERM`. Two seconds after a
/// server was disabled, all its processes are gone.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(900);

/// Returns the delay before connecting, listing or reading is retried. Calls are never retried.
pub(crate) fn backoff(tries: u8) -> Duration {
    PAUSE * (1 << tries.min(5))
}

/// Opens a connection. `changed` is called when the server's lists change.
pub(super) async fn open(
    server: &Server,
    proof: Option<&Proof>,
    hidden: &Arc<Hidden>,
    egress: &Egress,
    processes: &Processes,
    changed: impl Fn(Changed) + Clone + Send + Sync + 'static,
) -> Result<Client> {
    let mut tries = 0;
    loop {
        let builder = builder(server, proof, egress, processes, hidden)?;
        let builder = builder.label(server.slug.as_str()).timeout(server.settings.timeout);
        let builder = builder.on_list_changed(changed.clone());
        let builder = match server.settings.revision {
            Some(revision) => builder.revisions([revision]),
            None => builder,
        };
        match builder.connect().await {
            Ok(client) => return Ok(client),
            // A request that the egress policy denied is denied again, so that it is not retried.
            Err(error)
                if tries < server.settings.retry_attempts && may_pass(&error) && egress.denials() == 0 =>
            {
                let error = failed(server, &error, hidden);
                tracing::debug!(server.id = %server.id, %error, tries, "failed to connect; retrying");
                tokio::time::sleep(backoff(tries)).await;
                tries += 1;
            }
            Err(error) => return Err(failed(server, &error, hidden)),
        }
    }
}

fn builder(
    server: &Server,
    proof: Option<&Proof>,
    egress: &Egress,
    processes: &Processes,
    hidden: &Arc<Hidden>,
) -> Result<ClientBuilder> {
    let (remote, builder) = match &server.transport {
        Transport::Stdio(launch) => {
            return Ok(Client::command(command(server, launch, processes, hidden.clone())));
        }
        Transport::Http(remote) => (remote, Client::http(&remote.url)),
        Transport::Sse(remote) => (remote, Client::sse(&remote.url)),
    };
    let Remote { headers, .. } = remote;
    let builder = headers.iter().fold(builder, |builder, (name, value)| builder.header(name, value));
    // Redirects to another origin are refused: calls are meant for the configured server only.
    let builder = builder.egress(egress.clone()).redirects(Redirects::same_origin(3));
    let missing = || {
        let text = format!(
            "there are no credentials for `{}`: set a credential or sign in first",
            server.slug.as_str()
        );
        Error::new(Kind::Denied, "credentials_missing", text)
    };
    let secret = || match proof {
        Some(Proof::Secret(secret)) => Ok(secret.clone()),
        _ => Err(missing()),
    };
    let builder = match &server.settings.authentication {
        Authentication::None => builder,
        Authentication::Bearer => builder.auth(Bearer::new(secret()?)),
        Authentication::ApiKey { header } => builder.auth(ApiKey::new(header, secret()?)),
        Authentication::Basic { username } => builder.auth(Basic::new(username, secret()?)),
        Authentication::OAuth { .. } => match proof {
            Some(Proof::OAuth(oauth, _)) => builder.auth(oauth.clone()),
            _ => return Err(missing()),
        },
    };
    Ok(builder.boxed())
}

fn command(server: &Server, launch: &Launch, processes: &Processes, hidden: Arc<Hidden>) -> Command {
    let id = server.id;
    // The environment of the hub is cleared: `launch.env` is complete.
    let mut command = Command::new(&launch.command).args(&launch.args).env_clear();
    command = command.close_timeout(CLOSE_TIMEOUT);
    for (name, value) in &launch.env {
        command = command.env(name, value);
    }
    if let Some(directory) = &launch.directory {
        command = command.current_dir(directory);
    }
    if let Some(lineage) = &processes.lineage {
        command = command.lineage(lineage);
    }
    if let Some(supervisor) = &processes.supervisor {
        command = command.supervisor(supervisor);
    }
    // The standard error of a server goes to the debug log only.
    command.on_stderr(move |line| {
        let line = visible(&hidden.hide_in(line.to_owned()));
        tracing::debug!(server.id = %id, line, "server wrote to stderr");
    })
}

/// Returns whether a retry may succeed: the server was not reached, the connection was lost, or the server is
/// overloaded or failed. A request that was refused, or whose response is too large or malformed, fails again.
pub(crate) fn may_pass(error: &ClientError) -> bool {
    match error {
        ClientError::Open { .. } => true,
        ClientError::Call(CallError::Transport { code, status, .. }) => {
            status.map_or(*code == "HTTP_CONNECT", |status| status >= 500 || status == 429)
        }
        ClientError::Call(error) => matches!(error, CallError::Closed(_) | CallError::Lost(_)),
        _ => false,
    }
}

/// Adds to an error of the egress policy the setting of the configuration file that allows the refused address.
pub(crate) fn allowing(text: &str) -> String {
    let words: Vec<_> = text.split_whitespace().collect();
    let refused = words.windows(2).filter(|pair| pair[1] == "is").find_map(|pair| pair[0].parse().ok());
    let network = refused.map_or_else(|| "NETWORK".to_owned(), network_of);
    let setting =
        format!("in the configuration file `linchpin.toml` with `[egress] allow = [\"{network}\"]`");
    text.replace("in the egress policy", &setting)
}

/// Returns the private network of an address, or the address itself if it is in none.
fn network_of(address: IpAddr) -> String {
    let network = match address.to_canonical() {
        IpAddr::V4(address) => match address.octets() {
            [127, ..] => "127.0.0.0/8",
            [10, ..] => "10.0.0.0/8",
            [172, 16..=31, ..] => "172.16.0.0/12",
            [192, 168, ..] => "192.168.0.0/16",
            _ => return address.to_string(),
        },
        address @ IpAddr::V6(_) => return address.to_string(),
    };
    network.to_owned()
}

impl Connections {
    /// Returns the error of a server whose URL has an address that the egress policy denies.
    pub(crate) fn refused(&self, server: &Server) -> Option<Error> {
        let target = Target::typed(&server.transport.place()?.url).ok()?;
        let error = self.egress.check(&target).err()?;
        let slug = server.slug.as_str();
        let text = format!("cannot connect to `{slug}`: {}", allowing(&error.to_string()));
        Some(Error::new(Kind::Unavailable, "server_unavailable", text))
    }
}

fn failed(server: &Server, error: &ClientError, hidden: &Hidden) -> Error {
    let slug = server.slug.as_str();
    let why = match error {
        // The message contains the remedy.
        ClientError::Call(CallError::Transport {
            code: "HTTP_SIGN_IN" | "HTTP_AUTHORIZATION",
            message,
            ..
        }) => allowing(message),
        ClientError::Call(CallError::Transport { status: Some(401), .. }) => unknown(server),
        other => allowing(&other.to_string()),
    };
    let text = visible(&hidden.hide_in(format!("cannot connect to `{slug}`: {why}")));
    Error::new(Kind::Unavailable, "server_unavailable", text)
}

/// Returns the advice for a server that responds with 401.
fn unknown(server: &Server) -> String {
    let slug = server.slug.as_str();
    match (&server.settings.authentication, server.settings.credentials) {
        (Authentication::None, CredentialMode::Shared) => format!(
            "the server requires authentication: set `authentication`, then store the credential with \
             `linchpin server credential set {slug}`"
        ),
        (Authentication::None, CredentialMode::PerAgent) => format!(
            "the server requires authentication, and only agents have credentials for it: set one with \
             `linchpin server credential set {slug} --agent NAME`"
        ),
        (_, mode) => format!(
            "the server rejected the credential: set another one with `linchpin server credential set \
             {slug}{}`",
            if mode == CredentialMode::PerAgent { " --agent NAME" } else { "" }
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_that_may_pass_are_repeated() {
        let transport = |code, status| CallError::Transport { code, status, message: "x".into() };
        for error in [
            transport("HTTP_CONNECT", None),
            transport("HTTP_STATUS", Some(503)),
            transport("HTTP_STATUS", Some(429)),
            CallError::Lost("x".into()),
            CallError::Closed("x".into()),
        ] {
            assert!(may_pass(&error.clone().into()), "{error:?}");
        }
        for error in [
            transport("HTTP_BODY_TOO_LARGE", None),
            transport("SSE_EVENT_DATA_TOO_LARGE", None),
            transport("INVALID_SSE_EVENT_DATA", None),
            transport("HTTP_REDIRECT", None),
            transport("HTTP_SIGN_IN", None),
            transport("HTTP_STATUS", Some(404)),
            CallError::Malformed("x".into()),
        ] {
            assert!(!may_pass(&error.clone().into()), "{error:?}");
        }
    }

    #[test]
    fn the_hint_names_the_network_of_the_refused_address() {
        for (address, network) in [
            ("127.0.0.1", "127.0.0.0/8"),
            ("10.1.2.3", "10.0.0.0/8"),
            ("172.20.0.1", "172.16.0.0/12"),
            ("192.168.1.1", "192.168.0.0/16"),
            ("169.254.169.254", "169.254.169.254"),
            ("::1", "::1"),
            ("fd00::1", "fd00::1"),
        ] {
            let text = format!("no connection: {address} is private, allow its network in the egress policy");
            let expected = format!("`[egress] allow = [\"{network}\"]`");
            assert!(allowing(&text).ends_with(&expected), "{}", allowing(&text));
        }
        assert!(allowing("its name is private, allow it in the egress policy").contains("[\"NETWORK\"]"));
    }
}
