//! Ids of tenants, users, agents, servers, calls, approvals, tokens and secrets, each of its own type.
//!
//! Ids are UUIDs of version 7: ordered by time of creation, and unpredictable.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;
use crate::platform::{Platform, random};
use crate::text::shorten;

const HEX_DIGITS: &[u8; 16] = b"0123456789abcdef";

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

            /// Returns the number of the id. Numbers have the order of the ids.
            pub const fn to_u128(self) -> u128 {
                self.0
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
                f.write_str(UuidText::new(self.0).as_str())
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
                to.serialize_str(UuidText::new(self.0).as_str())
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
    /// Id of an approval rule.
    ApprovalRuleId, "approval rule";
    /// Id of an open server request of a call.
    ServerRequestId, "server request";
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

/// Text form of an id: 36 ASCII characters.
struct UuidText([u8; 36]);

impl UuidText {
    fn new(number: u128) -> Self {
        let (mut text, mut at) = ([b'-'; 36], 0);
        for (index, byte) in number.to_be_bytes().into_iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                at += 1;
            }
            text[at] = HEX_DIGITS[usize::from(byte >> 4)];
            text[at + 1] = HEX_DIGITS[usize::from(byte & 15)];
            at += 2;
        }
        UuidText(text)
    }

    fn as_str(&self) -> &str {
        str::from_utf8(&self.0).expect("hexadecimal digits and hyphens are ASCII")
    }
}

fn parse_uuid(text: &str) -> Option<u128> {
    let bytes: &[u8; 36] = text.as_bytes().try_into().ok()?;
    bytes.iter().enumerate().try_fold(0, |number: u128, (at, byte)| match (at, byte) {
        (8 | 13 | 18 | 23, b'-') => Some(number),
        (8 | 13 | 18 | 23, _) => None,
        (_, b'0'..=b'9') => Some(number << 4 | u128::from(byte - b'0')),
        (_, b'a'..=b'f') => Some(number << 4 | u128::from(byte - b'a' + 10)),
        _ => None,
    })
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
