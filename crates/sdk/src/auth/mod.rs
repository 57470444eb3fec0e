//! Who asks: how clients sign in to servers, and what both sides of that share.

mod secret;

pub use secret::Secret;

pub use crate::jose::Algorithm;
