//! Values that handlers share, found by their type.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use super::Context;
use crate::Error;

/// Values by type.
#[derive(Clone, Default)]
pub(crate) struct StateMap(HashMap<TypeId, Arc<dyn Any + Send + Sync>>);

impl StateMap {
    pub(crate) fn insert<T: Send + Sync + 'static>(&mut self, value: T) {
        self.0.insert(TypeId::of::<T>(), Arc::new(value));
    }

    pub(crate) fn find<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        self.0.get(&TypeId::of::<T>())?.clone().downcast().ok()
    }
}

/// A value that was given to the server with [`crate::Server::state`], as a parameter of a macro handler.
pub struct State<T>(pub Arc<T>);

impl<T: Send + Sync + 'static> State<T> {
    /// Takes it from a context.
    pub fn from_context(cx: &Context) -> Result<Self, Error> {
        cx.get().map(State).ok_or_else(|| {
            let name = type_name::<T>();
            Error::setup(format!("the handler wants a State<{name}>: call .state(value) on the server"))
        })
    }
}

impl<T> Deref for State<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Clone for State<T> {
    fn clone(&self) -> Self {
        State(self.0.clone())
    }
}
