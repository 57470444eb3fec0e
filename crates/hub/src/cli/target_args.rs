//! Arguments of `inspect`, `call` and `doctor`: the server that they connect to without the hub.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use linchpin::Revision;

use super::duration::parse as parse_duration;
use super::{parse_header, parse_revision};
use crate::error::CliError;
use crate::target::{Target, TargetServer};
use crate::terminal::Screen;

/// Arguments that select a server to connect to without the hub: a URL or a command.
#[derive(Args)]
pub(super) struct TargetArgs {
    /// Request timeout, for example 45s or 500ms; a plain number is in seconds. Progress extends it up to tenfold
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    timeout: Duration,

    /// Use only this protocol revision. Default: the newest that both sides support
    #[arg(long, value_parser = parse_revision)]
    revision: Option<Revision>,

    /// Header for every HTTP request, for example 'Authorization: Bearer …'; repeatable
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = parse_header)]
    headers: Vec<(String, String)>,

    #[command(flatten)]
    sign_in: SignInArgs,

    /// URL of the server, or the command that starts it; everything after the command belongs to it
    #[arg(trailing_var_arg = true, value_name = "URL|COMMAND")]
    url_or_command: Vec<OsString>,
}

/// Command-line options for OAuth at a server that is given by URL.
#[derive(Args)]
pub(crate) struct SignInArgs {
    /// Sign in with OAuth if the server requires it; needed only if no terminal can show the sign-in URL
    #[arg(long)]
    pub(crate) sign_in: bool,

    /// OAuth client id, if the client is preregistered
    #[arg(long, value_name = "ID")]
    pub(crate) client_id: Option<String>,

    /// File with the OAuth client secret
    #[arg(long, value_name = "FILE", requires = "client_id")]
    pub(crate) client_secret_file: Option<PathBuf>,

    /// OAuth scope to request; repeatable
    #[arg(long = "scope", value_name = "SCOPE")]
    pub(crate) scopes: Vec<String>,

    /// Port of the redirect URI `http://127.0.0.1:PORT/callback`, if it is registered; 0 picks a free port
    #[arg(long, value_name = "PORT", default_value = "0")]
    pub(crate) redirect_port: u16,
}

/// Arguments of `doctor`: a server to connect to, or a server of the hub.
#[derive(Args)]
pub(super) struct DoctorArgs {
    /// Diagnose a server of the running hub (slug or id)
    #[arg(long, value_name = "SERVER", conflicts_with = "url_or_command")]
    pub(super) server: Option<String>,

    /// Agent whose sign-in to check (name or id), if each agent has its own credentials
    #[arg(long, requires = "server")]
    pub(super) agent: Option<String>,

    #[command(flatten)]
    pub(super) target: TargetArgs,
}

impl TargetArgs {
    pub(super) fn target(self, verbose: bool) -> Result<Target, CliError> {
        if self.url_or_command.is_empty() {
            let text = "missing <URL|COMMAND>: give the URL of a server, or the command that starts it";
            return Err(CliError::usage(text));
        }
        let target = TargetServer::parse(self.url_or_command, self.headers)?;
        let screen = Arc::new(Screen::new());
        let (timeout, revision) = (self.timeout, self.revision);
        Ok(Target { server: target, timeout, revision, verbose, screen, sign_in: self.sign_in, trace: None })
    }
}
