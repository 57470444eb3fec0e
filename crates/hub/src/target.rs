//! Connection of a CLI command to a server without the hub. The connection and all processes of the server are closed
//! on every exit path.

use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::time::Duration;

use linchpin::client::Command;
use linchpin::egress::Egress;
use linchpin::model::Implementation;
use linchpin::{Client, ClientBuilder, ClientError, Revision};

use crate::cli::SignInArgs;
use crate::doctor::{Trace, TracedAuthorizer};
use crate::error::{CliError, CliErrorKind};
use crate::server_output::ServerOutput;
use crate::sign_in;
use crate::signals::Signals;
use crate::terminal::Screen;

/// Server that a command connects to: a command line to start, or a URL.
pub(crate) enum TargetServer {
    /// Program and arguments of a stdio server.
    Command(Vec<OsString>),
    /// Remote server: its URL, and headers for every request.
    Url(String, Vec<(String, String)>),
}

impl TargetServer {
    /// Parses the positional arguments: a URL, or a command.
    pub(crate) fn parse(arguments: Vec<OsString>, headers: Vec<(String, String)>) -> Result<Self, CliError> {
        let is_url = |word: &OsStr| {
            let word = word.to_string_lossy().to_ascii_lowercase();
            word.starts_with("http://") || word.starts_with("https://")
        };
        match &arguments[..] {
            [url] if is_url(url) => Ok(TargetServer::Url(url.to_string_lossy().into_owned(), headers)),
            [url, extra, ..] if is_url(url) => {
                let extra = extra.to_string_lossy();
                Err(CliError::usage(format!(
                    "unexpected argument `{extra}` after a URL: put options before the URL"
                )))
            }
            _ if !headers.is_empty() => {
                Err(CliError::usage("--header requires a URL: a command has no headers"))
            }
            _ => Ok(TargetServer::Command(arguments)),
        }
    }
}

/// Server that a command connects to, with timeout, revision and OAuth options.
pub(crate) struct Target {
    pub(crate) server: TargetServer,
    pub(crate) timeout: Duration,
    /// Protocol revision, if it is pinned.
    pub(crate) revision: Option<Revision>,
    pub(crate) verbose: bool,
    pub(crate) screen: Arc<Screen>,
    /// OAuth settings for signing in to the server.
    pub(crate) sign_in: SignInArgs,
    /// Recorder of the connection steps, for `linchpin doctor`.
    pub(crate) trace: Option<Arc<Trace>>,
}

impl Target {
    /// Connects to the server, runs `work` and closes the connection. `configure` adds handlers to the client.
    pub(crate) async fn with_client<T>(
        self,
        configure: impl FnOnce(ClientBuilder) -> ClientBuilder,
        work: impl AsyncFnOnce(&Client) -> Result<T, CliError>,
    ) -> Result<T, CliError> {
        let mut signals = Signals::new()?;
        let server_output = Arc::new(ServerOutput::new(self.screen.clone(), self.verbose));
        let builder = self
            .client(&server_output)?
            .info(Implementation::new("linchpin", env!("CARGO_PKG_VERSION")))
            .timeout(self.timeout)
            .open_timeout(self.timeout);
        let builder = match self.revision {
            Some(revision) => builder.revisions([revision]),
            None => builder,
        };
        let result = match signals.or_interrupt(Box::pin(configure(builder).connect())).await? {
            Ok(client) => {
                let result = signals.or_interrupt(work(&client)).await;
                self.screen.clear();
                // Close gracefully, but let a second signal interrupt the close.
                let _ = signals.or_interrupt(client.close()).await;
                result.and_then(|result| result)
            }
            Err(error) => Err(self.connect_error(error)),
        };
        server_output.warn_stray_output();
        result.map_err(|failure| failure.with_stderr(server_output.stderr_tail()))
    }

    fn client(&self, server_output: &Arc<ServerOutput>) -> Result<ClientBuilder, CliError> {
        let TargetServer::Url(url, headers) = &self.server else {
            return Ok(Client::command(self.command(server_output)).boxed());
        };
        let mut client = Client::http(url);
        for (name, value) in headers {
            client = client.header(name, value);
        }
        // An explicit Authorization header replaces OAuth.
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization")) {
            let oauth = sign_in::oauth_client(&self.screen, &self.sign_in)?;
            client = match self.trace.clone() {
                Some(trace) => client.auth(TracedAuthorizer::new(oauth, trace)),
                None => client.auth(oauth),
            };
        }
        if let Some(trace) = &self.trace {
            let (step_trace, diagnostics) = (trace.clone(), trace.clone());
            let egress =
                Egress::builder().on_connect_step(move |step| step_trace.record_network_step(step)).build();
            let egress = egress.map_err(|error| CliError::new(CliErrorKind::Other, error.to_string()))?;
            client = client.egress(egress).on_diagnostic(move |line| diagnostics.record_diagnostic(line));
        } else if self.verbose {
            let screen = self.screen.clone();
            client = client.on_diagnostic(move |line| screen.dim_line(&format!("http | {line}")));
        }
        Ok(client.boxed())
    }

    fn connect_error(&self, error: ClientError) -> CliError {
        match CliError::from(error) {
            CliError { kind: CliErrorKind::Timeout, .. } => {
                let advice = match self.server {
                    TargetServer::Command(_) => {
                        "check that the command is an MCP server on stdio, or increase --timeout"
                    }
                    TargetServer::Url(..) => "check that the URL is an MCP server, or increase --timeout",
                };
                CliError::new(
                    CliErrorKind::Timeout,
                    format!("the server did not respond within {:?}: {advice}", self.timeout),
                )
            }
            failure => failure,
        }
    }

    fn command(&self, server_output: &Arc<ServerOutput>) -> Command {
        let (stderr_output, stray_output) = (server_output.clone(), server_output.clone());
        let command_line = match &self.server {
            TargetServer::Command(command_line) => &command_line[..],
            TargetServer::Url(..) => &[],
        };
        let (program, args) = command_line
            .split_first()
            .map_or((OsString::new(), &[][..]), |(program, args)| (program.clone(), args));
        Command::new(program)
            .args(args)
            .on_stderr(move |line| stderr_output.on_stderr(line))
            .on_stdout(move |line| stray_output.on_stdout(line))
    }
}
