//! Functions that append JSON-RPC messages to a byte buffer. No newline is appended: framing is up to the transport.

use serde_json::Value;

use crate::string::write_string;
use crate::{ErrorObject, Id};

/// Appends a response with a result to `out` as JSON. `result` must append exactly one JSON value.
pub fn result(id: &Id<'_>, out: &mut Vec<u8>, result: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    id.write(out);
    out.extend_from_slice(br#","result":"#);
    result(out);
    out.push(b'}');
}

/// Form of the `id` in an error response to a message whose id could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownId {
    /// Error response with `"id": null`, as specified by JSON-RPC 2.0.
    Null,
    /// No `id` member, as in some protocols based on JSON-RPC.
    Absent,
}

/// Appends an error response to `out` as JSON.
pub fn error(id: Option<&Id<'_>>, unknown: UnknownId, error: &ErrorObject, out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"jsonrpc":"2.0""#);
    match id {
        Some(id) => {
            out.extend_from_slice(br#","id":"#);
            id.write(out);
        }
        None if unknown == UnknownId::Null => out.extend_from_slice(br#","id":null"#),
        None => {}
    }
    out.extend_from_slice(br#","error":{"code":"#);
    integer(error.code, out);
    out.extend_from_slice(br#","message":"#);
    write_string(&error.message, out);
    if let Some(data) = &error.data {
        out.extend_from_slice(br#","data":"#);
        value(data, out);
    }
    out.extend_from_slice(b"}}");
}

/// Appends a request to `out` as JSON.
pub fn request(id: &Id<'_>, method: &str, out: &mut Vec<u8>, params: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    id.write(out);
    out.push(b',');
    method_and_params(method, out, params);
}

/// Appends a notification to `out` as JSON.
pub fn notification(method: &str, out: &mut Vec<u8>, params: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(br#"{"jsonrpc":"2.0","#);
    method_and_params(method, out, params);
}

/// Appends the members `method` and `params` of a message. The closure appends one JSON object, or nothing to omit
/// `params`.
fn method_and_params(method: &str, out: &mut Vec<u8>, params: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(br#""method":"#);
    write_string(method, out);
    let before = out.len();
    out.extend_from_slice(br#","params":"#);
    let empty = out.len();
    params(out);
    if out.len() == empty {
        out.truncate(before);
    }
    out.push(b'}');
}

/// Appends a JSON integer.
pub fn integer(number: i64, out: &mut Vec<u8>) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    let mut rest = number.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends any JSON value.
pub fn value(value: &Value, out: &mut Vec<u8>) {
    serde_json::to_writer(out, value).expect("serializing a JSON value to memory cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn integers() {
        for number in [0, 1, -1, 42, 1_234_567_890, i64::MAX, i64::MIN] {
            assert_eq!(text(|out| integer(number, out)), number.to_string());
        }
    }

    #[test]
    fn messages() {
        assert_eq!(
            text(|out| result(&Id::from("a\"b"), out, |out| out.extend_from_slice(b"{}"))),
            r#"{"jsonrpc":"2.0","id":"a\"b","result":{}}"#
        );
        assert_eq!(text(|out| notification("n", out, |_| ())), r#"{"jsonrpc":"2.0","method":"n"}"#);
        assert_eq!(
            text(|out| request(&Id::from(1), "m", out, |out| out.extend_from_slice(b"{}"))),
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{}}"#
        );
        let fault = ErrorObject { code: -1, message: "no".into(), data: Some(Value::Bool(true)) };
        assert_eq!(
            text(|out| error(None, UnknownId::Null, &fault, out)),
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"no","data":true}}"#
        );
        assert_eq!(
            text(|out| error(None, UnknownId::Absent, &ErrorObject { data: None, ..fault }, out)),
            r#"{"jsonrpc":"2.0","error":{"code":-1,"message":"no"}}"#
        );
    }
}
