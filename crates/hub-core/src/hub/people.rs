//! In-memory state of authentication: the queue of password hashes, failed attempts, and the token of this process.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use linchpin::auth::Secret;
use tokio::sync::Semaphore;

use super::Hub;
use super::passwords::Kept;
use super::refused::RefusedSignIns;
use super::throttle::Throttle;
use super::users::User;
use crate::agent::Agent;
use crate::digest::Digest;
use crate::error::{self, Error, Result};
use crate::id::{TenantId, TokenId, UserId};
use crate::scope::{Scope, Subject};
use crate::store::Kind;
use crate::sync::lock;
use crate::text::{check_visible_line, hex};
use crate::token;
use crate::world::{World, random};

/// Hashes at once: each takes 64 MiB.
const HASHING: usize = 2;
/// Hashes that wait or run for sign-ins without a session or token: of one source, and in all. No sign-in waits for more
/// than these.
const MAX_OF_SOURCE: usize = 8;
const MAX_OF_SOURCES: usize = 32;
/// Hashes that wait or run for users who are signed in, and for the operator: of one user, and in all.
const MAX_OF_USER: usize = 2;
const MAX_OF_USERS: usize = 16;
/// When a client may try again that found the queue full.
const BUSY_RETRY: Duration = Duration::from_secs(2);
const LONGEST_NAME: usize = 100;

pub(super) struct People {
    hashing: Arc<Semaphore>,
    waiting: Arc<Mutex<HashMap<Lane, usize>>>,
    /// Failed attempts.
    pub(super) tries: Throttle,
    /// Refused sign-ins that the audit does not have yet.
    pub(super) refused: RefusedSignIns,
    /// The token of this process.
    pub(super) process: Process,
    /// For names that no user has.
    nobody: Kept,
}

/// Whose hashes share a part of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Lane {
    /// A user who is signed in, or whose password the operator sets.
    User(UserId),
    /// A client address, without credentials.
    Source(Option<IpAddr>),
}

impl Lane {
    fn is_source(self) -> bool {
        matches!(self, Lane::Source(_))
    }
}

/// A place in the queue of hashes, until it is dropped.
pub(super) struct Place {
    waiting: Arc<Mutex<HashMap<Lane, usize>>>,
    lane: Lane,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut waiting = lock(&self.waiting);
        if let Some(count) = waiting.get_mut(&self.lane) {
            *count -= 1;
            if *count == 0 {
                waiting.remove(&self.lane);
            }
        }
    }
}

/// A token of the local user that ends with the process.
pub(super) struct Process {
    pub(super) id: TokenId,
    pub(super) secret: Secret,
    pub(super) digest: Digest,
}

impl People {
    pub(super) fn new(world: &dyn World) -> Self {
        let (id, secret, digest) = token::issue(world);
        People {
            hashing: Arc::new(Semaphore::new(HASHING)),
            waiting: Arc::default(),
            tries: Throttle::default(),
            refused: RefusedSignIns::default(),
            process: Process { id, secret, digest },
            nobody: Kept::of_nobody(world),
        }
    }

    /// Takes a place in the queue of hashes, or refuses at once: the queue is bounded, and so is the part of each lane.
    pub(super) fn place(&self, lane: Lane) -> Result<Place> {
        let mut waiting = lock(&self.waiting);
        let all: usize = waiting
            .iter()
            .filter(|(each, _)| each.is_source() == lane.is_source())
            .map(|(_, count)| count)
            .sum();
        let own = waiting.get(&lane).copied().unwrap_or_default();
        let (most, most_own) = match lane {
            Lane::Source(_) => (MAX_OF_SOURCES, MAX_OF_SOURCE),
            Lane::User(_) => (MAX_OF_USERS, MAX_OF_USER),
        };
        if all >= most || own >= most_own {
            let text = format!("too many sign-ins at once: try again in {} s", BUSY_RETRY.as_secs());
            return Err(Error::new(error::Kind::Unavailable, "sign_in_busy", text).after(BUSY_RETRY));
        }
        *waiting.entry(lane).or_default() += 1;
        Ok(Place { waiting: self.waiting.clone(), lane })
    }

    /// Hashes a password in order to store it.
    pub(super) async fn hash(&self, place: Place, world: &Arc<dyn World>, password: &Secret) -> Result<Kept> {
        let (world, password) = (world.clone(), password.clone());
        self.slowly(place, move || Kept::new(&*world, &password)).await
    }

    /// Compares a password. For a user without one it takes the same time.
    pub(super) async fn fits(&self, place: Place, kept: Option<&Kept>, password: &Secret) -> Result<bool> {
        let (kept, password) = (kept.unwrap_or(&self.nobody).clone(), password.clone());
        self.slowly(place, move || kept.fits(&password)).await
    }

