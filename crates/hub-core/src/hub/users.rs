//! Users. All users of a tenant have the same permissions.

use jiff::Timestamp;
use linchpin::auth::Secret;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::authenticator::name;
use super::hash_queue::Lane;
use super::login_refusals::{Reason, Refused};
use super::passwords::{self, Kept};
use super::sessions::{Remote, SignedIn, limit_of_user};
use super::{Hub, LOCAL, LOCAL_USER, document, event_payloads, put, without_parts};
use crate::actor::{Scope, Subject};
use crate::error::{self, Error, Result};
use crate::id::{TenantId, UserId};
use crate::store::{Batch, Change, Document, Key, Kind};

/// Stored user.
#[derive(Serialize, Deserialize)]
pub(super) struct User {
    pub(super) id: UserId,
    pub(super) name: String,
    pub(super) password: Option<Kept>,
    /// Password version. A session belongs to one version and ends with it.
    pub(super) passwords: u32,
    pub(super) created: Timestamp,
}

/// User, as shown to other users.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct UserView {
    /// User id.
    #[schemars(with = "String")]
    pub id: UserId,
    /// Login name.
    pub name: String,
    /// Whether the user has a password.
    pub has_password: bool,
    /// Time of creation.
    #[schemars(with = "String")]
    pub created: Timestamp,
}

/// Initiator of a password change.
#[derive(Debug, Clone, Copy)]
pub enum ChangedBy<'a> {
    /// Operator on the machine of the hub, who needs no old password.
    Operator,
    /// The user.
    User {
        /// Current password. Absent for a user without one.
        old: Option<&'a Secret>,
        /// Client, if it is a browser with a session.
        session: Option<&'a Remote>,
    },
}

impl ChangedBy<'_> {
    fn name(self) -> &'static str {
        match self {
            ChangedBy::Operator => "operator",
            ChangedBy::User { .. } => "user",
        }
    }
}

/// Result of a password change.
#[derive(Debug, Clone)]
pub struct PasswordSet {
    /// User whose password was set.
    pub user: UserView,
    /// New session of the browser that made the change.
    pub session: Option<SignedIn>,
}

impl User {
    pub(super) fn view(&self) -> UserView {
        let User { id, name, password, created, .. } = self;
        UserView { id: *id, name: name.clone(), has_password: password.is_some(), created: *created }
    }

    fn document(&self) -> Result<Document> {
        Ok(document(Kind::User, self.id, self)?.named(&self.name))
    }
}

impl Hub {
    /// Creates the built-in user if there is none.
    pub async fn ensure_local(&self) -> Result<()> {
        if self.find::<User>(LOCAL, Kind::User, LOCAL_USER).await?.is_some() {
            return Ok(());
        }
        match self.keep_new(Scope::new(LOCAL, Subject::Hub), LOCAL_USER, "local").await {
            Err(error) if error.kind() != error::Kind::Conflict => Err(error),
            _ => Ok(()), // created, possibly by another hub
        }
    }

    /// Lists all users.
    pub async fn users(&self, scope: Scope) -> Result<Vec<UserView>> {
        scope.person()?;
        let all = self.all::<User>(scope.tenant(), Kind::User, None).await?;
        Ok(all.iter().map(|(user, _)| user.view()).collect())
    }

    /// Adds a user. The user cannot log in without a password.
    pub async fn add_user(&self, scope: Scope, name: &str) -> Result<UserView> {
        scope.person()?;
        self.keep_new(scope, UserId::new(&*self.world), name).await
    }

    async fn keep_new(&self, scope: Scope, id: UserId, text: &str) -> Result<UserView> {
        let created = self.world.now();
        let user = User { id, name: name(text)?, password: None, passwords: 0, created };
        let entry = self.entry(scope, "user.added").with("user", id.to_string()).with("name", &*user.name);
        let batch = Batch::new().change(put(user.document()?, 0)).audit(entry);
        self.store.commit(scope.tenant(), batch.tell(event_payloads::user(id))).await?;
        Ok(user.view())
    }

