//! Browser sessions: login, lookup, expiry and logout. A cookie holds a secret of which the hub stores only the digest:
//! a reader of the store cannot use a session.

use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use linchpin::auth::Secret;
use serde::{Deserialize, Serialize};

use super::authenticator::{network, random_secret, unauthenticated};
use super::hash_queue::QueueOwner;
use super::login_rejections::{LoginRejectionReason, RejectedLogin};
use super::login_throttle::AttemptLimit;
use super::users::{UserRecord, UserView};
use crate::actor::{Actor, Subject};
use crate::digest::Digest;
use crate::error::{self, Error, Result};
use crate::hub::identity::Identity;
use crate::hub::{document, event_payloads, upsert};
use crate::id::{TenantId, UserId};
use crate::store::{Batch, Document, DocumentKey, DocumentKind, StoreChange};

/// Maximum lifetime of a browser session.
const SESSION_TTL: Duration = Duration::from_hours(12);
/// Idle time after which a browser session ends.
const SESSION_IDLE_TTL: Duration = Duration::from_mins(30);
/// Minimum time between two updates of the last use of a browser session.
const TOUCH_INTERVAL: Duration = Duration::from_mins(1);

/// Failed logins with one name from one source, before the first wait.
const FREE_ATTEMPTS_PER_SOURCE: u32 = 5;
/// Failed logins with one name from all sources, before the first wait.
const FREE_ATTEMPTS_PER_NAME: u32 = 100;

const MSG_WRONG_CREDENTIALS: &str = "wrong name or password";

/// Browser session of a user after login, as stored.
#[derive(Serialize, Deserialize)]
pub(in crate::hub) struct BrowserSessionRecord {
    id: String,
    user: UserId,
    /// Number of password changes of the user at the time of the login; a later change ends the session.
    #[serde(rename = "passwords")]
    password_version: u32,
    created: Timestamp,
    #[serde(rename = "used")]
    last_used: Timestamp,
    /// Host and port that the session is valid for. Empty in sessions of earlier versions, which are invalid.
    #[serde(default)]
    host: String,
}

/// Client that sent an HTTP request to the hub: address, requested host, and user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestClient {
    /// Address of the client, or of the proxy in front of it.
    pub address: Option<IpAddr>,
    /// Host and port that the request names. A session that it starts is valid only for these.
    pub host: String,
    /// User of the session or token of the request, if any.
    pub user: Option<UserId>,
}

impl RequestClient {
    pub(in crate::hub) fn source(&self) -> Option<IpAddr> {
        self.address.map(network)
    }
}

/// New browser session with its cookie and CSRF token, after a login or a change of the password.
#[derive(Debug, Clone)]
pub struct NewSession {
    /// Value of the session cookie.
    pub cookie: Secret,
    /// CSRF token that pages send with every change.
    pub csrf: Secret,
    /// Tenant and subject of the logged-in user.
    pub actor: Actor,
    /// User who has logged in.
    pub user: UserView,
    /// Time at which the session ends at the latest.
    pub expires: Timestamp,
}

impl BrowserSessionRecord {
    pub(in crate::hub) fn document(&self) -> Result<Document> {
        Ok(document(DocumentKind::Session, &self.id, self)?.with_parent(self.user))
    }

    fn is_expired(&self, now: Timestamp) -> bool {
        now >= self.created + SESSION_TTL || now >= self.last_used + SESSION_IDLE_TTL
    }
}

/// Derives the document id of a session from its cookie.
pub(in crate::hub) fn session_id(cookie: &Secret) -> String {
    Digest::of("linchpin session").part(cookie.expose()).finish().to_string()
}

/// Derives the CSRF token from the cookie. It is not stored.
fn csrf_token(cookie: &Secret) -> Secret {
    Secret::new(Digest::of("linchpin csrf").part(cookie.expose()).finish().to_string())
}

/// Returns the limits of failed logins with a name: per source address, so that others are not locked out, and in
/// total.
fn name_limits(tenant: TenantId, name: &str, source: Option<IpAddr>) -> Vec<AttemptLimit> {
    let key = || Digest::of("linchpin sign-in").part(tenant.to_string()).part(name);
    let source = source.map(|source| source.to_string()).unwrap_or_default();
    vec![
        AttemptLimit { key: key().part(source).finish(), free_attempts: FREE_ATTEMPTS_PER_SOURCE },
        AttemptLimit { key: key().finish(), free_attempts: FREE_ATTEMPTS_PER_NAME },
    ]
}

