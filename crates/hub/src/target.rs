//! A server for one command: started or reached, listened to, and let go with everything it started, whatever happens.

use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::time::Duration;

use linchpin::client::Command;
use linchpin::egress::Egress;
use linchpin::model::Implementation;
use linchpin::{Client, ClientBuilder, ClientError, Revision};

use crate::cli::SignIn;
use crate::doctor::{Trace, Watched};
use crate::failure::{Failure, Kind};
use crate::heard::Heard;
use crate::sign_in;
use crate::signals::Signals;
use crate::terminal::Screen;

/// Where a server is.
pub(crate) enum Place {
    /// A process to be started: its program and arguments.
    Command(Vec<OsString>),
    /// An address, and headers for every request.
    Url(String, Vec<(String, String)>),
}

impl Place {
    /// What was typed: a URL, or a command.
    pub(crate) fn parse(words: Vec<OsString>, headers: Vec<(String, String)>) -> Result<Self, Failure> {
        let is_url = |word: &OsStr| {
            let word = word.to_string_lossy().to_ascii_lowercase();
            word.starts_with("http://") || word.starts_with("https://")
        };
        match &words[..] {
            [url] if is_url(url) => Ok(Place::Url(url.to_string_lossy().into_owned(), headers)),
            [url, extra, ..] if is_url(url) => {
                let extra = extra.to_string_lossy();
                Err(Failure::usage(format!(
                    "`{extra}` comes after a URL, which takes nothing: give options before it"
                )))
            }
            _ if !headers.is_empty() => {
                Err(Failure::usage("--header is for a URL: a command has no headers"))
            }
            _ => Ok(Place::Command(words)),
        }
    }
}

/// Which server, and how patient to be with it.
pub(crate) struct Target {
    pub(crate) place: Place,
    pub(crate) timeout: Duration,
    /// The protocol revision, if it is pinned.
    pub(crate) revision: Option<Revision>,
    pub(crate) verbose: bool,
    pub(crate) screen: Arc<Screen>,
    /// How to sign in.
    pub(crate) sign_in: SignIn,
    /// Is told of every step on the way.
    pub(crate) trace: Option<Arc<Trace>>,
}

impl Target {
    /// Starts or reaches the server, does the work and lets the server go. `dress` gives the client its handlers.
    pub(crate) async fn with<T>(
        self,
        dress: impl FnOnce(ClientBuilder) -> ClientBuilder,
        work: impl AsyncFnOnce(&Client) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut signals = Signals::new()?;
        let heard = Arc::new(Heard::new(self.screen.clone(), self.verbose));
        let builder = self
            .client(&heard)?
            .info(Implementation::new("linchpin", env!("CARGO_PKG_VERSION")))
            .timeout(self.timeout)
            .open_timeout(self.timeout);
        let builder = match self.revision {
            Some(revision) => builder.revisions([revision]),
            None => builder,
        };
        let result = match signals.or(Box::pin(dress(builder).connect())).await? {
            Ok(client) => {
                let result = signals.or(work(&client)).await;
                self.screen.clear();
                // In good order; a signal while that takes its time makes it quick.
                let _ = signals.or(client.close()).await;
                result.and_then(|result| result)
            }
            Err(error) => Err(self.not_connected(error)),
        };
        heard.show_stray();
        result.map_err(|failure| failure.with_words(heard.words()))
    }

    fn client(&self, heard: &Arc<Heard>) -> Result<ClientBuilder, Failure> {
        let Place::Url(url, headers) = &self.place else {
            return Ok(Client::command(self.command(heard)).boxed());
        };
        let mut client = Client::http(url);
        for (name, value) in headers {
            client = client.header(name, value);
        }
        // Whoever says who they are by a header of their own need not sign in.
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization")) {
            let oauth = sign_in::oauth(&self.screen, &self.sign_in)?;
            client = match self.trace.clone() {
                Some(trace) => client.auth(Watched::new(oauth, trace)),
                None => client.auth(oauth),
            };
        }
        if let Some(trace) = &self.trace {
            let (hops, words) = (trace.clone(), trace.clone());
            let egress = Egress::builder().on_hop(move |hop| hops.hop(hop)).build();
            let egress = egress.map_err(|error| Failure::new(Kind::Other, error.to_string()))?;
            client = client.egress(egress).on_diagnostic(move |line| words.diagnostic(line));
        } else if self.verbose {
            let screen = self.screen.clone();
            client = client.on_diagnostic(move |line| screen.aside(&format!("http | {line}")));
        }
        Ok(client.boxed())
    }

    fn not_connected(&self, error: ClientError) -> Failure {
        match Failure::from(error) {
            Failure { kind: Kind::Timeout, .. } => {
                let advice = match self.place {
                    Place::Command(_) => {
                        "is it an MCP server that speaks on stdio? --timeout gives it longer"
                    }
                    Place::Url(..) => "is it an MCP server? --timeout gives it longer",
                };
                Failure::new(
                    Kind::Timeout,
                    format!("the server did not answer within {:?}: {advice}", self.timeout),
                )
            }
            failure => failure,
        }
    }

    fn command(&self, heard: &Arc<Heard>) -> Command {
        let (words, strays) = (heard.clone(), heard.clone());
        let typed = match &self.place {
            Place::Command(typed) => &typed[..],
            Place::Url(..) => &[],
        };
        let (program, args) =
            typed.split_first().map_or((OsString::new(), &[][..]), |(program, args)| (program.clone(), args));
        Command::new(program)
            .args(args)
            .on_stderr(move |line| words.on_stderr(line))
            .on_stdout(move |line| strays.on_stdout(line))
    }
}