    /// Sets the password of a user. All sessions and API tokens of the user and all login links become invalid. A
    /// browser that makes the change gets a new session.
    pub async fn set_password(
        &self,
        scope: Scope,
        user: UserId,
        password: &Secret,
        by: ChangedBy<'_>,
    ) -> Result<PasswordSet> {
        let caller = scope.person()?;
        let own = matches!(by, ChangedBy::User { .. }).then_some(caller);
        if own.is_some_and(|caller| caller != user) {
            let text = "users set their own passwords: ask the operator to run `linchpin user password` on the machine of the hub";
            return Err(Error::new(error::Kind::Denied, "not_yours", text));
        }
        passwords::check(password)?;
        let tenant = scope.tenant();
        let (mut user, version) = self.need::<User>(tenant, Kind::User, user).await?;
        let mut browser = None;
        if let ChangedBy::User { old, session } = by {
            self.check_old_password(tenant, &user, old, session).await?;
            browser = session;
        }
        let place = self.people.place(Lane::User(user.id))?;
        user.password = Some(self.people.hash(place, &self.world, password).await?);
        user.passwords += 1;
        let entry = self.entry(scope, "user.password_set").with("user", user.id.to_string());
        let mut batch =
            Batch::new().change(put(user.document()?, version)).audit(entry.with("by", by.name()));
        batch.changes.extend([Kind::Token, Kind::Session].map(|kind| without_parts(kind, user.id)));
        if tenant == LOCAL {
            batch = batch.change(without_parts(Kind::Link, LOCAL_USER));
        }
        let mut session = None;
        if let Some(from) = browser {
            let (started, with_session) = self.new_session(tenant, &user, "password_change", from, batch)?;
            (session, batch) = (Some(started), with_session);
        }
        let tokens = event_payloads::tokens(Subject::User(user.id));
        let batch =
            batch.tell(event_payloads::sessions(user.id)).tell(tokens).tell(event_payloads::user(user.id));
        self.commit_subject(tenant, batch, Subject::User(user.id)).await?;
        Ok(PasswordSet { user: user.view(), session })
    }

    /// Checks that the change is made by the user, with the old password. A user without one must have a session, which
    /// comes from a login link.
    async fn check_old_password(
        &self,
        tenant: TenantId,
        user: &User,
        old: Option<&Secret>,
        session: Option<&Remote>,
    ) -> Result<()> {
        let Some(kept) = &user.password else {
            let text = "an API token cannot set the first password: log in with a browser, or run `linchpin user \
                        password` on the machine of the hub";
            let needed = || Error::new(error::Kind::Denied, "session_needed", text);
            return session.map(drop).ok_or_else(needed);
        };
        let missing = || Error::invalid("old_password", "must be the current password");
        let old = old.ok_or_else(missing)?;
        let place = self.people.place(Lane::User(user.id))?;
        let limits = [limit_of_user(user.id)];
        let source = session.and_then(Remote::source);
        let refused = Refused { tenant, user: Some(user.id), source, reason: Reason::WrongOldPassword };
        self.begin_attempt(&limits, &refused)?;
        if !self.people.fits(place, Some(kept), old).await? {
            self.note_refused(refused);
            let text = "is not the current password";
            return Err(Error::new(error::Kind::Denied, "wrong_password", text).about("old_password"));
        }
        self.people.tries.succeeded(&limits);
        Ok(())
    }

    /// Removes a user with all sessions and tokens. The last user cannot be removed, nor the built-in one, which the
    /// hub itself uses.
    pub async fn remove_user(&self, scope: Scope, user: UserId) -> Result<()> {
        scope.person()?;
        let tenant = scope.tenant();
        let (found, _) = self.need::<User>(tenant, Kind::User, user).await?;
        if (tenant, user) == (LOCAL, LOCAL_USER)
            || self.all::<User>(tenant, Kind::User, None).await?.len() < 2
        {
            let text = "the last user and the built-in user cannot be removed: change the password instead";
            return Err(Error::new(error::Kind::Conflict, "user_needed", text));
        }
        let entry = self.entry(scope, "user.removed").with("user", user.to_string()).with("name", found.name);
        let mut batch = Batch::new().change(Change::Remove(Key::new(Kind::User, user))).audit(entry);
        batch.changes.extend([Kind::Token, Kind::Session].map(|kind| without_parts(kind, user)));
        let batch = batch
            .tell(event_payloads::sessions(user))
            .tell(event_payloads::tokens(Subject::User(user)))
            .tell(event_payloads::user(user));
        self.commit_subject(tenant, batch, Subject::User(user)).await
    }

    /// Reports whether a user of the local tenant has a password.
    pub async fn has_password(&self) -> Result<bool> {
        let all = self.all::<User>(LOCAL, Kind::User, None).await?;
        Ok(all.iter().any(|(user, _)| user.password.is_some()))
    }
}
