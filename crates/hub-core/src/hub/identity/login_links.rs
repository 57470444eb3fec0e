//! Login links: each logs the local user in once. At startup the hub shows one while no user has a password; the
//! operator can create one at any time. The store contains only their digests, so that they work at every hub and
//! cannot be read from the store.

use std::cmp::Reverse;
use std::time::Duration;

use jiff::Timestamp;
use linchpin::auth::Secret;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::authenticator::{random_secret, unauthenticated};
use super::sessions::{NewSession, RequestClient};
use super::users::UserRecord;
use crate::digest::Digest;
use crate::error::{self, Error, Result};
use crate::hub::identity::Identity;
use crate::hub::upstream::oauth::CALLBACK;
use crate::hub::{LOCAL, LOCAL_USER, delete_children, document, upsert};
use crate::store::{Batch, DocumentKey, DocumentKind, StoreChange};

/// Lifetime of a login link.
const LINK_TTL: Duration = Duration::from_mins(15);
/// Maximum number of valid login links.
const MAX_LINKS: usize = 16;

const MSG_INVALID_LINK: &str = "this login link is not valid any more: it works once, for 15 minutes, and until another is used or a \
                       password is set; run `linchpin login-link` for a new one, or log in with the password";

/// URL that logs the local user in once, with its expiry time.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct LoginLink {
    /// URL to open in a browser, which it logs in as the local user. It works once.
    pub url: String,
    /// Time at which the login link expires.
    #[schemars(with = "String")]
    pub expires: Timestamp,
}

/// Login link as stored, under a digest of its token.
#[derive(Serialize, Deserialize)]
struct LoginLinkRecord {
    id: String,
    #[serde(rename = "until")]
    expires_at: Timestamp,
    /// Whether the operator created the login link. It is then valid even if a user has a password, for example when a
    /// name is locked.
    #[serde(default)]
    by_operator: bool,
}

/// Derives the document id of a login link from its secret.
fn link_id(link: &Secret) -> String {
    Digest::of("linchpin link").part(link.expose()).finish().to_string()
}

impl Identity {
    /// Creates a secret that logs the local user in once, within 15 minutes, at any hub on the same store. Using one
    /// invalidates all others; creating one does not, since each hub shows its own. Returns `None` if a user has a
    /// password.
    pub async fn create_login_link(&self) -> Result<Option<Secret>> {
        if self.has_password().await? {
            return Ok(None);
        }
        self.new_link(false).await.map(Some)
    }

    async fn new_link(&self, by_operator: bool) -> Result<Secret> {
        let secret = random_secret(&*self.context.platform);
        let link = LoginLinkRecord {
            id: link_id(&secret),
            expires_at: self.context.platform.now() + LINK_TTL,
            by_operator,
        };
        let document = document(DocumentKind::Link, &link.id, &link)?.with_parent(LOCAL_USER);
        self.context.store.commit(LOCAL, Batch::new().change(upsert(document, 0))).await?;
        if let Err(error) = self.prune_login_links(&link).await {
            tracing::warn!(%error, "failed to delete expired login links");
        }
        Ok(secret)
    }

    /// Creates a one-time login link for the local user. Only for the operator on the machine of the hub, who could set
    /// the password as well.
    pub async fn create_operator_login_link(&self) -> Result<LoginLink> {
        let base = self.context.options.callback.as_deref().and_then(|url| url.strip_suffix(CALLBACK));
        let base = base.ok_or_else(|| {
            let text = "this hub was started without a URL for browsers, so it cannot create a login link";
            Error::new(error::ErrorKind::Unavailable, "no_address", text)
        })?;
        let expires = self.context.platform.now() + LINK_TTL;
        let secret = self.new_link(true).await?;
        Ok(LoginLink { url: format!("{base}/sign-in?token={}", secret.expose()), expires })
    }

    /// Deletes expired login links, and the oldest ones beyond the limit.
    async fn prune_login_links(&self, newest: &LoginLinkRecord) -> Result<()> {
        let mut all = self
            .context
            .load_all::<LoginLinkRecord>(LOCAL, DocumentKind::Link, Some(&LOCAL_USER.to_string()))
            .await?;
        all.retain(|(link, _)| link.id != newest.id);
        all.sort_by_key(|(link, _)| Reverse(link.expires_at));
        let now = self.context.platform.now();
        for ((link, _), count) in all.into_iter().zip(2..) {
            if count > MAX_LINKS || now >= link.expires_at {
                self.context.delete_if_present(LOCAL, DocumentKey::new(DocumentKind::Link, link.id)).await?;
            }
        }
        Ok(())
    }

    /// Logs the local user in with a link of any hub. Of several concurrent attempts, one succeeds. The password
    /// throttle does not apply: a link cannot be guessed.
    pub async fn redeem_login_link(&self, secret: &Secret, from: &RequestClient) -> Result<NewSession> {
        let id = link_id(secret);
        let found = self.context.load::<LoginLinkRecord>(LOCAL, DocumentKind::Link, &id).await?;
        let rejected = || unauthenticated(MSG_INVALID_LINK);
        let (link, _) =
            found.filter(|(link, _)| self.context.platform.now() < link.expires_at).ok_or_else(rejected)?;
        if !link.by_operator && self.has_password().await? {
            return Err(rejected());
        }
        let (user, _) = self.context.require::<UserRecord>(LOCAL, DocumentKind::User, LOCAL_USER).await?;
        let removed = vec![
            StoreChange::Delete(DocumentKey::new(DocumentKind::Link, id)),
            delete_children(DocumentKind::Link, LOCAL_USER),
        ];
        self.start_session(LOCAL, &user, "link", from, removed).await.map_err(|error| match error.kind() {
            error::ErrorKind::NotFound | error::ErrorKind::Conflict => unauthenticated(MSG_INVALID_LINK),
            _ => error,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_stored_names_of_a_login_link_stay() {
        let stored = json!({ "id": "a", "until": "2026-11-16T22:18:14Z", "by_operator": true });
        let link: LoginLinkRecord = serde_json::from_value(stored.clone()).unwrap();
        assert_eq!(link.expires_at, "2026-11-16T22:18:14Z".parse::<Timestamp>().unwrap());
        assert_eq!(serde_json::to_value(&link).unwrap(), stored);
    }
}
