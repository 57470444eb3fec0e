//! The fuzz targets: each takes any bytes and panics when a promise of the decoders is broken.
//!
//! They know nothing of libFuzzer. The programs in `src/bin` feed them what libFuzzer invents, `tests/seeds.rs`
//! feeds them the seeds, so that everything ever found stays found in a plain `cargo test`.

mod envelope;
mod lines;
mod plain;

pub use envelope::envelope;
pub use lines::lines;

use linchpin_jsonrpc::{Limits, Message, parse, path_at};

use crate::plain::Plain;

/// The wire codecs: whatever the parameters hold, an error names a place that exists in them.
pub fn codecs(data: &[u8]) {
    let Ok(Message::Request { params, .. } | Message::Notification { params, .. }) =
        parse(data, Limits::default())
    else {
        return;
    };
    let Some(text) = params.text() else { return };
    let Ok(Plain(value)) = serde_json::from_str(text) else { return };
    for at in [0, text.len() / 3, text.len() / 2, text.len().saturating_sub(2), text.len()] {
        let path = path_at(text, at);
        assert!(
            value.pointer(&path).is_some(),
            "byte {at} of {text} is said to be in {path}, which does not exist"
        );
    }
}
