//! Opening a connection to a server, with the credentials of whoever wants it.

use std::sync::Arc;
use std::time::Duration;

use linchpin::auth::{ApiKey, Basic, Bearer};
use linchpin::client::{Changed, Command};
use linchpin::egress::{Egress, Redirects};
use linchpin::{CallError, Client, ClientBuilder, ClientError};

use super::{Processes, Proof};
use crate::error::{Error, Kind, Result};
use crate::hidden::Hidden;
use crate::pin::visible;
use crate::server::{Authentication, CredentialMode, Launch, Remote, Server, Transport};

/// The first pause before a request that changes nothing is repeated; it doubles.
const PAUSE: Duration = Duration::from_millis(200);

/// Time that a stdio server has to end after its input was closed, and again after `SIGTERM`. Two seconds after a
/// server was disabled nothing of it is left.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(900);

/// The pause before connecting, listing or reading is repeated. Calls never are.
pub(crate) fn backoff(tries: u8) -> Duration {
    PAUSE * (1 << tries.min(5))
}

/// How the operator allows a network.
const ALLOW: &str = "in the operator's file `linchpin.toml` with `[egress] allow = [\"10.0.0.0/8\"]`, or whichever it \
                     is";

/// Opens a connection. `changed` is told when the server's lists change.
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
        match builder.connect().await {
            Ok(client) => return Ok(client),
            // What was denied is denied the next time, too.
            Err(error)
                if tries < server.settings.retry_attempts && may_pass(&error) && egress.denials() == 0 =>
            {
                let error = failed(server, &error, hidden);
                tracing::debug!(server.id = %server.id, %error, tries, "connecting is tried again");
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
    // What a call says is for the server that somebody has chosen, and for no other.
    let builder = builder.egress(egress.clone()).redirects(Redirects::same_origin(3));
    let missing = || {
        let text = format!("there are no credentials for `{}`: enter them first", server.slug.as_str());
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
    // Nothing of the hub's own environment: what a program needs is in its own.
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
    // What a program says on its standard error is for its owner alone.
    command.on_stderr(move |line| {
        let line = visible(&hidden.hide_in(line.to_owned()));
        tracing::debug!(server.id = %id, line, "the server said");
    })
}

/// Whether the same may work in a moment: nothing that the server has said no to.
pub(crate) fn may_pass(error: &ClientError) -> bool {
    match error {
        ClientError::Open { .. } => true,
        ClientError::Call(CallError::Transport { status, .. }) => {
            status.is_none_or(|status| status >= 500 || status == 429)
        }
        ClientError::Call(error) => matches!(error, CallError::Closed(_) | CallError::Lost(_)),
        _ => false,
    }
}

/// The policy of the hub is what the operator says.
pub(crate) fn allowing(text: &str) -> String {
    text.replace("in the egress policy", ALLOW)
}

fn failed(server: &Server, error: &ClientError, hidden: &Hidden) -> Error {
    let slug = server.slug.as_str();
    let why = match error {
        // It says what to do.
        ClientError::Call(CallError::Transport {
            code: "HTTP_SIGN_IN" | "HTTP_AUTHORIZATION",
            message,
            ..
        }) => allowing(message),
        ClientError::Call(CallError::Transport { status: Some(401), .. }) => unknown(server),
        other => allowing(&other.to_string()),
    };
    let text = visible(&hidden.hide_in(format!("`{slug}` cannot be connected to: {why}")));
    Error::new(Kind::Unavailable, "server_unavailable", text)
}

/// The server does not know who asks.
fn unknown(server: &Server) -> String {
    let slug = server.slug.as_str();
    match (&server.settings.authentication, server.settings.credentials) {
        (Authentication::None, CredentialMode::Shared) => {
            "it wants to know who asks: choose its `authentication`, and enter the secret".to_owned()
        }
        (Authentication::None, CredentialMode::PerAgent) => format!(
            "it wants to know who asks, and only agents have credentials for it: enter one with `linchpin server \
             credential set {slug} --agent NAME`"
        ),
        (_, mode) => format!(
            "it does not accept the credential that the hub has: enter another one with `linchpin server credential set \
             {slug}{}`",
            if mode == CredentialMode::PerAgent { " --agent NAME" } else { "" }
        ),
    }
}
