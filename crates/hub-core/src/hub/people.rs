//! What the hub knows of people for as long as it runs, and keeps nowhere: who tried to sign in, and the token
//! for scripts that start the hub.

use std::sync::Arc;

use linchpin::auth::Secret;
use tokio::sync::Semaphore;

use super::passwords::Kept;
use super::throttle::Throttle;
use crate::digest::Digest;
use crate::error::{self, Error, Result};
use crate::id::TokenId;
use crate::text::hex;
use crate::token;
use crate::world::{World, random};

/// How many passwords are hashed at once: each takes 64 MiB.
const HASHING: usize = 2;
const LONGEST_NAME: usize = 100;

pub(super) struct People {
    hashing: Arc<Semaphore>,
    /// Passwords that did not fit.
    pub(super) tries: Throttle,
    /// The token of this process.
    pub(super) process: Process,
    /// For names that nobody has.
    nobody: Kept,
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
            tries: Throttle::default(),
            process: Process { id, secret, digest },
            nobody: Kept::of_nobody(world),
        }
    }

    /// Hashes a password to keep it.
    pub(super) async fn hash(&self, world: &Arc<dyn World>, password: &Secret) -> Result<Kept> {
        let (world, password) = (world.clone(), password.clone());
        self.slowly(move || Kept::new(&*world, &password)).await
    }

    /// Whether it is the password. For somebody without one it takes as long to say no.
    pub(super) async fn fits(&self, kept: Option<&Kept>, password: &Secret) -> Result<bool> {
        let (kept, password) = (kept.unwrap_or(&self.nobody).clone(), password.clone());
        self.slowly(move || kept.fits(&password)).await
    }

    /// Works beside everything else, when it is its turn. Who gives up waiting does not make room: the work goes on.
    async fn slowly<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let over = || Error::new(error::Kind::Unavailable, "hub_ending", "the hub is ending");
        let turn = self.hashing.clone().acquire_owned().await.map_err(|_| over())?;
        let work = tokio::task::spawn_blocking(move || {
            let result = work();
            drop(turn);
            result
        });
        work.await.map_err(|_| over())?
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

/// A name as people give it.
pub(super) fn name(text: &str) -> Result<String> {
    let name = text.trim();
    if (1..=LONGEST_NAME).contains(&name.chars().count()) && !name.contains(char::is_control) {
        return Ok(name.to_owned());
    }
    Err(Error::invalid("name", format!("1 to {LONGEST_NAME} characters on one line are a name")))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;
    use crate::sync::lock;
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
        let both = async { tokio::join!(people.slowly(work()), people.slowly(work())) };
        tokio::select! {
            _ = both => panic!("nobody has let them go"),
            () = async { starts.recv().await.unwrap(); starts.recv().await.unwrap() } => {}
        }
        // Nobody waits for them now, and still they are at work.
        assert_eq!(people.hashing.available_permits(), 0);
        let third = people.slowly(|| Ok(3));
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
}
