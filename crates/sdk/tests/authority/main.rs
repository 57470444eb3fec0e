//! Test authority of the test kit: the behaviour of the honest authority, and the effect of each switch. The
//! requests are written by hand, without the client that it tests.
#![cfg(feature = "auth")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod grants;
mod honest;
mod proofs;
mod raw;
mod switches;
