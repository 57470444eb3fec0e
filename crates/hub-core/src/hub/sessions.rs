//! People at a browser. A cookie holds a secret, and the hub keeps its digest: who reads the store cannot act as anybody.

use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use linchpin::auth::Secret;
use serde::{Deserialize, Serialize};

use super::people::{network, secret, unauthorized};
use super::queue::Lane;
use super::refused::{Reason, Refused};
use super::throttle::Limit;
use super::users::{User, UserView};
use super::{Hub, document, put, told};
use crate::digest::Digest;
use crate::error::{self, Error, Result};
use crate::id::{TenantId, UserId};
use crate::scope::{Scope, Subject};
use crate::store::{Batch, Change, Document, Key, Kind};

/// How long a session lasts.
const LONGEST: Duration = Duration::from_hours(12);
/// How long it lasts unused.
const IDLE: Duration = Duration::from_mins(30);
/// How exactly it is known when it was last used.
const NOTED: Duration = Duration::from_mins(1);

/// Failed sign-ins before the first wait: with one name from one source, and with one name from all sources.
const FREE_OF_SOURCE: u32 = 5;
const FREE_OF_NAME: u32 = 100;

const REFUSED: &str = "the name or the password is not right";

/// A session, as it is kept.
#[derive(Serialize, Deserialize)]
pub(super) struct Session {
    id: String,
    user: UserId,
    /// The password that the user had then.
    passwords: u32,
    created: Timestamp,
    used: Timestamp,
    /// Host and port that the session is valid for. Sessions of earlier versions have none, and end.
    #[serde(default)]
    host: String,
}

/// The client of a request, as the listener sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Remote {
    /// Address of the client, or of the proxy in front of it.
    pub address: Option<IpAddr>,
    /// Host and port that the request names. A session that it starts is valid for these alone.
    pub host: String,
    /// The user whose session or token the request has, if any.
    pub user: Option<UserId>,
}

impl Remote {
    pub(super) fn source(&self) -> Option<IpAddr> {
        self.address.map(network)
    }
}

/// Somebody has signed in.
#[derive(Debug, Clone)]
pub struct SignedIn {
    /// What the browser keeps.
    pub cookie: Secret,
    /// What pages send with whatever changes something.
    pub csrf: Secret,
    /// In whose name.
    pub scope: Scope,
    /// Who it is.
    pub user: UserView,
    /// When it ends, used or not.
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

/// Where the session of a cookie is kept.
pub(super) fn session_id(cookie: &Secret) -> String {
    Digest::of("linchpin session").part(cookie.expose()).end().to_string()
}

/// It is not kept either: whoever has the cookie can make it, and nobody else.
fn csrf(cookie: &Secret) -> Secret {
    Secret::new(Digest::of("linchpin csrf").part(cookie.expose()).end().to_string())
}

/// Limits of failed sign-ins without a session: of one source, so that others are not locked out, and of all together.
fn limits_of_name(tenant: TenantId, name: &str, source: Option<IpAddr>) -> Vec<Limit> {
    let key = || Digest::of("linchpin sign-in").part(tenant.to_string()).part(name);
    let source = source.map(|source| source.to_string()).unwrap_or_default();
    vec![
        Limit { key: key().part(source).end(), free: FREE_OF_SOURCE },
        Limit { key: key().end(), free: FREE_OF_NAME },
    ]
}

/// Limit of wrong passwords from a user who is signed in: a stolen session is no way to guess the password.
pub(super) fn limit_of_user(user: UserId) -> Limit {
    Limit { key: Digest::of("linchpin password").part(user.to_string()).end(), free: FREE_OF_SOURCE }
}

impl Hub {
    /// Signs a user in with a password. Each sign-in is a new session.
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
        // Wrong passwords of others do not lock out a user who is signed in already.
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

    /// Counts an attempt with a password, or refuses it because of those before.
    pub(super) fn begin_attempt(&self, limits: &[Limit], refused: &Refused) -> Result<()> {
        let Err(wait) = self.people.tries.begin(limits, self.world.now()) else { return Ok(()) };
        self.note_refused(Refused { reason: Reason::TooManyTries, ..refused.clone() });
        let text = format!("too many tries: wait {} s", error::seconds(wait));
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

    /// A new session, and the batch that stores it.
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

    /// Forgets what is over.
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

    /// The user of a session cookie, and the CSRF token of its pages. `host` is the one that the request names.
    pub async fn session(&self, cookie: &Secret, host: &str) -> Result<Option<(Scope, Secret)>> {
        let Some((tenant, session, version)) = self.known_session(cookie, host).await? else {
            return Ok(None);
        };
        let (scope, now) = (Scope::new(tenant, Subject::User(session.user)), self.world.now());
        if now >= session.used + NOTED {
            let session = Session { used: now, ..session };
            let batch = Batch::new().change(put(session.document()?, version));
            // Another request may have noted it; and whoever has signed in is not locked out by a full disk.
            if let Err(error) = self.store.commit(tenant, batch).await {
                tracing::debug!(%error, "the use of a session was not noted");
            }
        }
        Ok(Some((scope, csrf(cookie))))
    }

    /// The user of a session cookie. This does not count as a use of the session: it is for open streams.
    pub async fn session_of(&self, cookie: &Secret, host: &str) -> Result<Option<Scope>> {
        let known = self.known_session(cookie, host).await?;
        Ok(known.map(|(tenant, session, _)| Scope::new(tenant, Subject::User(session.user))))
    }

    /// A session that is valid for this host.
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

    /// Ends a session. One that has ended stays so.
    pub async fn sign_out(&self, cookie: &Secret) -> Result<()> {
        let Some((tenant, session, _)) = self.find_session(cookie).await? else { return Ok(()) };
        let entry = self.entry(Scope::new(tenant, Subject::User(session.user)), "session.ended");
        let gone = Change::Remove(Key::new(Kind::Session, session_id(cookie)));
        let batch = Batch::new().change(gone).audit(entry).tell(told::sessions(session.user));
        match self.commit_subject(tenant, batch, Subject::User(session.user)).await {
            Err(error) if error.kind() != error::Kind::NotFound => Err(error),
            _ => Ok(()), // or it was ended elsewhere
        }
    }
}
