//! The fuzz targets: each takes any bytes and panics when a promise of the decoders is broken.
//!
//! They know nothing of libFuzzer. The programs in `src/bin` feed them what libFuzzer invents, `tests/seeds.rs`
//! feeds them the seeds, so that everything ever found stays found in a plain `cargo test`.

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
