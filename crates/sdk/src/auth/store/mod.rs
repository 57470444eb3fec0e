//! Stores for OAuth tokens: in memory, in files, or an implementation of [`TokenStore`].

pub(super) mod file;
pub(super) mod record;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::secret::Secret;
use super::{AuthFuture, boxed};
use crate::lock::lock;

/// Store for the OAuth tokens of a client, so that users do not have to sign in again. Records are secret and must be
/// encrypted at rest. Keys name a server and an account; they are not secret.
pub trait TokenStore: Send + Sync + 'static {
    /// Returns the stored token record of a key, if any.
    fn load<'a>(&'a self, key: &'a str) -> AuthFuture<'a, Option<Secret>>;

    /// Stores the token record of a key and replaces the previous one. The record must be durable when this returns: a
    /// refresh token is usable once, and its predecessor is invalid.
    fn save<'a>(&'a self, key: &'a str, record: Secret) -> AuthFuture<'a, ()>;

    /// Deletes the stored token record of a key.
    fn remove<'a>(&'a self, key: &'a str) -> AuthFuture<'a, ()>;

    /// Locks a key against other processes until the returned guard is dropped. Stores of a single process need no
    /// lock.
    fn lock<'a>(&'a self, _key: &'a str) -> AuthFuture<'a, Box<dyn Send>> {
        boxed(async { Ok(Box::new(()) as Box<dyn Send>) })
    }
}

impl<T: TokenStore + ?Sized> TokenStore for Arc<T> {
    fn load<'a>(&'a self, key: &'a str) -> AuthFuture<'a, Option<Secret>> {
        (**self).load(key)
    }

    fn save<'a>(&'a self, key: &'a str, record: Secret) -> AuthFuture<'a, ()> {
        (**self).save(key, record)
    }

    fn remove<'a>(&'a self, key: &'a str) -> AuthFuture<'a, ()> {
        (**self).remove(key)
    }

    fn lock<'a>(&'a self, key: &'a str) -> AuthFuture<'a, Box<dyn Send>> {
        (**self).lock(key)
    }
}

/// Token store in memory; its tokens are lost when the process ends.
#[derive(Debug, Default)]
pub struct MemoryStore(Mutex<HashMap<String, Secret>>);

impl TokenStore for MemoryStore {
    fn load<'a>(&'a self, key: &'a str) -> AuthFuture<'a, Option<Secret>> {
        boxed(async { Ok(lock(&self.0).get(key).cloned()) })
    }

    fn save<'a>(&'a self, key: &'a str, record: Secret) -> AuthFuture<'a, ()> {
        boxed(async {
            lock(&self.0).insert(key.to_owned(), record);
            Ok(())
        })
    }

    fn remove<'a>(&'a self, key: &'a str) -> AuthFuture<'a, ()> {
        boxed(async {
            lock(&self.0).remove(key);
            Ok(())
        })
    }
}