    /// Runs the work on a thread of its own, in the order of arrival. Work that has started runs to its end and keeps its
    /// place, even if its caller is gone.
    async fn slowly<T: Send + 'static>(
        &self,
        place: Place,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let over = || Error::new(error::Kind::Unavailable, "hub_ending", "the hub is ending");
        let turn = self.hashing.clone().acquire_owned().await.map_err(|_| over())?;
        let work = tokio::task::spawn_blocking(move || {
            let result = work();
            drop((turn, place));
            result
        });
        work.await.map_err(|_| over())?
    }
}

impl Hub {
    /// The name of a user or an agent, by its subject. `None` for the hub itself, and for one that was removed.
    pub(super) async fn subject_name(&self, tenant: TenantId, subject: &str) -> Result<Option<String>> {
        Ok(match subject.parse() {
            Ok(Subject::User(id)) => {
                self.find::<User>(tenant, Kind::User, id).await?.map(|(user, _)| user.name)
            }
            Ok(Subject::Agent(id)) => {
                self.find::<Agent>(tenant, Kind::Agent, id).await?.map(|(agent, _)| agent.name)
            }
            Ok(Subject::Hub) | Err(_) => None,
        })
    }

    /// The name of the caller, for a call that was made: it matters less than the call.
    pub(super) async fn caller_name(&self, scope: Scope) -> Option<String> {
        self.subject_name(scope.tenant(), &scope.subject().to_string()).await.ok().flatten()
    }
}

/// Something that nobody guesses.
pub(super) fn secret(world: &dyn World) -> Secret {
    Secret::new(hex(&random::<32>(world)))
}

/// Nobody knows who asks. Why is not said.
pub(super) fn unauthorized(text: &str) -> Error {
    Error::new(error::Kind::Unauthorized, "unauthorized", text)
}

/// Checks the name of a user, an agent or a token, and trims it.
pub(super) fn name(text: &str) -> Result<String> {
    let name = text.trim();
    // Two names that look alike must not name two users or agents.
    check_visible_line("name", name)?;
    if (1..=LONGEST_NAME).contains(&name.chars().count()) {
        return Ok(name.to_owned());
    }
    Err(Error::invalid("name", format!("1 to {LONGEST_NAME} characters on one line are a name")))
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;
    use crate::world::System;

    #[tokio::test]
    async fn two_hash_at_once_and_whoever_gives_up_makes_no_room() {
        let people = People::new(&System);
        let (go, wait) = std::sync::mpsc::sync_channel::<()>(0);
        let (wait, (started, mut starts)) = (Arc::new(Mutex::new(wait)), tokio::sync::mpsc::channel(9));
        let work = || {
            let (wait, started) = (wait.clone(), started.clone());
            move || {
                started.blocking_send(()).unwrap();
                lock(&wait).recv().unwrap();
                Ok(())
            }
        };
        let place = || people.place(Lane::Source(None)).unwrap();
        let both = async { tokio::join!(people.slowly(place(), work()), people.slowly(place(), work())) };
        tokio::select! {
            _ = both => panic!("nobody has let them go"),
            () = async { starts.recv().await.unwrap(); starts.recv().await.unwrap() } => {}
        }
        // Nobody waits for them now, and still they are at work.
        assert_eq!(people.hashing.available_permits(), 0);
        let third = people.slowly(place(), || Ok(3));
        let mut third = std::pin::pin!(third);
        tokio::select! {
            biased;
            _ = &mut third => panic!("it was not its turn"),
            () = std::future::ready(()) => {}
        }
        go.send(()).unwrap();
        assert_eq!(timeout(Duration::from_secs(30), third).await.unwrap(), Ok(3));
        go.send(()).unwrap();
    }
    #[test]
    fn the_queue_is_bounded_and_each_lane_has_a_part_of_it() {
        let people = People::new(&System);
        let source = |number: u8| Lane::Source(Some(IpAddr::from([10, 0, 0, number])));
        let take = |lane, most| (0..most).map_while(|_| people.place(lane).ok()).collect::<Vec<_>>();
        let first = take(source(1), 100);
        assert_eq!(first.len(), MAX_OF_SOURCE);
        let error = people.place(source(1)).err().unwrap();
        assert_eq!((error.kind(), error.code()), (error::Kind::Unavailable, "sign_in_busy"));
        assert_eq!(error.retry_after(), Some(BUSY_RETRY));
        let others: Vec<_> = (2..100).flat_map(|number| take(source(number), 100)).collect();
        assert_eq!(first.len() + others.len(), MAX_OF_SOURCES);
        let user = Lane::User(UserId::fixed(1));
        assert_eq!(take(user, 100).len(), MAX_OF_USER, "users who are signed in have places of their own");
        drop(first);
        assert_eq!(take(source(1), 100).len(), MAX_OF_SOURCE);
        drop(others);
        assert!(lock(&people.waiting).is_empty());
    }
}
