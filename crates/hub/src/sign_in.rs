//! OAuth sign-in from the command line: the authorization URL is printed, the browser is redirected to a loopback
//! port, and the grant is stored encrypted, so that later commands need no user.

use std::sync::Arc;

use linchpin::auth::{FileStore, Loopback, OAuth};

use crate::cli::SignIn;
use crate::config::{directory, variable};
use crate::error::{Failure, Kind};
use crate::terminal::Screen;

/// Client name shown to the user by the authorization server.
const NAME: &str = "Linchpin";

/// Creates the OAuth client of a command. Without a terminal, the user is prompted only if `--sign-in` is given.
pub(crate) fn oauth(screen: &Arc<Screen>, wanted: &SignIn) -> Result<OAuth, Failure> {
    let mut oauth = client(wanted)?;
    if !wanted.scopes.is_empty() {
        oauth = oauth.scopes(&wanted.scopes);
    }
    // Most servers require no sign-in, so an unusable store is reported only when a sign-in happens.
    let (oauth, not_kept) = match store() {
        Ok(store) => (oauth.store(store), String::new()),
        Err(failure) => {
            (oauth, format!("\nThe sign-in is not stored and ends with this command: {failure}\n"))
        }
    };
    if !wanted.ask && !screen.look.is_terminal {
        return Ok(oauth);
    }
    let screen = screen.clone();
    let person = Loopback::new(move |url| {
        let question = "The server requires a sign-in. Open this URL in a browser:";
        screen.line(&format!("{question}\n\n  {url}\n{not_kept}"));
    });
    Ok(oauth.person(person.port(wanted.redirect_port)))
}

/// Creates the OAuth client with its identifier and secret, if given.
fn client(wanted: &SignIn) -> Result<OAuth, Failure> {
    let oauth = OAuth::new(NAME);
    let secret = wanted.client_secret_file.as_ref().map(|file| {
        let secret = std::fs::read_to_string(file).map(|secret| secret.trim().to_owned());
        secret.map_err(|error| Failure::usage(format!("failed to read {}: {error}", file.display())))
    });
    Ok(match (&wanted.client_id, secret.transpose()?) {
        (None, _) => oauth,
        (Some(id), None) => oauth.client(id),
        (Some(id), Some(secret)) => oauth.client_secret(id, secret),
    })
}

/// Opens the store of grants. Its key is in another directory, so that a copy of one is useless without the other.
fn store() -> Result<FileStore, Failure> {
    let kept = directory(&variable, "XDG_DATA_HOME", ".local/share")?.join("sign-ins");
    let key = directory(&variable, "XDG_CONFIG_HOME", ".config")?.join("sign-ins.key");
    FileStore::open(kept, key).map_err(|error| Failure::new(Kind::Other, error.to_string()))
}

/// Deletes the grant for a server and revokes its tokens.
pub(crate) async fn sign_out(url: &str, client_id: Option<String>) -> Result<(), Failure> {
    let oauth = OAuth::new(NAME).store(store()?);
    let oauth = client_id.into_iter().fold(oauth, OAuth::client);
    let done = oauth.sign_out(url, &linchpin::egress::Egress::default()).await;
    if done.map_err(|error| Failure::new(Kind::Other, error.to_string()))? {
        return Ok(());
    }
    Err(Failure::new(Kind::Other, "no sign-in to this server is stored"))
}
