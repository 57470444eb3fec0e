//! Audit entries about rejected logins: repetitions are counted and written once a minute.

use std::net::IpAddr;

use jiff::Timestamp;

use crate::audit::AuditEntry;
use crate::hub::audit::repeated_events::{RepeatCounter, RepeatedEvent};
use crate::hub::identity::Identity;
use crate::id::{TenantId, UserId};

/// Reason why a login or a password change was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::hub) enum LoginRejectionReason {
    /// The password does not match, or no user has the name.
    WrongPassword,
    /// The old password of a password change does not match.
    WrongOldPassword,
    /// The throttle rejected the attempt before the password was compared.
    TooManyAttempts,
    /// Any reason: the rejected login is of a kind beyond the number of kinds that are counted separately.
    Other,
}

impl LoginRejectionReason {
    fn name(self) -> &'static str {
        match self {
            LoginRejectionReason::WrongPassword => "wrong_password",
            LoginRejectionReason::WrongOldPassword => "wrong_old_password",
            LoginRejectionReason::TooManyAttempts => "too_many_login_attempts",
            LoginRejectionReason::Other => "other",
        }
    }
}

/// Rejected login for the audit, as counted with its repetitions: user, source and reason. The name is not part of it:
/// a user may have typed the password there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::hub) struct RejectedLogin {
    pub(in crate::hub) tenant: TenantId,
    /// User who has the name that was entered, if there is one, or who wanted to change the password.
    pub(in crate::hub) user: Option<UserId>,
    pub(in crate::hub) source: Option<IpAddr>,
    pub(in crate::hub) reason: LoginRejectionReason,
}

/// Counter of the rejected logins of the last minute.
pub(in crate::hub) type RejectedLogins = RepeatCounter<RejectedLogin>;

impl RepeatedEvent for RejectedLogin {
    fn tenant(&self) -> TenantId {
        self.tenant
    }

    fn overflow_kind(&self) -> Self {
        RejectedLogin { tenant: self.tenant, user: None, source: None, reason: LoginRejectionReason::Other }
    }

    fn entry(&self, at: Timestamp, count: u64) -> AuditEntry {
        let mut entry = AuditEntry::new(at, "hub", "session.rejected").with("reason", self.reason.name());
        if let Some(user) = self.user {
            entry = entry.with("user", user.to_string());
        }
        if let Some(source) = self.source {
            entry = entry.with("source", source.to_string());
        }
        entry.with("count", count)
    }
}

impl Identity {
    /// Counts a rejected login for the audit. The first of its kind is written in the background: the response time
    /// must not reveal whether a user has the name.
    pub(in crate::hub) fn record_rejected_login(&self, rejected: RejectedLogin) {
        let now = self.context.platform.now();
        let (first, Some(count)) = self.authenticator.rejected_logins.count(rejected, now) else { return };
        tracing::warn!(tenant.id = %first.tenant, source = ?first.source, reason = first.reason.name(), "login rejected");
        let (all, store) = (self.authenticator.rejected_logins.clone(), self.context.store.clone());
        self.context.tasks.spawn(async move { all.write(&*store, &first, (now, count)).await });
    }

    /// Writes the counts of repeated rejected logins to the audit: those that are due, or all.
    pub(in crate::hub) async fn flush_rejected_logins(&self, all: bool) {
        self.authenticator
            .rejected_logins
            .write_due(&*self.context.store, self.context.platform.now(), all)
            .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::audit::repeated_events::MAX_KINDS;

    fn rejected_login(source: u32) -> RejectedLogin {
        let source = Some(IpAddr::V4(source.into()));
        RejectedLogin {
            tenant: TenantId::from_u128(1),
            user: None,
            source,
            reason: LoginRejectionReason::WrongPassword,
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_flood_of_one_source_is_one_entry_a_minute() {
        let all = RejectedLogins::default();
        assert_eq!(all.count(rejected_login(1), at(0)).1, Some(1));
        for second in 0..59 {
            assert_eq!(all.count(rejected_login(1), at(second)).1, None);
            assert!(all.take_due(at(second), false).is_empty());
        }
        assert_eq!(all.take_due(at(60), false), [(rejected_login(1), 59)]);
        assert!(all.take_due(at(120), false).is_empty());
        assert_eq!(all.count(rejected_login(1), at(121)).1, Some(1), "it was quiet for a minute");
    }

    #[test]
    fn a_flood_of_many_sources_is_bounded() {
        let all = RejectedLogins::default();
        let written = (0..10_000).filter_map(|source| all.count(rejected_login(source), at(0)).1).count();
        assert_eq!(written, MAX_KINDS + 1);
        let rest = 10_000 - u64::try_from(MAX_KINDS).unwrap() - 1;
        assert_eq!(all.take_due(at(60), false), [(rejected_login(1).overflow_kind(), rest)]);
    }
}
