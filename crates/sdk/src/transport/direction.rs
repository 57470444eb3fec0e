//! Direction of a message, from the view of the client: sent or received.

use std::fmt;

/// Direction of a message, from the view of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the client to the server.
    Sent,
    /// From the server to the client.
    Received,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Direction::Sent => "→",
            Direction::Received => "←",
        })
    }
}
