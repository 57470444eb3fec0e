//! Target for the envelope: `parse` accepts only valid JSON, and returns its parts correctly.

use std::collections::BTreeMap;

use linchpin_jsonrpc::{Limits, Message, Params, ResponsePayload, check, parse};
use serde_json::Value;
use serde_json::value::RawValue;

/// Decodes the bytes as one message and compares with `serde_json`.
pub fn envelope(data: &[u8]) {
    let Ok(message) = parse(data, Limits::default()) else { return };
    assert!(std::str::from_utf8(data).is_ok(), "a message that is not UTF-8 was accepted");
    match message {
        Message::Request { params, .. } | Message::Notification { params, .. } => {
            check_with_serde_json(data);
            check_members(&params);
        }
        Message::Response { reply: ResponsePayload::Result(text) | ResponsePayload::Error(text), .. } => {
            check_with_serde_json(data);
            check_complete_value(text);
        }
        Message::Batch(elements) => {
            assert!(!elements.is_empty(), "an empty batch was accepted");
            // A batch is checked for grammar only; each element is checked when it is parsed.
            let expected: Vec<&RawValue> = serde_json::from_slice(data).expect("a batch is an array");
            assert!(
                elements.iter().copied().eq(expected.iter().map(|element| element.get())),
                "different elements"
            );
            for element in elements {
                envelope_of_one(element);
            }
        }
    }
}

/// Parses an element of a batch: a message or an error. The caller must reject a nested batch.
fn envelope_of_one(element: &str) {
    if !element.starts_with('[') {
        envelope(element.as_bytes());
    }
}

/// Asserts that `serde_json` accepts the text too, except for numbers beyond the range of `f64`, which JSON allows.
fn check_with_serde_json(data: &[u8]) {
    let Err(error) = serde_json::from_slice::<Value>(data) else { return };
    let reason = error.to_string();
    assert!(reason.starts_with("number out of range"), "accepted, but rejected by serde_json: {reason}");
    // The error hides the text after the number: parse again, with numbers as text.
    serde_json::from_slice::<&RawValue>(data)
        .expect("accepted, but rejected by serde_json even without numbers");
}

/// Asserts that a part of an accepted message is a complete JSON value.
fn check_complete_value(text: &str) {
    check(text, Limits::default()).expect("a part of an accepted message passes the check");
    check_with_serde_json(text.as_bytes());
    assert_eq!(text.trim(), text, "a part starts or ends with white space");
}

/// Asserts that each member of the parameters is found by name, with the same text as in `serde_json`.
fn check_members(params: &Params<'_>) {
    let Some(text) = params.text() else { return };
    check_complete_value(text);
    let expected: BTreeMap<String, &RawValue> = serde_json::from_str(text).expect("parameters are an object");
    for (name, value) in &expected {
        assert_eq!(params.find(name), Some(value.get()), "the member {name:?}");
    }
}
