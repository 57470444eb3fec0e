//! Transports: they move whole messages in both directions, in order, without inspecting them.
//!
//! Implement [`Transport`] for a custom one: it is opened with a [`Wire`], to which it passes received messages and
//! from which it takes outgoing ones.

#[cfg(unix)]
pub(crate) mod child;
mod direction;
#[cfg(feature = "http-client")]
pub mod http;
pub(crate) mod memory;
mod std_stream;
pub(crate) mod stdio;
mod wire;

use std::io;
use std::pin::Pin;

pub use direction::Direction;
pub use linchpin_jsonrpc::Id;
pub(crate) use wire::Receiver;
pub use wire::{OutgoingMessages, PerRequestTransport, Wire};

/// Future that opens a connection of a transport and returns its handle.
pub type OpenFuture<'a> = Pin<Box<dyn Future<Output = io::Result<Box<dyn TransportHandle>>> + Send + 'a>>;

/// Way to connect to a server, such as a child process or HTTP.
pub trait Transport: Send + Sync + 'static {
    /// Opens one connection to the server. It may be called again after that connection has ended.
    fn open(&self, wire: Wire) -> OpenFuture<'_>;

    /// Returns a name of the server, under which knowledge about it is cached. It must be the same for all connections
    /// to the same server.
    fn name(&self) -> String;
}

impl<T: Transport + ?Sized> Transport for Box<T> {
    fn open<'a>(
        &'a self,
        wire: Wire,
    ) -> Pin<Box<dyn Future<Output = io::Result<Box<dyn TransportHandle>>> + Send + 'a>> {
        (**self).open(wire)
    }

    fn name(&self) -> String {
        (**self).name()
    }
}

/// Handle with which a client closes the open connection of a transport. Dropping it closes the connection at once.
pub trait TransportHandle: Send + Sync {
    /// Closes the connection gracefully: sent messages are delivered, and all resources are released.
    /// [`Wire::report_closed`] has been called when the future completes.
    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// Waits until all notifications sent so far are delivered, for transports in which later messages could
    /// overtake them.
    fn flush(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::ready(()))
    }
}
