//! OAuth sign-in from the command line: the authorization URL is printed, the browser is redirected to a loopback
//! port, and the grant is stored encrypted, so that later commands need no user.

use std::sync::Arc;

use linchpin::auth::{FileStore, Loopback, OAuth};

use crate::cli::SignInArgs;
use crate::config::{env_variable, own_directory};
use crate::error::{CliError, CliErrorKind};
use crate::terminal::Screen;

/// Client name shown to the user by the authorization server.
const CLIENT_NAME: &str = "Linchpin";

/// Creates the OAuth client of a command. Without a terminal, the user is prompted only if `--sign-in` is given.
pub(crate) fn oauth_client(screen: &Arc<Screen>, args: &SignInArgs) -> Result<OAuth, CliError> {
    let mut oauth = registered_client(args)?;
    if !args.scopes.is_empty() {
        oauth = oauth.scopes(&args.scopes);
    }
    // Most servers require no sign-in, so an unusable store is reported only when a sign-in happens.
    let (oauth, store_warning) = match store() {
        Ok(store) => (oauth.store(store), String::new()),
        Err(failure) => {
            (oauth, format!("\nThe sign-in is not stored and ends with this command: {failure}\n"))
        }
    };
    if !args.sign_in && !screen.style.is_terminal {
        return Ok(oauth);
    }
    let screen = screen.clone();
    let loopback = Loopback::new(move |url| {
        let prompt = "The server requires a sign-in. Open this URL in a browser:";
        screen.line(&format!("{prompt}\n\n  {url}\n{store_warning}"));
    });
    Ok(oauth.redirect_handler(loopback.port(args.redirect_port)))
}

/// Creates the OAuth client with its identifier and secret, if given.
fn registered_client(args: &SignInArgs) -> Result<OAuth, CliError> {
    let oauth = OAuth::new(CLIENT_NAME);
    let secret = args.client_secret_file.as_ref().map(|file| {
        let secret = std::fs::read_to_string(file).map(|secret| secret.trim().to_owned());
        secret.map_err(|error| CliError::usage(format!("failed to read {}: {error}", file.display())))
    });
    Ok(match (&args.client_id, secret.transpose()?) {
        (None, _) => oauth,
        (Some(id), None) => oauth.client(id),
        (Some(id), Some(secret)) => oauth.client_secret(id, secret),
    })
}

/// Opens the store of the OAuth grants of commands. Its key is in another directory, so that a copy of one is useless
/// without the other.
fn store() -> Result<FileStore, CliError> {
    let folder = own_directory(&env_variable, "XDG_DATA_HOME", ".local/share")?.join("sign-ins");
    let key = own_directory(&env_variable, "XDG_CONFIG_HOME", ".config")?.join("sign-ins.key");
    FileStore::open(folder, key).map_err(|error| CliError::new(CliErrorKind::Other, error.to_string()))
}

/// Deletes the grant for a server and revokes its tokens.
pub(crate) async fn sign_out(url: &str, client_id: Option<String>) -> Result<(), CliError> {
    let oauth = OAuth::new(CLIENT_NAME).store(store()?);
    let oauth = client_id.into_iter().fold(oauth, OAuth::client);
    let done = oauth.sign_out(url, &linchpin::egress::Egress::default()).await;
    if done.map_err(|error| CliError::new(CliErrorKind::Other, error.to_string()))? {
        return Ok(());
    }
    Err(CliError::new(
        CliErrorKind::Other,
        "no sign-in to this server is stored: check the URL and --client-id",
    ))
}
