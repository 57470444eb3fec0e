//! Ways for messages to travel. A transport carries whole messages in both directions, in order, and never looks
//! inside them.
//!
//! [`Transport`] is what to implement for a way of your own: it is opened with a [`Wire`], to which it hands what
//! arrives and from which it takes what is to be sent.

#[cfg(unix)]
pub(crate) mod child;
mod direction;
#[cfg(feature = "http-client")]
pub mod http;
pub(crate) mod memory;
pub(crate) mod stdio;
mod stream;
mod wire;

use std::io;
use std::pin::Pin;

pub use direction::Direction;
pub use linchpin_jsonrpc::Id;
pub(crate) use wire::Receiver;
pub use wire::{Carrier, Outgoing, Wire};

/// What opening gives, in time.
pub type Opening<'a> = Pin<Box<dyn Future<Output = io::Result<Box<dyn Line>>> + Send + 'a>>;

/// A way to the other side.
pub trait Transport: Send + Sync + 'static {
    /// Opens the way, for one connection. It may be opened again after that connection has ended.
    fn open(&self, wire: Wire) -> Opening<'_>;

    /// What the other side is remembered by: the same for every connection to the same server.
    fn name(&self) -> String;
}

impl<T: Transport + ?Sized> Transport for Box<T> {
    fn open<'a>(
        &'a self,
        wire: Wire,
    ) -> Pin<Box<dyn Future<Output = io::Result<Box<dyn Line>>> + Send + 'a>> {
        (**self).open(wire)
    }

    fn name(&self) -> String {
        (**self).name()
    }
}

/// An open way. Dropping it ends it at once.
pub trait Line: Send + Sync {
    /// Ends it in good order: what was sent arrives, and nothing is left behind. When it is done
    /// [`Wire::ended`] has been called.
    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// Waits until the notifications that were sent so far have arrived, where they could otherwise be overtaken by
    /// what is sent next.
    fn flush(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::ready(()))
    }
}
