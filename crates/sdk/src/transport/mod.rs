//! Ways for messages to travel. A transport moves bytes and cuts them into messages; it never looks inside.

pub(crate) mod memory;
pub(crate) mod stdio;
mod stream;