/// Returns the limit of wrong passwords of a logged-in user: a stolen session must not help to guess the password.
pub(in crate::hub) fn user_limit(user: UserId) -> AttemptLimit {
    AttemptLimit {
        key: Digest::of("linchpin password").part(user.to_string()).finish(),
        free_attempts: FREE_ATTEMPTS_PER_SOURCE,
    }
}

impl Identity {
    /// Logs a user in with a password. Each login starts a new session.
    pub async fn log_in(
        &self,
        tenant: TenantId,
        name: &str,
        password: &Secret,
        from: &RequestClient,
    ) -> Result<NewSession> {
        let (name, source) = (name.trim(), from.source());
        let user = self.find_user_by_name(tenant, name).await?;
        let own_user = user.as_ref().map(|user| user.id).filter(|id| from.user == Some(*id));
        let ticket =
            self.authenticator.enqueue(own_user.map_or(QueueOwner::Source(source), QueueOwner::User))?;
        // Wrong passwords of others must not lock out a user who is already logged in.
        let limits =
            own_user.map_or_else(|| name_limits(tenant, name, source), |user| vec![user_limit(user)]);
        let reason = LoginRejectionReason::WrongPassword;
        let rejected = RejectedLogin { tenant, user: user.as_ref().map(|user| user.id), source, reason };
        self.count_attempt(&limits, &rejected)?;
        let record = user.as_ref().and_then(|user| user.password.as_ref());
        let is_match = self.authenticator.verify_password(ticket, record, password).await?;
        let Some(user) = user.filter(|_| is_match) else {
            self.record_rejected_login(rejected);
            return Err(unauthenticated(MSG_WRONG_CREDENTIALS));
        };
        self.authenticator.throttle.clear(&limits);
        self.start_session(tenant, &user, "password", from, Vec::new()).await
    }

    async fn find_user_by_name(&self, tenant: TenantId, name: &str) -> Result<Option<UserRecord>> {
        let found = self.context.store.document_by_name(tenant, DocumentKind::User, name).await?;
        found.map(|stored| stored.document.parse_body()).transpose()
    }

    /// Counts a password attempt, or rejects it because of earlier failures.
    pub(in crate::hub) fn count_attempt(
        &self,
        limits: &[AttemptLimit],
        rejected: &RejectedLogin,
    ) -> Result<()> {
        let Err(wait) = self.authenticator.throttle.count_attempt(limits, self.context.platform.now()) else {
            return Ok(());
        };
        self.record_rejected_login(RejectedLogin {
            reason: LoginRejectionReason::TooManyAttempts,
            ..rejected.clone()
        });
        let text = format!("too many failed attempts: try again in {} s", error::ceil_seconds(wait));
        Err(Error::new(error::ErrorKind::LimitExceeded, "too_many_login_attempts", text)
            .with_retry_after(wait))
    }

    /// Creates a browser session for a user, together with the changes that permit it.
    pub(in crate::hub) async fn start_session(
        &self,
        tenant: TenantId,
        user: &UserRecord,
        by: &str,
        from: &RequestClient,
        changes: Vec<StoreChange>,
    ) -> Result<NewSession> {
        self.prune_sessions(tenant, user).await?;
        let require_user = StoreChange::RequireExists(DocumentKey::new(DocumentKind::User, user.id));
        let (signed_in, mut batch) =
            self.new_session(tenant, user, by, from, Batch::new().change(require_user))?;
        batch.changes.extend(changes);
        self.context.store.commit(tenant, batch).await?;
        Ok(signed_in)
    }

    /// Creates a session, and the batch that stores it.
    pub(in crate::hub) fn new_session(
        &self,
        tenant: TenantId,
        user: &UserRecord,
        by: &str,
        from: &RequestClient,
        batch: Batch,
    ) -> Result<(NewSession, Batch)> {
        let (cookie, now) = (random_secret(&*self.context.platform), self.context.platform.now());
        let (id, host) = (session_id(&cookie), from.host.clone());
        let session = BrowserSessionRecord {
            id,
            user: user.id,
            password_version: user.password_version,
            created: now,
            last_used: now,
            host,
        };
        let actor = Actor::new(tenant, Subject::User(user.id));
        let entry = self.context.entry(actor, "session.started").with("by", by);
        let batch = batch.change(upsert(session.document()?, 0)).audit(entry);
        let (csrf, expires) = (csrf_token(&cookie), now + SESSION_TTL);
        Ok((NewSession { cookie, csrf, actor, user: user.view(), expires }, batch))
    }

