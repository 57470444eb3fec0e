//! In-memory login state: the queue of password hashes, failed attempts, and the local user's API token,
//! which is valid until this process ends.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use linchpin::auth::Secret;
use linchpin::server::web::client_network;

use super::hash_queue::{HashQueue, QueueOwner, QueueTicket};
use super::login_rejections::RejectedLogins;
use super::login_throttle::LoginThrottle;
use super::passwords::PasswordHash;
use crate::api_token;
use crate::digest::Digest;
use crate::error::{self, Error, Result};
use crate::id::TokenId;
use crate::platform::{Platform, random};
use crate::text::{check_visible_line, hex};

const MAX_NAME_LEN: usize = 100;

pub(in crate::hub) struct Authenticator {
    queue: HashQueue,
    /// Counter of failed logins, which slow down further attempts.
    pub(in crate::hub) throttle: LoginThrottle,
    /// Rejected logins that are not in the audit yet.
    pub(in crate::hub) rejected_logins: Arc<RejectedLogins>,
    /// API token of the local user that is valid until this process ends.
    pub(in crate::hub) process: ProcessToken,
    /// Dummy password hash that is verified for unknown names, so that they take as long as known ones.
    dummy_hash: PasswordHash,
}

/// Returns the network of a client address, which login limits count as one source. All IPv4 loopback addresses are one
/// source.
pub(in crate::hub) fn network(address: IpAddr) -> IpAddr {
    match client_network(address) {
        address if address.is_ipv4() && address.is_loopback() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        address => address,
    }
}

/// API token of the local user, valid until the process ends.
pub(in crate::hub) struct ProcessToken {
    pub(in crate::hub) id: TokenId,
    pub(in crate::hub) secret: Secret,
    pub(in crate::hub) digest: Digest,
}

impl Authenticator {
    pub(in crate::hub) fn new(platform: &dyn Platform) -> Self {
        let (id, secret, digest) = api_token::issue(platform);
        Authenticator {
            queue: HashQueue::new(),
            throttle: LoginThrottle::default(),
            rejected_logins: Arc::default(),
            process: ProcessToken { id, secret, digest },
            dummy_hash: PasswordHash::dummy(platform),
        }
    }

    /// Takes a place in the queue for password hashing, or fails at once.
    pub(in crate::hub) fn enqueue(&self, owner: QueueOwner) -> Result<QueueTicket> {
        self.queue.enqueue(owner)
    }

    /// Hashes a password for storage.
    pub(in crate::hub) async fn hash_password(
        &self,
        ticket: QueueTicket,
        platform: &Arc<dyn Platform>,
        password: &Secret,
    ) -> Result<PasswordHash> {
        let (platform, password) = (platform.clone(), password.clone());
        self.queue.run(ticket, move || PasswordHash::new(&*platform, &password)).await
    }

    /// Verifies a password against the stored hash, on the hash queue. For a user without one it takes the same time.
    pub(in crate::hub) async fn verify_password(
        &self,
        ticket: QueueTicket,
        stored: Option<&PasswordHash>,
        password: &Secret,
    ) -> Result<bool> {
        let (stored, password) = (stored.unwrap_or(&self.dummy_hash).clone(), password.clone());
        self.queue.run(ticket, move || stored.verify(&password)).await
    }
}

/// Creates a random secret of 32 bytes, in hexadecimal.
pub(in crate::hub) fn random_secret(platform: &dyn Platform) -> Secret {
    Secret::new(hex(&random::<32>(platform)))
}

/// Creates the error for a failed authentication. It does not reveal the reason.
pub(in crate::hub) fn unauthenticated(text: &str) -> Error {
    Error::new(error::ErrorKind::Unauthenticated, "unauthorized", text)
}

/// Validates the name of a user, an agent or a token, and trims it.
pub(in crate::hub) fn check_name(text: &str) -> Result<String> {
    let name = text.trim();
    // Two names that look alike must not belong to two users or agents.
    check_visible_line("name", name)?;
    if (1..=MAX_NAME_LEN).contains(&name.chars().count()) {
        return Ok(name.to_owned());
    }
    Err(Error::invalid("name", format!("must be 1 to {MAX_NAME_LEN} characters on one line")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_addresses_are_one_source() {
        for (address, expected) in [
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
            ("::1", "::1"),
            ("192.0.2.1", "192.0.2.1"),
            ("127.8.9.10", "127.0.0.1"),
            ("::ffff:127.0.0.2", "127.0.0.1"),
        ] {
            assert_eq!(network(address.parse().unwrap()), expected.parse::<IpAddr>().unwrap());
        }
    }
}
