//! Signing in to servers from the command line: the URL is shown, the browser comes back to this machine, and what was
//! given is kept encrypted, so that the next command needs nobody.

use std::sync::Arc;

use linchpin::auth::{FileStore, Loopback, OAuth};

use crate::cli::SignIn;
use crate::config::{directory, variable};
use crate::failure::{Failure, Kind};
use crate::terminal::Screen;

/// What people are told wants to come in.
const NAME: &str = "Linchpin";

/// How a command signs in. Nobody is asked where nobody sees the question, unless that is wanted.
pub(crate) fn oauth(screen: &Arc<Screen>, wanted: &SignIn) -> Result<OAuth, Failure> {
    let mut oauth = client(wanted)?;
    if !wanted.scopes.is_empty() {
        oauth = oauth.scopes(&wanted.scopes);
    }
    // Most servers want no sign-in: that none can be kept matters when there is one.
    let (oauth, not_kept) = match store() {
        Ok(store) => (oauth.store(store), String::new()),
        Err(failure) => (oauth, format!("\nIt will be forgotten when this command ends: {failure}\n")),
    };
    if !wanted.ask && !screen.look.is_terminal {
        return Ok(oauth);
    }
    let screen = screen.clone();
    let person = Loopback::new(move |url| {
        let question = "The server wants to know who you are. Open this in a browser to sign in:";
        screen.line(&format!("{question}\n\n  {url}\n{not_kept}"));
    });
    Ok(oauth.person(person.port(wanted.redirect_port)))
}

/// Who the client is.
fn client(wanted: &SignIn) -> Result<OAuth, Failure> {
    let oauth = OAuth::new(NAME);
    let secret = wanted.client_secret_file.as_ref().map(|file| {
        let secret = std::fs::read_to_string(file).map(|secret| secret.trim().to_owned());
        secret.map_err(|error| Failure::usage(format!("{} cannot be read: {error}", file.display())))
    });
    Ok(match (&wanted.client_id, secret.transpose()?) {
        (None, _) => oauth,
        (Some(id), None) => oauth.client(id),
        (Some(id), Some(secret)) => oauth.client_secret(id, secret),
    })
}

/// Where sign-ins are kept, with their key elsewhere: a copy of one is worth nothing without the other.
fn store() -> Result<FileStore, Failure> {
    let kept = directory(&variable, "XDG_DATA_HOME", ".local/share")?.join("sign-ins");
    let key = directory(&variable, "XDG_CONFIG_HOME", ".config")?.join("sign-ins.key");
    FileStore::open(kept, key).map_err(|error| Failure::new(Kind::Other, error.to_string()))
}

/// Forgets the sign-in to a server and gives its token back.
pub(crate) async fn sign_out(url: &str, client_id: Option<String>) -> Result<(), Failure> {
    let oauth = OAuth::new(NAME).store(store()?);
    let oauth = client_id.into_iter().fold(oauth, OAuth::client);
    let done = oauth.sign_out(url, &linchpin::egress::Egress::default()).await;
    if done.map_err(|error| Failure::new(Kind::Other, error.to_string()))? {
        return Ok(());
    }
    Err(Failure::new(Kind::Other, "there is no sign-in to this server, so nothing was forgotten"))
}