    /// Deletes the expired sessions of a user.
    async fn prune_sessions(&self, tenant: TenantId, user: &UserRecord) -> Result<()> {
        let now = self.context.platform.now();
        let all = self
            .context
            .load_all::<BrowserSessionRecord>(tenant, DocumentKind::Session, Some(&user.id.to_string()))
            .await?;
        for (session, _) in all {
            if session.is_expired(now) || session.password_version != user.password_version {
                self.context
                    .delete_if_present(tenant, DocumentKey::new(DocumentKind::Session, session.id))
                    .await?;
            }
        }
        Ok(())
    }

    /// Returns the user of a session cookie, and the CSRF token of its pages. `host` is the one that the request names.
    pub async fn session(&self, cookie: &Secret, host: &str) -> Result<Option<(Actor, Secret)>> {
        let Some((tenant, session, version)) = self.valid_session(cookie, host).await? else {
            return Ok(None);
        };
        let (actor, now) = (Actor::new(tenant, Subject::User(session.user)), self.context.platform.now());
        if now >= session.last_used + TOUCH_INTERVAL {
            let session = BrowserSessionRecord { last_used: now, ..session };
            let batch = Batch::new().change(upsert(session.document()?, version));
            // A concurrent request may have stored it already, and a full disk must not log the user out.
            if let Err(error) = self.context.store.commit(tenant, batch).await {
                tracing::debug!(%error, "failed to store the last use of a session");
            }
        }
        Ok(Some((actor, csrf_token(cookie))))
    }

    /// Returns the user of a session cookie without counting as a use of the session. For open streams.
    pub async fn peek_session(&self, cookie: &Secret, host: &str) -> Result<Option<Actor>> {
        let found = self.valid_session(cookie, host).await?;
        Ok(found.map(|(tenant, session, _)| Actor::new(tenant, Subject::User(session.user))))
    }

    /// Returns the browser session of a cookie if it is valid for this host.
    async fn valid_session(
        &self,
        cookie: &Secret,
        host: &str,
    ) -> Result<Option<(TenantId, BrowserSessionRecord, u64)>> {
        let Some((tenant, session, version)) = self.find_session(cookie).await? else { return Ok(None) };
        let user = self.context.load::<UserRecord>(tenant, DocumentKind::User, session.user).await?;
        let is_outdated = user.is_none_or(|(user, _)| user.password_version != session.password_version);
        let is_same_host = !host.is_empty() && session.host == host;
        let is_valid = !is_outdated && is_same_host && !session.is_expired(self.context.platform.now());
        Ok(is_valid.then_some((tenant, session, version)))
    }

    async fn find_session(&self, cookie: &Secret) -> Result<Option<(TenantId, BrowserSessionRecord, u64)>> {
        let found = self
            .context
            .store
            .document_in_any_tenant(&DocumentKey::new(DocumentKind::Session, session_id(cookie)))
            .await?;
        found.map(|(tenant, stored)| Ok((tenant, stored.document.parse_body()?, stored.version))).transpose()
    }

    /// Ends the browser session of this cookie. Succeeds if it has already ended.
    pub async fn log_out(&self, cookie: &Secret) -> Result<()> {
        let Some((tenant, session, _)) = self.find_session(cookie).await? else { return Ok(()) };
        let entry = self.context.entry(Actor::new(tenant, Subject::User(session.user)), "session.ended");
        let removed = StoreChange::Delete(DocumentKey::new(DocumentKind::Session, session_id(cookie)));
        let batch =
            Batch::new().change(removed).audit(entry).with_event(event_payloads::sessions(session.user));
        match self.upstream.commit_subject(tenant, batch, Subject::User(session.user)).await {
            Err(error) if error.kind() != error::ErrorKind::NotFound => Err(error),
            _ => Ok(()), // ended, or already ended elsewhere
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_stored_names_of_a_session_stay() {
        let stored = json!({
            "id": "a", "user": UserId::from_u128(1), "passwords": 2, "created": "2026-11-16T22:18:14Z",
            "used": "2026-11-16T22:19:14Z", "host": "hub.example",
        });
        let session: BrowserSessionRecord = serde_json::from_value(stored.clone()).unwrap();
        assert_eq!((session.password_version, session.last_used > session.created), (2, true));
        assert_eq!(serde_json::to_value(&session).unwrap(), stored);
    }
}
