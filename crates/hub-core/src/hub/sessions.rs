//! Browser sessions. A cookie holds a secret of which the hub stores only the digest: a reader of the store cannot use
//! a session.

use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use linchpin::auth::Secret;
use serde::{Deserialize, Serialize};

use super::authenticator::{network, secret, unauthorized};
use super::hash_queue::Lane;
use super::login_refusals::{Reason, Refused};
use super::login_throttle::Limit;
use super::users::{User, UserView};
use super::{Hub, document, event_payloads, put};
use crate::actor::{Scope, Subject};
use crate::digest::Digest;
use crate::error::{self, Error, Result};
use crate::id::{TenantId, UserId};
use crate::store::{Batch, Change, Document, Key, Kind};

/// Maximum lifetime of a session.
const LONGEST: Duration = Duration::from_hours(12);
/// Maximum idle time of a session.
const IDLE: Duration = Duration::from_mins(30);
/// Minimum time between updates of the last use.
const NOTED: Duration = Duration::from_mins(1);

/// Failed logins before the first wait: with one name from one source, and with one name from all sources.
const FREE_OF_SOURCE: u32 = 5;
const FREE_OF_NAME: u32 = 100;

const REFUSED: &str = "wrong name or password";

/// Stored session.
#[derive(Serialize, Deserialize)]
pub(super) struct Session {
    id: String,
    user: UserId,
    /// Password version of the user at the login.
    passwords: u32,
    created: Timestamp,
    used: Timestamp,
    /// Host and port that the session is valid for. Empty in sessions of earlier versions, which are invalid.
    #[serde(default)]
    host: String,
}

/// Client of a request, as the listener sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Remote {
    /// Address of the client, or of the proxy in front of it.
    pub address: Option<IpAddr>,
    /// Host and port that the request names. A session that it starts is valid only for these.
    pub host: String,
    /// User of the session or token of the request, if any.
    pub user: Option<UserId>,
}

impl Remote {
    pub(super) fn source(&self) -> Option<IpAddr> {
        self.address.map(network)
    }
}

/// Session of a user who has just logged in.
#[derive(Debug, Clone)]
pub struct SignedIn {
    /// Cookie value.
    pub cookie: Secret,
    /// CSRF token that pages send with every change.
    pub csrf: Secret,
    /// Actor of the session.
    pub scope: Scope,
    /// User of the session.
    pub user: UserView,
    /// Latest end of the session.
    pub expires: Timestamp,
}

impl Session {
    pub(super) fn document(&self) -> Result<Document> {
        Ok(document(Kind::Session, &self.id, self)?.of(self.user))
    }

    fn is_over(&self, now: Timestamp) -> bool {
        now >= self.created + LONGEST || now >= self.used + IDLE
    }
}

/// Derives the document id of a session.
pub(super) fn session_id(cookie: &Secret) -> String {
    Digest::of("linchpin session").part(cookie.expose()).end().to_string()
}

/// Derives the CSRF token from the cookie. It is not stored.
fn csrf(cookie: &Secret) -> Secret {
    Secret::new(Digest::of("linchpin csrf").part(cookie.expose()).end().to_string())
}

/// Limits of failed logins without a session: per source, so that others are not locked out, and in total.
fn limits_of_name(tenant: TenantId, name: &str, source: Option<IpAddr>) -> Vec<Limit> {
    let key = || Digest::of("linchpin sign-in").part(tenant.to_string()).part(name);
    let source = source.map(|source| source.to_string()).unwrap_or_default();
    vec![
        Limit { key: key().part(source).end(), free: FREE_OF_SOURCE },
        Limit { key: key().end(), free: FREE_OF_NAME },
    ]
}

/// Limit of wrong passwords of a logged-in user: a stolen session must not help to guess the password.
pub(super) fn limit_of_user(user: UserId) -> Limit {
    Limit { key: Digest::of("linchpin password").part(user.to_string()).end(), free: FREE_OF_SOURCE }
}

impl Hub {
    /// Logs a user in with a password. Each login starts a new session.
    pub async fn sign_in(
        &self,
        tenant: TenantId,
        name: &str,
        password: &Secret,
        from: &Remote,
    ) -> Result<SignedIn> {
        let (name, source) = (name.trim(), from.source());
        let user = self.user_named(tenant, name).await?;
        let own = user.as_ref().map(|user| user.id).filter(|id| from.user == Some(*id));
        let place = self.people.place(own.map_or(Lane::Source(source), Lane::User))?;
        // Wrong passwords of others must not lock out a user who is already logged in.
        let limits =
            own.map_or_else(|| limits_of_name(tenant, name, source), |user| vec![limit_of_user(user)]);
        let reason = Reason::WrongPassword;
        let refused = Refused { tenant, user: user.as_ref().map(|user| user.id), source, reason };
        self.begin_attempt(&limits, &refused)?;
        let kept = user.as_ref().and_then(|user| user.password.as_ref());
        let fits = self.people.fits(place, kept, password).await?;
        let Some(user) = user.filter(|_| fits) else {
            self.note_refused(refused);
            return Err(unauthorized(REFUSED));
        };
        self.people.tries.succeeded(&limits);
        self.begin_session(tenant, &user, "password", from, Vec::new()).await
    }

    async fn user_named(&self, tenant: TenantId, name: &str) -> Result<Option<User>> {
        let found = self.store.named(tenant, Kind::User, name).await?;
        found.map(|stored| stored.document.read()).transpose()
    }

