//! Operations on users: list, add, remove and change passwords. All users of a tenant have the same permissions.

use jiff::Timestamp;
use linchpin::auth::Secret;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::authenticator::check_name;
use super::hash_queue::QueueOwner;
use super::login_rejections::{LoginRejectionReason, RejectedLogin};
use super::passwords::{self, PasswordHash};
use super::sessions::{NewSession, RequestClient, user_limit};
use crate::actor::{Actor, Subject};
use crate::error::{self, Error, Result};
use crate::hub::identity::Identity;
use crate::hub::{LOCAL, LOCAL_USER, delete_children, document, event_payloads, upsert};
use crate::id::{TenantId, UserId};
use crate::store::{Batch, Document, DocumentKey, DocumentKind, StoreChange};

/// User with password hash, as stored.
#[derive(Serialize, Deserialize)]
pub(in crate::hub) struct UserRecord {
    pub(in crate::hub) id: UserId,
    pub(in crate::hub) name: String,
    pub(in crate::hub) password: Option<PasswordHash>,
    /// Number of password changes of the user. A change ends the sessions that were started before it.
    #[serde(rename = "passwords")]
    pub(in crate::hub) password_version: u32,
    pub(in crate::hub) created: Timestamp,
}

/// User, as shown to other users.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct UserView {
    /// Id of the user.
    #[schemars(with = "String")]
    pub id: UserId,
    /// Login name.
    pub name: String,
    /// Whether the user has a password.
    pub has_password: bool,
    /// Time at which the user was created.
    #[schemars(with = "String")]
    pub created: Timestamp,
}

