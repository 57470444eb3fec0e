//! A server that is tried out by itself, without the hub.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use linchpin::Revision;

use super::duration::parse as parse_duration;
use super::{parse_header, parse_revision};
use crate::failure::Failure;
use crate::target::{Place, Target};
use crate::terminal::Screen;

/// A server that is tried out.
#[derive(Args)]
pub(super) struct Tried {
    /// Request timeout, such as 45s or 500ms; a plain number is in seconds. Progress extends it, up to ten times
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    timeout: Duration,

    /// Pin the protocol revision. Default: the newest that both sides support
    #[arg(long, value_parser = parse_revision)]
    revision: Option<Revision>,

    /// A header for every request to a URL, such as 'Authorization: Bearer …'; may be given again
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = parse_header)]
    headers: Vec<(String, String)>,

    #[command(flatten)]
    sign_in: SignIn,

    /// The URL of the server, or the command that starts it, as you would type it; everything after the command's
    /// name is the server's
    #[arg(trailing_var_arg = true, value_name = "URL|COMMAND")]
    place: Vec<OsString>,
}

/// How to sign in to a URL.
#[derive(Args)]
pub(crate) struct SignIn {
    /// Sign in when the server wants that, also where no terminal shows the URL to open
    #[arg(long = "sign-in")]
    pub(crate) ask: bool,

    /// The id of a client that was registered for this by hand
    #[arg(long, value_name = "ID")]
    pub(crate) client_id: Option<String>,

    /// The file that holds the secret of that client
    #[arg(long, value_name = "FILE", requires = "client_id")]
    pub(crate) client_secret_file: Option<PathBuf>,

    /// Ask for this scope; may be given again
    #[arg(long = "scope", value_name = "SCOPE")]
    pub(crate) scopes: Vec<String>,

    /// The port that the browser comes back to, http://127.0.0.1:PORT/callback, for clients that were registered with it
    #[arg(long, value_name = "PORT", default_value = "0")]
    pub(crate) redirect_port: u16,
}

/// A server that is tried out, or one of the hub that is asked about.
#[derive(Args)]
pub(super) struct Examined {
    /// A server of the hub that runs, by its short name or id: what the hub knows of it
    #[arg(long, value_name = "SERVER", conflicts_with = "place")]
    pub(super) server: Option<String>,

    /// The agent whose sign-in it is about, by its name or id, where each has its own
    #[arg(long, requires = "server")]
    pub(super) agent: Option<String>,

    #[command(flatten)]
    pub(super) tried: Tried,
}

impl Tried {
    pub(super) fn target(self, verbose: bool) -> Result<Target, Failure> {
        if self.place.is_empty() {
            let text = "<URL|COMMAND> is missing: give the URL of a server, or the command that starts it";
            return Err(Failure::usage(text));
        }
        let place = Place::parse(self.place, self.headers)?;
        let screen = Arc::new(Screen::new());
        let (timeout, revision) = (self.timeout, self.revision);
        Ok(Target { place, timeout, revision, verbose, screen, sign_in: self.sign_in, trace: None })
    }
}
