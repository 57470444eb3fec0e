//! Opening of a connection to a server, with the credential of the caller.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use linchpin::auth::{ApiKey, Basic, Bearer};
use linchpin::client::{Command, ListChanged, ServerRequest};
use linchpin::egress::{Egress, Redirects, Target};
use linchpin::model::{ClientCapabilities, ElicitationCapability, RootsCapability, SamplingCapability};
use linchpin::{CallError, Client, ClientBuilder, ClientError, code};
use serde_json::json;

use super::{AuthMaterial, ConnectionPool, Processes};
use crate::error::{Error, ErrorKind, Result};
use crate::secrets::redact::Redactor;
use crate::server::{
    Authentication, ConnectionLimits, CredentialMode, ProgramSpec, RemoteEndpoint, Server, Transport,
};
use crate::text::escape_invisible;

/// Delay before the first retry of a request to a server; it doubles with each retry.
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// Time that a stdio server has to exit after its input was closed, and again after `SIGTERM`. Two seconds after a
/// server was disabled, all its processes are gone.
const EXIT_TIMEOUT: Duration = Duration::from_millis(900);

/// Method of the notification that the user has finished on the page of a URL elicitation.
const ELICITATION_COMPLETE: &str = "notifications/elicitation/complete";

/// Returns the delay before connecting, listing or reading is retried. Calls are never retried.
pub(crate) fn backoff(attempts: u8) -> Duration {
    RETRY_DELAY * (1 << attempts.min(5))
}

/// Notification of a server that belongs to no call.
pub(crate) enum ServerNotification {
    /// The list of tools, resources or prompts has changed.
    ListChanged(ListChanged),
    /// The resource with this URI, to which the connection is subscribed, has changed.
    ResourceUpdated(String),
    /// The user has finished on the page of the URL elicitation with this id.
    ElicitationCompleted(String),
}

/// Opens a connection of the hub to a server. `notified` is called with its notifications.
pub(super) async fn open(
    server: &Server,
    proof: Option<&AuthMaterial>,
    redactor: &Arc<Redactor>,
    egress: &Egress,
    processes: &Processes,
    notified: impl Fn(ServerNotification) + Clone + Send + Sync + 'static,
) -> Result<Client> {
    let mut attempts = 0;
    loop {
        let builder = builder(server, proof, egress, processes, redactor)?;
        let builder = builder.label(server.slug.as_str()).timeout(server.settings.timeout);
        let (changed, updated, completed) = (notified.clone(), notified.clone(), notified.clone());
        let builder = builder
            .on_list_changed(move |list| changed(ServerNotification::ListChanged(list)))
            .on_resource_updated(move |uri| updated(ServerNotification::ResourceUpdated(uri)))
            .on_notification(move |method, params| {
                if method == ELICITATION_COMPLETE
                    && let Some(id) = params["elicitationId"].as_str()
                {
                    completed(ServerNotification::ElicitationCompleted(id.to_owned()));
                }
            });
        let builder = builder.on_server_request(all_capabilities(), |request| async move {
            Err(request_without_call_error(&request))
        });
        let builder = with_limits(builder, &server.settings.limits);
        let builder = match server.settings.revision {
            Some(revision) => builder.revisions([revision]),
            None => builder,
        };
        match builder.connect().await {
            Ok(client) => return Ok(client),
            // A request that the egress policy denied is denied again, so that it is not retried.
            Err(error)
                if attempts < server.settings.retry_attempts
                    && is_retryable(&error)
                    && egress.denials() == 0 =>
            {
                let error = connect_error(server, &error, redactor);
                tracing::debug!(server.id = %server.id, %error, attempts, "failed to connect; retrying");
                tokio::time::sleep(backoff(attempts)).await;
                attempts += 1;
            }
            Err(error) => return Err(connect_error(server, &error, redactor)),
        }
    }
}

/// Returns the client capabilities for server requests that the hub declares: elicitation, sampling and roots.
pub(crate) fn all_capabilities() -> ClientCapabilities {
    let supported = || Some(json!({}));
    ClientCapabilities {
        elicitation: Some(ElicitationCapability { form: supported(), url: supported() }),
        sampling: Some(SamplingCapability { context: None, tools: supported() }),
        roots: Some(RootsCapability { list_changed: None }),
        ..ClientCapabilities::default()
    }
}

/// Returns the error for a server request that belongs to no call in flight.
fn request_without_call_error(request: &ServerRequest) -> linchpin::Error {
    let what = match request {
        ServerRequest::Elicit(_) => "an elicitation",
        ServerRequest::Sample(_) => "a sampling request",
        ServerRequest::Roots => "a request for the roots",
    };
    let text = format!("{what} belongs to no tool call in flight: send it while a tool runs");
    linchpin::Error::rpc(code::INTERNAL_ERROR, text)
}

/// Applies the limits that every transport has.
fn with_limits(mut builder: ClientBuilder, limits: &ConnectionLimits) -> ClientBuilder {
    if let Some(timeout) = limits.open_timeout_ms {
        builder = builder.open_timeout(Duration::from_millis(timeout));
    }
    if let Some(bytes) = limits.max_response_bytes.and_then(|bytes| usize::try_from(bytes).ok()) {
        builder = builder.max_response(bytes);
    }
    builder
}