/// Who changes a password: an operator, who needs no old password, or the user.
#[derive(Debug, Clone, Copy)]
pub enum ChangedBy<'a> {
    /// Operator on the machine of the hub, who needs no old password.
    Operator,
    /// The user whose password is changed.
    User {
        /// Current password, as entered by the user. Absent for a user without one.
        old_password: Option<&'a Secret>,
        /// Browser in whose session the user changes the password, if there is one.
        session: Option<&'a RequestClient>,
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

/// User whose password was changed, and the new session of the browser that changed it, if any.
#[derive(Debug, Clone)]
pub struct PasswordChange {
    /// User whose password was set.
    pub user: UserView,
    /// New session of the browser in which the user changed the password.
    pub session: Option<NewSession>,
}

impl UserRecord {
    pub(in crate::hub) fn view(&self) -> UserView {
        let UserRecord { id, name, password, created, .. } = self;
        UserView { id: *id, name: name.clone(), has_password: password.is_some(), created: *created }
    }

    fn document(&self) -> Result<Document> {
        Ok(document(DocumentKind::User, self.id, self)?.with_name(&self.name))
    }
}

impl Identity {
    /// Creates the built-in user if there is none.
    pub async fn ensure_local_user(&self) -> Result<()> {
        if self.context.load::<UserRecord>(LOCAL, DocumentKind::User, LOCAL_USER).await?.is_some() {
            return Ok(());
        }
        match self.create_user(Actor::new(LOCAL, Subject::Hub), LOCAL_USER, "local").await {
            Err(error) if error.kind() != error::ErrorKind::Conflict => Err(error),
            _ => Ok(()), // created, possibly by another hub
        }
    }

    /// Lists all users of the tenant.
    pub async fn users(&self, actor: Actor) -> Result<Vec<UserView>> {
        actor.require_user()?;
        let all = self.context.load_all::<UserRecord>(actor.tenant(), DocumentKind::User, None).await?;
        Ok(all.iter().map(|(user, _)| user.view()).collect())
    }

    /// Adds a user. The user cannot log in without a password.
    pub async fn add_user(&self, actor: Actor, name: &str) -> Result<UserView> {
        actor.require_user()?;
        self.create_user(actor, UserId::new(&*self.context.platform), name).await
    }

    async fn create_user(&self, actor: Actor, id: UserId, text: &str) -> Result<UserView> {
        let created = self.context.platform.now();
        let user = UserRecord { id, name: check_name(text)?, password: None, password_version: 0, created };
        let entry =
            self.context.entry(actor, "user.added").with("user", id.to_string()).with("name", &*user.name);
        let batch = Batch::new().change(upsert(user.document()?, 0)).audit(entry);
        self.context.store.commit(actor.tenant(), batch.with_event(event_payloads::user(id))).await?;
        Ok(user.view())
    }

    /// Sets the password of a user. All sessions and API tokens of the user and all login links become invalid. A
    /// browser that makes the change gets a new session.
    pub async fn set_password(
        &self,
        actor: Actor,
        user: UserId,
        password: &Secret,
        by: ChangedBy<'_>,
    ) -> Result<PasswordChange> {
        let caller = actor.require_user()?;
        let own_user = matches!(by, ChangedBy::User { .. }).then_some(caller);
        if own_user.is_some_and(|caller| caller != user) {
            let text = "users set their own passwords: ask the operator to run `linchpin user password` on the machine of the hub";
            return Err(Error::new(error::ErrorKind::PermissionDenied, "forbidden", text));
        }
        passwords::check_password(password)?;
        let tenant = actor.tenant();
        let (mut user, version) =
            self.context.require::<UserRecord>(tenant, DocumentKind::User, user).await?;
        let mut browser = None;
        if let ChangedBy::User { old_password, session } = by {
            self.check_old_password(tenant, &user, old_password, session).await?;
            browser = session;
        }
        let ticket = self.authenticator.enqueue(QueueOwner::User(user.id))?;
        user.password =
            Some(self.authenticator.hash_password(ticket, &self.context.platform, password).await?);
        user.password_version += 1;
        let entry = self.context.entry(actor, "user.password_set").with("user", user.id.to_string());
        let mut batch =
            Batch::new().change(upsert(user.document()?, version)).audit(entry.with("by", by.name()));
        batch
            .changes
            .extend([DocumentKind::Token, DocumentKind::Session].map(|kind| delete_children(kind, user.id)));
        if tenant == LOCAL {
            batch = batch.change(delete_children(DocumentKind::Link, LOCAL_USER));
        }
        let mut session = None;
        if let Some(from) = browser {
            let (started, with_session) = self.new_session(tenant, &user, "password_change", from, batch)?;
            (session, batch) = (Some(started), with_session);
        }
        let tokens = event_payloads::tokens(Subject::User(user.id));
        let batch = batch
            .with_event(event_payloads::sessions(user.id))
            .with_event(tokens)
            .with_event(event_payloads::user(user.id));
        self.upstream.commit_subject(tenant, batch, Subject::User(user.id)).await?;
        Ok(PasswordChange { user: user.view(), session })
    }

    /// Checks that the user makes the password change, with the old password. A user without one must have a session,
    /// which comes from a login link.
    async fn check_old_password(
        &self,
        tenant: TenantId,
        user: &UserRecord,
        old: Option<&Secret>,
        session: Option<&RequestClient>,
    ) -> Result<()> {
        let Some(stored_hash) = &user.password else {
            let text = "an API token cannot set the first password: log in with a browser, or run `linchpin user \
                        password` on the machine of the hub";
            let session_required =
                || Error::new(error::ErrorKind::PermissionDenied, "session_required", text);
            return session.map(drop).ok_or_else(session_required);
        };
        let missing = || Error::invalid("old_password", "must be present: enter the current password");
        let old = old.ok_or_else(missing)?;
        let ticket = self.authenticator.enqueue(QueueOwner::User(user.id))?;
        let limits = [user_limit(user.id)];
        let source = session.and_then(RequestClient::source);
        let rejected = RejectedLogin {
            tenant,
            user: Some(user.id),
            source,
            reason: LoginRejectionReason::WrongOldPassword,
        };
        self.count_attempt(&limits, &rejected)?;
        if !self.authenticator.verify_password(ticket, Some(stored_hash), old).await? {
            self.record_rejected_login(rejected);
            let text = "is wrong: enter the current password";
            return Err(Error::new(error::ErrorKind::PermissionDenied, "wrong_password", text)
                .with_field("old_password"));
        }
        self.authenticator.throttle.clear(&limits);
        Ok(())
    }

    /// Removes a user with all sessions and tokens. The last user cannot be removed, nor the built-in one, which the
    /// hub itself uses.
    pub async fn remove_user(&self, actor: Actor, user: UserId) -> Result<()> {
        actor.require_user()?;
        let tenant = actor.tenant();
        let (found, _) = self.context.require::<UserRecord>(tenant, DocumentKind::User, user).await?;
        if (tenant, user) == (LOCAL, LOCAL_USER)
            || self.context.load_all::<UserRecord>(tenant, DocumentKind::User, None).await?.len() < 2
        {
            let text = "the last user and the built-in user cannot be removed: change the password instead";
            return Err(Error::new(error::ErrorKind::Conflict, "last_user", text));
        }
        let entry =
            self.context.entry(actor, "user.removed").with("user", user.to_string()).with("name", found.name);
        let mut batch =
            Batch::new().change(StoreChange::Delete(DocumentKey::new(DocumentKind::User, user))).audit(entry);
        batch
            .changes
            .extend([DocumentKind::Token, DocumentKind::Session].map(|kind| delete_children(kind, user)));
        let batch = batch
            .with_event(event_payloads::sessions(user))
            .with_event(event_payloads::tokens(Subject::User(user)))
            .with_event(event_payloads::user(user));
        self.upstream.commit_subject(tenant, batch, Subject::User(user)).await
    }

    /// Reports whether any user of the local tenant has a password.
    pub async fn has_password(&self) -> Result<bool> {
        let all = self.context.load_all::<UserRecord>(LOCAL, DocumentKind::User, None).await?;
        Ok(all.iter().any(|(user, _)| user.password.is_some()))
    }
}
