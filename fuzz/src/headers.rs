//! Target for header values: every text survives encoding, and a server accepts what a client mirrors.

use linchpin::__private::http::{
    ParamHeaderCheck, decode_header, encode_header, is_param_header, param_headers,
};
use serde_json::Value;

/// Tests an input schema and arguments, from two lines; and the whole input as text and as a header value.
pub fn headers(data: &[u8]) {
    if let Some(text) = decode_header(data) {
        assert_eq!(decode_header(encode_header(&text).as_bytes()).as_ref(), Some(&text));
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    let value = encode_header(text);
    assert!(value.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t')), "{value:?} cannot be in a header");
    assert_eq!(value.trim(), value, "surrounding white space would be lost");
    assert_eq!(decode_header(value.as_bytes()).as_deref(), Some(text));
    let Some((schema, arguments)) = text.split_once('\n') else { return };
    let Ok(schema) = serde_json::from_str::<Value>(schema) else { return };
    let Ok(ParamHeaderCheck { headers, checked }) = param_headers(&schema, arguments) else { return };
    assert!(headers.len() <= 32, "{} headers", headers.len());
    for (name, value) in &headers {
        assert!(is_param_header(name), "{name}");
        assert!(decode_header(value.as_bytes()).is_some(), "{name}: {value:?}");
    }
    if let Err(text) = checked {
        // The only value that a client cannot send.
        assert!(text.contains("cannot carry integers beyond"), "{text}");
    }
}
