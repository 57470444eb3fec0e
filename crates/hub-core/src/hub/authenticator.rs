//! In-memory login state: the queue of password hashes, failed attempts, and the token of this process.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use linchpin::auth::Secret;
use linchpin::server::web::client_network;

use super::hash_queue::{Lane, Place, Queue};
use super::login_refusals::RefusedSignIns;
use super::login_throttle::Throttle;
use super::passwords::Kept;
use crate::api_token;
use crate::digest::Digest;
use crate::error::{self, Error, Result};
use crate::id::TokenId;
use crate::platform::{World, random};
use crate::text::{check_visible_line, hex};

const LONGEST_NAME: usize = 100;

pub(super) struct People {
    queue: Queue,
    /// Failed attempts.
    pub(super) tries: Throttle,
    /// Rejected logins that are not in the audit yet.
    pub(super) refused: Arc<RefusedSignIns>,
    /// The token of this process.
    pub(super) process: Process,
    /// Dummy hash for unknown names.
    nobody: Kept,
}

/// Returns the network of a client address, for limits per source. All IPv4 loopback addresses are one source.
pub(super) fn network(address: IpAddr) -> IpAddr {
    match client_network(address) {
        address if address.is_ipv4() && address.is_loopback() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        address => address,
    }
}

/// API token of the local user, valid until the process ends.
pub(super) struct Process {
    pub(super) id: TokenId,
    pub(super) secret: Secret,
    pub(super) digest: Digest,
}

impl People {
    pub(super) fn new(world: &dyn World) -> Self {
        let (id, secret, digest) = api_token::issue(world);
        People {
            queue: Queue::new(),
            tries: Throttle::default(),
            refused: Arc::default(),
            process: Process { id, secret, digest },
            nobody: Kept::of_nobody(world),
        }
    }

    /// Takes a place in the queue of hashes, or fails at once.
    pub(super) fn place(&self, lane: Lane) -> Result<Place> {
        self.queue.place(lane)
    }

    /// Hashes a password for storage.
    pub(super) async fn hash(&self, place: Place, world: &Arc<dyn World>, password: &Secret) -> Result<Kept> {
        let (world, password) = (world.clone(), password.clone());
        self.queue.run(place, move || Kept::new(&*world, &password)).await
    }

    /// Verifies a password. For a user without one it takes the same time.
    pub(super) async fn fits(&self, place: Place, kept: Option<&Kept>, password: &Secret) -> Result<bool> {
        let (kept, password) = (kept.unwrap_or(&self.nobody).clone(), password.clone());
        self.queue.run(place, move || kept.fits(&password)).await
    }
}

/// Creates a random secret.
pub(super) fn secret(world: &dyn World) -> Secret {
    Secret::new(hex(&random::<32>(world)))
}

/// Creates the error for a failed authentication. It does not reveal the reason.
pub(super) fn unauthorized(text: &str) -> Error {
    Error::new(error::Kind::Unauthorized, "unauthorized", text)
}

/// Validates the name of a user, an agent or a token, and trims it.
pub(super) fn name(text: &str) -> Result<String> {
    let name = text.trim();
    // Two names that look alike must not belong to two users or agents.
    check_visible_line("name", name)?;
    if (1..=LONGEST_NAME).contains(&name.chars().count()) {
        return Ok(name.to_owned());
    }
    Err(Error::invalid("name", format!("must be 1 to {LONGEST_NAME} characters on one line")))
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
