//! People at a browser. A cookie holds a secret, and the hub keeps its digest: who reads the store cannot act as anybody.

use std::time::Duration;

use jiff::Timestamp;
use linchpin::auth::Secret;
use serde::{Deserialize, Serialize};

use super::people::{secret, unauthorized};
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

const REFUSED: &str = "the name or the password is not right";

/// A session, as it is kept.
#[derive(Serialize, Deserialize)]
pub(super) struct Session {
    id: String,
    pub(super) user: UserId,
    /// The password that the user had then.
    pub(super) passwords: u32,
    created: Timestamp,
    used: Timestamp,
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

impl Hub {
    /// Signs somebody in with their password. Each time it is another session: no cookie from before becomes worth more.
    pub async fn sign_in(&self, tenant: TenantId, name: &str, password: &Secret) -> Result<SignedIn> {
        let who = Digest::of("linchpin sign-in").part(tenant.to_string()).part(name.trim()).end();
        self.people.tries.begin(who, self.world.now()).map_err(|wait| {
            let text = format!("too many tries: wait {} s", error::seconds(wait));
            Error::new(error::Kind::Exhausted, "too_many_tries", text).after(wait)
        })?;
        let found = self.store.named(tenant, Kind::User, name.trim()).await?;
        let user = found.map(|stored| stored.document.read::<User>()).transpose()?;
        let kept = user.as_ref().and_then(|user| user.password.as_ref());
        let fits = self.people.fits(kept, password).await?;
        let Some(user) = user.filter(|_| fits) else {
            tracing::warn!(tenant = %tenant, "somebody could not sign in");
            return Err(unauthorized(REFUSED));
        };
        self.people.tries.succeeded(who);
        self.begin_session(tenant, &user, "password", Vec::new()).await
    }

    /// Begins a session, together with what it is begun by.
    pub(super) async fn begin_session(
        &self,
        tenant: TenantId,
        user: &User,
        by: &str,
        changes: Vec<Change>,
    ) -> Result<SignedIn> {
        self.sweep_sessions(tenant, user).await?;
        let (cookie, now) = (secret(&*self.world), self.world.now());
        let id = session_id(&cookie);
        let session = Session { id, user: user.id, passwords: user.passwords, created: now, used: now };
        let scope = Scope::new(tenant, Subject::User(user.id));
        let entry = self.entry(scope, "session.begun").with("by", by);
        let person = Change::Need(Key::new(Kind::User, user.id));
        let mut batch = Batch::new().change(person).change(put(session.document()?, 0)).audit(entry);
        batch.changes.extend(changes);
        self.store.commit(tenant, batch).await?;
        let (csrf, expires) = (csrf(&cookie), now + LONGEST);
        Ok(SignedIn { cookie, csrf, scope, user: user.view(), expires })
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

    /// Who has this cookie, and what their pages send with whatever changes something.
    pub async fn session(&self, cookie: &Secret) -> Result<Option<(Scope, Secret)>> {
        let Some((tenant, session, version)) = self.known_session(cookie).await? else { return Ok(None) };
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

    /// Who has this cookie, without that counting as a use of it: for what goes on by itself.
    pub async fn session_of(&self, cookie: &Secret) -> Result<Option<Scope>> {
        let known = self.known_session(cookie).await?;
        Ok(known.map(|(tenant, session, _)| Scope::new(tenant, Subject::User(session.user))))
    }

    /// A session that still counts.
    async fn known_session(&self, cookie: &Secret) -> Result<Option<(TenantId, Session, u64)>> {
        let Some((tenant, session, version)) = self.find_session(cookie).await? else { return Ok(None) };
        let user = self.find::<User>(tenant, Kind::User, session.user).await?;
        let is_of_before = user.is_none_or(|(user, _)| user.passwords != session.passwords);
        Ok(Some((tenant, session, version))
            .filter(|(_, session, _)| !is_of_before && !session.is_over(self.world.now())))
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
        match self.store.commit(tenant, batch).await {
            Err(error) if error.kind() != error::Kind::NotFound => Err(error),
            _ => Ok(()), // or it was ended elsewhere
        }
    }
}
