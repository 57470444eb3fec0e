//! Values in headers: every text survives, and what a client mirrors a server accepts.

use linchpin::__private::http::{Mirrored, decode_header, encode_header, is_mirrored, mirrored};
use serde_json::Value;

/// Two lines: an input schema and arguments. All of it also as a text and as a value.
pub fn headers(data: &[u8]) {
    if let Some(text) = decode_header(data) {
        assert_eq!(decode_header(encode_header(&text).as_bytes()).as_ref(), Some(&text));
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    let value = encode_header(text);
    assert!(value.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t')), "{value:?} cannot be in a header");
    assert_eq!(value.trim(), value, "what is around it gets lost");
    assert_eq!(decode_header(value.as_bytes()).as_deref(), Some(text));
    let Some((schema, arguments)) = text.split_once('\n') else { return };
    let Ok(schema) = serde_json::from_str::<Value>(schema) else { return };
    let Ok(Mirrored { headers, checked }) = mirrored(&schema, arguments) else { return };
    assert!(headers.len() <= 32, "{} headers", headers.len());
    for (name, value) in &headers {
        assert!(is_mirrored(name), "{name}");
        assert!(decode_header(value.as_bytes()).is_some(), "{name}: {value:?}");
    }
    if let Err(text) = checked {
        // The one thing that a client cannot say.
        assert!(text.contains("cannot carry integers beyond"), "{text}");
    }
}
