//! Fuzz targets: each takes any bytes and panics if a decoder violates one of its guarantees.
//!
//! They know nothing about libFuzzer. The programs in `src/bin` run them with input from libFuzzer, `tests/seeds.rs`
//! with the seeds, so that `cargo test` detects regressions of earlier findings.

mod auth;
mod codecs;
mod egress;
mod envelope;
mod events;
mod headers;
mod lines;
mod schema;

pub use auth::auth;
pub use codecs::codecs;
pub use egress::egress;
pub use envelope::envelope;
pub use events::events;
pub use headers::headers;
pub use lines::lines;
pub use schema::schema;