    /// Counts a password attempt, or rejects it because of earlier failures.
    pub(super) fn begin_attempt(&self, limits: &[Limit], refused: &Refused) -> Result<()> {
        let Err(wait) = self.people.tries.begin(limits, self.world.now()) else { return Ok(()) };
        self.note_refused(Refused { reason: Reason::TooManyTries, ..refused.clone() });
        let text = format!("too many failed attempts: try again in {} s", error::seconds(wait));
        Err(Error::new(error::Kind::Exhausted, "too_many_tries", text).after(wait))
    }

    /// Starts a session, together with the changes that permit it.
    pub(super) async fn begin_session(
        &self,
        tenant: TenantId,
        user: &User,
        by: &str,
        from: &Remote,
        changes: Vec<Change>,
    ) -> Result<SignedIn> {
        self.sweep_sessions(tenant, user).await?;
        let person = Change::Need(Key::new(Kind::User, user.id));
        let (signed_in, mut batch) = self.new_session(tenant, user, by, from, Batch::new().change(person))?;
        batch.changes.extend(changes);
        self.store.commit(tenant, batch).await?;
        Ok(signed_in)
    }

    /// Creates a session, and the batch that stores it.
    pub(super) fn new_session(
        &self,
        tenant: TenantId,
        user: &User,
        by: &str,
        from: &Remote,
        batch: Batch,
    ) -> Result<(SignedIn, Batch)> {
        let (cookie, now) = (secret(&*self.world), self.world.now());
        let (id, host) = (session_id(&cookie), from.host.clone());
        let session = Session { id, user: user.id, passwords: user.passwords, created: now, used: now, host };
        let scope = Scope::new(tenant, Subject::User(user.id));
        let entry = self.entry(scope, "session.begun").with("by", by);
        let batch = batch.change(put(session.document()?, 0)).audit(entry);
        let (csrf, expires) = (csrf(&cookie), now + LONGEST);
        Ok((SignedIn { cookie, csrf, scope, user: user.view(), expires }, batch))
    }

    /// Deletes the expired sessions of a user.
    async fn sweep_sessions(&self, tenant: TenantId, user: &User) -> Result<()> {
        let now = self.world.now();
        let all = self.all::<Session>(tenant, Kind::Session, Some(&user.id.to_string())).await?;
        for (session, _) in all {
            if session.is_over(now) || session.passwords != user.passwords {
                self.forget(tenant, Key::new(Kind::Session, session.id)).await?;
            }
        }
        Ok(())
    }

    /// Returns the user of a session cookie, and the CSRF token of its pages. `host` is the one that the request names.
    pub async fn session(&self, cookie: &Secret, host: &str) -> Result<Option<(Scope, Secret)>> {
        let Some((tenant, session, version)) = self.known_session(cookie, host).await? else {
            return Ok(None);
        };
        let (scope, now) = (Scope::new(tenant, Subject::User(session.user)), self.world.now());
        if now >= session.used + NOTED {
            let session = Session { used: now, ..session };
            let batch = Batch::new().change(put(session.document()?, version));
            // A concurrent request may have stored it already, and a full disk must not log the user out.
            if let Err(error) = self.store.commit(tenant, batch).await {
                tracing::debug!(%error, "failed to store the last use of a session");
            }
        }
        Ok(Some((scope, csrf(cookie))))
    }

    /// Returns the user of a session cookie without counting as a use of the session. For open streams.
    pub async fn session_of(&self, cookie: &Secret, host: &str) -> Result<Option<Scope>> {
        let known = self.known_session(cookie, host).await?;
        Ok(known.map(|(tenant, session, _)| Scope::new(tenant, Subject::User(session.user))))
    }

    /// Returns the session of a cookie if it is valid for this host.
    async fn known_session(&self, cookie: &Secret, host: &str) -> Result<Option<(TenantId, Session, u64)>> {
        let Some((tenant, session, version)) = self.find_session(cookie).await? else { return Ok(None) };
        let user = self.find::<User>(tenant, Kind::User, session.user).await?;
        let is_of_before = user.is_none_or(|(user, _)| user.passwords != session.passwords);
        let is_here = !host.is_empty() && session.host == host;
        let is_valid = !is_of_before && is_here && !session.is_over(self.world.now());
        Ok(is_valid.then_some((tenant, session, version)))
    }

    async fn find_session(&self, cookie: &Secret) -> Result<Option<(TenantId, Session, u64)>> {
        let found = self.store.anywhere(&Key::new(Kind::Session, session_id(cookie))).await?;
        found.map(|(tenant, stored)| Ok((tenant, stored.document.read()?, stored.version))).transpose()
    }

    /// Ends a session. Succeeds if it has already ended.
    pub async fn sign_out(&self, cookie: &Secret) -> Result<()> {
        let Some((tenant, session, _)) = self.find_session(cookie).await? else { return Ok(()) };
        let entry = self.entry(Scope::new(tenant, Subject::User(session.user)), "session.ended");
        let gone = Change::Remove(Key::new(Kind::Session, session_id(cookie)));
        let batch = Batch::new().change(gone).audit(entry).tell(event_payloads::sessions(session.user));
        match self.commit_subject(tenant, batch, Subject::User(session.user)).await {
            Err(error) if error.kind() != error::Kind::NotFound => Err(error),
            _ => Ok(()), // ended, or already ended elsewhere
        }
    }
}
