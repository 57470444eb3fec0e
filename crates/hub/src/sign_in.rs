//! Signing in to servers from the command line: the URL is shown, the browser comes back to this machine, and what was
//! given is kept encrypted, so that the next command needs nobody.

use std::path::PathBuf;
use std::sync::Arc;

use linchpin::auth::{FileStore, Loopback, OAuth};

use crate::failure::{Failure, Kind};
use crate::terminal::Screen;

/// How a command signs in. Nobody is asked where nobody sees the question, unless `ask` says so.
pub(crate) fn oauth(screen: &Arc<Screen>, ask: bool) -> OAuth {
    let oauth = OAuth::new("Linchpin");
    // Most servers want no sign-in: that none can be kept matters when there is one.
    let (oauth, not_kept) = match store() {
        Ok(store) => (oauth.store(store), String::new()),
        Err(failure) => (oauth, format!("\nIt will be forgotten when this command ends: {failure}\n")),
    };
    if !ask && !screen.look.is_terminal {
        return oauth;
    }
    let screen = screen.clone();
    oauth.person(Loopback::new(move |url| {
        let question = "The server wants to know who you are. Open this in a browser to sign in:";
        screen.line(&format!("{question}\n\n  {url}\n{not_kept}"));
    }))
}

/// Where sign-ins are kept, with their key elsewhere: a copy of one is worth nothing without the other.
fn store() -> Result<FileStore, Failure> {
    let kept = directory("XDG_DATA_HOME", ".local/share")?.join("sign-ins");
    let key = directory("XDG_CONFIG_HOME", ".config")?.join("sign-ins.key");
    FileStore::open(kept, key).map_err(|error| Failure::new(Kind::Other, error.to_string()))
}

/// A directory of this program's own below one that a variable names, or below the home directory.
fn directory(variable: &str, otherwise: &str) -> Result<PathBuf, Failure> {
    let named = std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(otherwise));
    let nowhere =
        || Failure::new(Kind::Other, format!("sign-ins cannot be kept: neither {variable} nor HOME is set"));
    Ok(named.or_else(home).ok_or_else(nowhere)?.join("linchpin"))
}

/// Forgets the sign-in to a server and gives its token back.
pub(crate) async fn sign_out(url: &str) -> Result<(), Failure> {
    let oauth = OAuth::new("Linchpin").store(store()?);
    let done = oauth.sign_out(url, &linchpin::egress::Egress::default()).await;
    done.map_err(|error| Failure::new(Kind::Other, error.to_string()))
}
