//! The authority of the test kit: what it grants when everything is as it should be, and what each switch does to that.
//! All of it by hand, without the client that it is made for.
#![cfg(feature = "auth")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod grants;
mod honest;
mod proofs;
mod raw;
mod switches;
