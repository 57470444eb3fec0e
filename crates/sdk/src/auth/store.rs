//! Where sign-ins are kept.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::secret::Secret;
use super::{AuthFuture, boxed};
use crate::sync::lock;

/// Keeps what was given, so that nobody has to sign in again. What it keeps is secret and must be encrypted wherever
/// it is written to. Keys name a server and an account; they are no secrets.
pub trait TokenStore: Send + Sync + 'static {
    /// What is kept under a key.
    fn load<'a>(&'a self, key: &'a str) -> AuthFuture<'a, Option<Secret>>;

    /// Keeps something, in place of what was there. When this is done it must survive the end of the process: a
    /// token that renews others works once, and the one before it is worth nothing any more.
    fn save<'a>(&'a self, key: &'a str, record: Secret) -> AuthFuture<'a, ()>;

    /// Forgets what is kept.
    fn remove<'a>(&'a self, key: &'a str) -> AuthFuture<'a, ()>;

    /// Keeps other processes from changing what is kept under the key, until what it gives is dropped. Stores that
    /// only one process uses need none.
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

/// Keeps sign-ins for as long as the process lives.
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
