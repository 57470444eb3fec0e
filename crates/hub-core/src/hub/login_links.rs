//! Login links: each logs the local user in once. At startup the hub shows one while no user has a password; the
//! operator can create one at any time. The store contains only their digests, so that they work at every hub and
//! cannot be read from the store.

use std::cmp::Reverse;
use std::time::Duration;

use jiff::Timestamp;
use linchpin::auth::Secret;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::authenticator::{secret, unauthorized};
use super::oauth::CALLBACK;
use super::sessions::{Remote, SignedIn};
use super::users::User;
use super::{Hub, LOCAL, LOCAL_USER, document, put, without_parts};
use crate::digest::Digest;
use crate::error::{self, Error, Result};
use crate::store::{Batch, Change, Key, Kind};

/// Lifetime of a link.
const LONGEST: Duration = Duration::from_mins(15);
/// Maximum number of valid links.
const MOST: usize = 16;

const REFUSED: &str = "this login link is not valid any more: it works once, for 15 minutes, and until another is used or a \
                       password is set; run `linchpin login-link` for a new one, or log in with the password";

/// One-time login link.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct LoginLink {
    /// URL to open in a browser. It works once.
    pub url: String,
    /// Time at which it expires.
    #[schemars(with = "String")]
    pub expires: Timestamp,
}

/// Stored login link.
#[derive(Serialize, Deserialize)]
struct Link {
    id: String,
    until: Timestamp,
    /// Whether the operator created it. It is then valid even if a user has a password, for example when a name is
    /// locked.
    #[serde(default)]
    by_operator: bool,
}

/// Derives the document id of a link.
fn link_id(link: &Secret) -> String {
    Digest::of("linchpin link").part(link.expose()).end().to_string()
}

impl Hub {
    /// Creates a secret that logs the local user in once, within 15 minutes, at any hub on the same store. Using one
    /// invalidates all others; creating one does not, since each hub shows its own. Returns `None` if a user has a
    /// password.
    pub async fn one_time(&self) -> Result<Option<Secret>> {
        if self.has_password().await? {
            return Ok(None);
        }
        self.new_link(false).await.map(Some)
    }

    async fn new_link(&self, by_operator: bool) -> Result<Secret> {
        let secret = secret(&*self.world);
        let link = Link { id: link_id(&secret), until: self.world.now() + LONGEST, by_operator };
        let document = document(Kind::Link, &link.id, &link)?.of(LOCAL_USER);
        self.store.commit(LOCAL, Batch::new().change(put(document, 0))).await?;
        if let Err(error) = self.sweep_links(&link).await {
            tracing::warn!(%error, "failed to delete expired login links");
        }
        Ok(secret)
    }

    /// Creates a one-time login link for the local user. Only for the operator on the machine of the hub, who could set
    /// the password as well.
    pub async fn login_link(&self) -> Result<LoginLink> {
        let base = self.options.callback.as_deref().and_then(|url| url.strip_suffix(CALLBACK));
        let base = base.ok_or_else(|| {
            let text = "this hub has no URL for browsers";
            Error::new(error::Kind::Unavailable, "no_address", text)
        })?;
        let expires = self.world.now() + LONGEST;
        let secret = self.new_link(true).await?;
        Ok(LoginLink { url: format!("{base}/sign-in?token={}", secret.expose()), expires })
    }

    /// Deletes expired links, and the oldest ones beyond the limit.
    async fn sweep_links(&self, newest: &Link) -> Result<()> {
        let mut all = self.all::<Link>(LOCAL, Kind::Link, Some(&LOCAL_USER.to_string())).await?;
        all.retain(|(link, _)| link.id != newest.id);
        all.sort_by_key(|(link, _)| Reverse(link.until));
        let now = self.world.now();
        for ((link, _), count) in all.into_iter().zip(2..) {
            if count > MOST || now >= link.until {
                self.forget(LOCAL, Key::new(Kind::Link, link.id)).await?;
            }
        }
        Ok(())
    }

    /// Logs the local user in with a link of any hub. Of several concurrent attempts, one succeeds. The password
    /// throttle does not apply: a link cannot be guessed.
    pub async fn sign_in_once(&self, given: &Secret, from: &Remote) -> Result<SignedIn> {
        let id = link_id(given);
        let found = self.find::<Link>(LOCAL, Kind::Link, &id).await?;
        let refused = || unauthorized(REFUSED);
        let (link, _) = found.filter(|(link, _)| self.world.now() < link.until).ok_or_else(refused)?;
        if !link.by_operator && self.has_password().await? {
            return Err(refused());
        }
        let (user, _) = self.need::<User>(LOCAL, Kind::User, LOCAL_USER).await?;
        let gone = vec![Change::Remove(Key::new(Kind::Link, id)), without_parts(Kind::Link, LOCAL_USER)];
        self.begin_session(LOCAL, &user, "link", from, gone).await.map_err(|error| match error.kind() {
            error::Kind::NotFound | error::Kind::Conflict => unauthorized(REFUSED),
            _ => error,
        })
    }
}
