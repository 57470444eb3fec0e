//! Ids of tenants, users, agents, servers, calls, approvals, tokens and secrets, each of its own type.
//!
//! Ids are UUIDs of version 7: ordered by time of creation, and unpredictable.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;
use crate::platform::{Platform, random};
use crate::text::shorten;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident, $what:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u128);

        impl $name {
            /// Creates a new unique id.
            pub fn new(platform: &dyn Platform) -> Self {
                $name(uuid_v7(platform))
            }

            /// Creates a constant id, for built-in objects.
            pub const fn from_u128(number: u128) -> Self {
                $name(number)
            }
        }

        impl $name {
            /// Returns the creation time that the id contains.
            pub fn created_at(self) -> Option<jiff::Timestamp> {
                let millis = i64::try_from(self.0 >> 80).ok()?;
                jiff::Timestamp::from_millisecond(millis).ok()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_uuid(self.0, f)
            }
        }

        impl FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self, Error> {
                parse_uuid(text).map($name).ok_or_else(|| Error::not_found($what, shorten(text)))
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(from)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}

ids! {
    /// Id of a tenant, the isolation boundary of all data.
    TenantId, "tenant";
    /// Id of a user.
    UserId, "user";
    /// Id of an agent.
    AgentId, "agent";
    /// Id of a server.
    ServerId, "server";
    /// Id of a tool call.
    CallId, "call";
    /// Id of an approval.
    ApprovalId, "approval";
    /// Id of an API token.
    TokenId, "token";
    /// Id of a secret in the vault.
    SecretId, "secret";
}

fn uuid_v7(platform: &dyn Platform) -> u128 {
    let millis = u128::from(platform.now().as_millisecond().unsigned_abs());
    let random_bits = u128::from_be_bytes(random(platform));
    let low = random_bits & 0x0fff_3fff_ffff_ffff_ffff;
    (millis & 0xffff_ffff_ffff) << 80 | 0x7000_8000_0000_0000_0000 | low
}

fn write_uuid(number: u128, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let digits = format!("{number:032x}");
    f.write_str(&digits[..8])?;
    [8..12, 12..16, 16..20, 20..32].into_iter().try_for_each(|part| write!(f, "-{}", &digits[part]))
}

fn parse_uuid(text: &str) -> Option<u128> {
    let dashes = [8, 13, 18, 23];
    let is_well_formed = text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| {
            if dashes.contains(&at) { byte == b'-' } else { matches!(byte, b'0'..=b'9' | b'a'..=b'f') }
        });
    is_well_formed.then(|| u128::from_str_radix(&text.replace('-', ""), 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::SystemPlatform;
    use crate::platform::tests::FixedPlatform;

    #[test]
    fn they_are_in_order_and_read_again() {
        let platform = FixedPlatform::default();
        let first = ServerId::new(&platform);
        platform.seconds.store(1, std::sync::atomic::Ordering::SeqCst);
        let second = ServerId::new(&platform);
        assert!(first < second && first.to_string() < second.to_string());
        assert_eq!(first.to_string().parse(), Ok(first));
        assert_eq!(&first.to_string()[14..15], "7");
        assert!(matches!(first.to_string().as_bytes()[19], b'8'..=b'b'));
        assert_ne!(ServerId::new(&SystemPlatform), ServerId::new(&SystemPlatform));
    }

    #[test]
    fn nothing_else_is_one() {
        let good = ServerId::from_u128(1).to_string();
        assert_eq!(good, "00000000-0000-0000-0000-000000000001");
        for bad in
            ["", "1", &good[1..], &good.replace('-', "0"), &good.replace('1', "A"), &format!("{good} ")]
        {
            let error = bad.parse::<ServerId>().unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::NotFound, "{bad}");
        }
        let error = "x\u{1b}[31m".parse::<CallId>().unwrap_err();
        assert_eq!(error.to_string(), "there is no call `x[31m`");
    }
}
