//! The envelope: what `parse` accepts is JSON, and its parts are what they are said to be.

use std::collections::BTreeMap;

use linchpin_jsonrpc::{Limits, Message, Params, Reply, check, parse};
use serde_json::Value;
use serde_json::value::RawValue;

/// Decodes the bytes as one message and compares with `serde_json`.
pub fn envelope(data: &[u8]) {
    let Ok(message) = parse(data, Limits::default()) else { return };
    assert!(std::str::from_utf8(data).is_ok(), "a message that is not UTF-8 was accepted");
    match message {
        Message::Request { params, .. } | Message::Notification { params, .. } => {
            agree(data);
            members(&params);
        }
        Message::Response { reply: Reply::Result(text) | Reply::Error(text), .. } => {
            agree(data);
            whole(text);
        }
        Message::Batch(elements) => {
            assert!(!elements.is_empty(), "an empty batch was accepted");
            // Only grammar is promised of a batch: each element is checked when it is parsed by itself.
            let expected: Vec<&RawValue> = serde_json::from_slice(data).expect("a batch is an array");
            assert!(
                elements.iter().copied().eq(expected.iter().map(|element| element.get())),
                "other elements"
            );
            for element in elements {
                envelope_of_one(element);
            }
        }
    }
}

/// An element of a batch is a message, or is refused: a batch in a batch is the caller's to refuse.
fn envelope_of_one(element: &str) {
    if !element.starts_with('[') {
        envelope(element.as_bytes());
    }
}

/// What was accepted, `serde_json` accepts too, but for one difference: it refuses numbers that no `f64` holds,
/// which JSON allows.
fn agree(data: &[u8]) {
    let Err(error) = serde_json::from_slice::<Value>(data) else { return };
    let reason = error.to_string();
    assert!(reason.starts_with("number out of range"), "accepted what serde_json refuses: {reason}");
    // The refusal hides what stands behind the number: read it again, numbers as text.
    serde_json::from_slice::<&RawValue>(data).expect("accepted what serde_json refuses even without numbers");
}

/// A part of an accepted message is a whole JSON value by itself.
fn whole(text: &str) {
    check(text, Limits::default()).expect("a part of an accepted message passes the check");
    agree(text.as_bytes());
    assert_eq!(text.trim(), text, "a part begins or ends with white space");
}

/// Each member of the parameters is found under its name, with the text that `serde_json` sees.
fn members(params: &Params<'_>) {
    let Some(text) = params.text() else { return };
    whole(text);
    let expected: BTreeMap<String, &RawValue> = serde_json::from_str(text).expect("parameters are an object");
    for (name, value) in &expected {
        assert_eq!(params.find(name), Some(value.get()), "the member {name:?}");
    }
}
