//! Shared state that handlers of a server take as a parameter, looked up by type.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use crate::Error;
use crate::server::Context;

/// Shared values that handlers of a server can take, one per type.
#[derive(Clone, Default)]
pub(crate) struct StateMap(HashMap<TypeId, Arc<dyn Any + Send + Sync>>);

impl StateMap {
    pub(crate) fn insert<T: Send + Sync + 'static>(&mut self, value: T) {
        self.0.insert(TypeId::of::<T>(), Arc::new(value));
    }

    pub(crate) fn has(&self, required: RequiredState) -> bool {
        self.0.contains_key(&required.id)
    }

    pub(crate) fn find<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        self.0.get(&TypeId::of::<T>())?.clone().downcast().ok()
    }
}

/// Parameter of a macro handler: a value that was added with [`crate::Server::state`]. It dereferences to the value:
/// `counter.0` is the field of `struct Counter(…)`.
pub struct State<T> {
    value: Arc<T>,
}

impl<T: Send + Sync + 'static> State<T> {
    /// Gets the state value of this type from the context of a request.
    pub fn from_context(cx: &Context) -> Result<Self, Error> {
        cx.get().map(|value| State { value }).ok_or_else(|| {
            let name = type_name::<T>();
            Error::setup(format!("the handler takes a State<{name}>, which the server does not have: call .state(value) on the server"))
        })
    }

    /// Returns the shared state value. This is not a method, so that it hides none of the value's own methods.
    pub fn into_inner(this: Self) -> Arc<T> {
        this.value
    }

    /// Returns the state type that [`crate::Server::build`] requires to be added to the server.
    #[doc(hidden)]
    pub fn required() -> RequiredState {
        RequiredState { id: TypeId::of::<T>(), name: type_name::<T>() }
    }
}

/// Type of a shared state that a handler takes, which is checked when the server is built.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct RequiredState {
    id: TypeId,
    name: &'static str,
}

impl RequiredState {
    pub(crate) fn name(self) -> &'static str {
        self.name
    }
}

impl<T> Deref for State<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Clone for State<T> {
    fn clone(&self) -> Self {
        State { value: self.value.clone() }
    }
}