fn builder(
    server: &Server,
    proof: Option<&AuthMaterial>,
    egress: &Egress,
    processes: &Processes,
    redactor: &Arc<Redactor>,
) -> Result<ClientBuilder> {
    let (remote, builder) = match &server.transport {
        Transport::Stdio(program) => {
            return Ok(Client::command(command(server, program, processes, redactor.clone())));
        }
        Transport::Http(remote) => (remote, Client::http(&remote.url)),
        Transport::Sse(remote) => (remote, Client::sse(&remote.url)),
    };
    let RemoteEndpoint { headers, .. } = remote;
    let builder = headers.iter().fold(builder, |builder, (name, value)| builder.header(name, value));
    // Redirects to another origin are refused: calls are meant for the configured server only.
    let builder = builder.egress(egress.clone()).redirects(Redirects::same_origin(3));
    let ConnectionLimits { read_timeout_ms, max_reconnects, .. } = server.settings.limits;
    let builder = match read_timeout_ms {
        Some(timeout) => builder.read_timeout(Duration::from_millis(timeout)),
        None => builder,
    };
    let builder = match max_reconnects.and_then(|count| usize::try_from(count).ok()) {
        Some(count) => builder.max_reconnects(count),
        None => builder,
    };
    let missing = || {
        let text = format!(
            "no credential is stored for the server `{}`: set one or sign in first",
            server.slug.as_str()
        );
        Error::new(ErrorKind::PermissionDenied, "credentials_missing", text)
    };
    let secret = || match proof {
        Some(AuthMaterial::Secret(secret)) => Ok(secret.clone()),
        _ => Err(missing()),
    };
    let builder = match &server.settings.authentication {
        Authentication::None => builder,
        Authentication::Bearer => builder.auth(Bearer::new(secret()?)),
        Authentication::ApiKey { header } => builder.auth(ApiKey::new(header, secret()?)),
        Authentication::Basic { username } => builder.auth(Basic::new(username, secret()?)),
        Authentication::OAuth { .. } => match proof {
            Some(AuthMaterial::OAuth(oauth, _)) => builder.auth(oauth.clone()),
            _ => return Err(missing()),
        },
    };
    Ok(builder.boxed())
}

fn command(
    server: &Server,
    program: &ProgramSpec,
    processes: &Processes,
    redactor: Arc<Redactor>,
) -> Command {
    let id = server.id;
    // The environment of the hub is cleared: `program.env` is complete.
    let mut command = Command::new(&program.command).args(&program.args).env_clear();
    command = command.close_timeout(EXIT_TIMEOUT);
    for (name, value) in &program.env {
        command = command.env(name, value);
    }
    if let Some(directory) = &program.directory {
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
        let line = escape_invisible(&redactor.redact_text(line.to_owned()));
        tracing::debug!(server.id = %id, line, "server wrote to stderr");
    })
}

/// Returns whether a retry may succeed: the server was not reached, the connection was lost, or the server is
/// overloaded or failed. A request that was refused, or whose response is too large or malformed, fails again.
pub(crate) fn is_retryable(error: &ClientError) -> bool {
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
pub(crate) fn with_egress_hint(text: &str) -> String {
    let words: Vec<_> = text.split_whitespace().collect();
    let refused = words.windows(2).filter(|pair| pair[1] == "is").find_map(|pair| pair[0].parse().ok());
    let network = refused.map_or_else(|| "NETWORK".to_owned(), network_of);
    let setting =
        format!("in the configuration file `linchpin.toml` with `[egress] allow = [\"{network}\"]`");
    text.replace("in the egress policy", &setting)
}

/// Returns the private network that contains an address, or the address itself if there is none.
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

impl ConnectionPool {
    /// Returns the connection error if the egress policy denies the address of the server's URL.
    pub(crate) fn egress_error(&self, server: &Server) -> Option<Error> {
        let target = Target::configured(&server.transport.remote()?.url).ok()?;
        let error = self.egress.check(&target).err()?;
        let slug = server.slug.as_str();
        let text = format!("cannot connect to `{slug}`: {}", with_egress_hint(&error.to_string()));
        Some(Error::new(ErrorKind::Unavailable, "server_unavailable", text))
    }
}

fn connect_error(server: &Server, error: &ClientError, redactor: &Redactor) -> Error {
    let slug = server.slug.as_str();
    let reason = match error {
        // The message contains the remedy.
        ClientError::Call(CallError::Transport {
            code: "HTTP_SIGN_IN" | "HTTP_AUTHORIZATION",
            message,
            ..
        }) => with_egress_hint(message),
        ClientError::Call(CallError::Transport { status: Some(401), .. }) => unauthenticated_hint(server),
        other => with_egress_hint(&other.to_string()),
    };
    let text = escape_invisible(&redactor.redact_text(format!("cannot connect to `{slug}`: {reason}")));
    Error::new(ErrorKind::Unavailable, "server_unavailable", text)
}

/// Returns the advice for a server that responds with 401.
fn unauthenticated_hint(server: &Server) -> String {
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
            assert!(is_retryable(&error.clone().into()), "{error:?}");
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
            assert!(!is_retryable(&error.clone().into()), "{error:?}");
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
            assert!(with_egress_hint(&text).ends_with(&expected), "{}", with_egress_hint(&text));
        }
        assert!(
            with_egress_hint("its name is private, allow it in the egress policy").contains("[\"NETWORK\"]")
        );
    }
}
