//! Message decoding: one line in, one message out.

use std::borrow::Cow;

use crate::error::{ParseError, ParseErrorKind};
use crate::scan::{Limits, RawString, Scan};
use crate::string::unescape;
use crate::{Id, Params};

/// Decoded JSON-RPC message: a request, notification or response. All parts borrow from the line.
#[derive(Debug, Clone)]
pub enum Message<'a> {
    /// Request, which expects a response.
    Request {
        /// Id chosen by the sender.
        id: Id<'a>,
        /// Method name.
        method: Cow<'a, str>,
        /// Parameters of the request.
        params: Params<'a>,
    },
    /// Notification; expects no response.
    Notification {
        /// Method name.
        method: Cow<'a, str>,
        /// Parameters of the notification.
        params: Params<'a>,
    },
    /// Response to a request that the receiver of this message has sent.
    Response {
        /// Id of the request. May be absent in an error response.
        id: Option<Id<'a>>,
        /// Result or error of the response.
        reply: ResponsePayload<'a>,
    },
    /// Batch: several messages in one line. Each element is valid JSON; its keys and members are checked when it is
    /// parsed.
    Batch(Vec<&'a str>),
}

/// Payload of a JSON-RPC response: its result or error, as JSON text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponsePayload<'a> {
    /// Text of the `result` member of the response.
    Result(&'a str),
    /// Text of the `error` member of the response.
    Error(&'a str),
}

#[derive(Default)]
struct EnvelopeParts<'a> {
    version: bool,
    id: Option<Result<Id<'a>, ParseError>>,
    method: Option<Cow<'a, str>>,
    params: Option<Params<'a>>,
    result: Option<&'a str>,
    error: Option<&'a str>,
    /// Whether the message has a `result` or an `error`, valid or not.
    has_response: bool,
    /// First error about a member of the message. It is reported only after the whole line has been checked: syntax
    /// errors take precedence.
    first_error: Option<ParseError>,
}

/// Decodes one line strictly: a JSON-RPC message or a batch.
pub fn parse(line: &[u8], limits: Limits) -> Result<Message<'_>, ParseError> {
    let text = std::str::from_utf8(line).map_err(|error| {
        ParseError::new(ParseErrorKind::Syntax, error.valid_up_to(), "the message is not valid UTF-8")
    })?;
    let mut scan = Scan::new(text, limits);
    match scan.peek() {
        Some(b'{') => {}
        Some(b'[') => return batch(scan),
        _ => {
            check_value(&mut scan)?;
            return Err(ParseError::new(ParseErrorKind::Shape, 0, "a message must be a JSON object"));
        }
    }
    let mut parts = EnvelopeParts::default();
    let scanned =
        scan.object(0, |scan, key, depth| parts.member(scan, key, depth)).and_then(|()| scan.expect_end());
    match scanned.and_then(|()| parts.validate()) {
        Ok(()) => parts.into_message(),
        Err(mut error) => {
            if error.kind != ParseErrorKind::Syntax {
                error.id = parts.id.and_then(Result::ok).map(Id::into_owned);
            }
            error.is_response = parts.has_response && parts.method.is_none();
            Err(error)
        }
    }
}

fn check_value(scan: &mut Scan<'_>) -> Result<(), ParseError> {
    scan.value(0)?;
    scan.expect_end()
}

/// Splits a JSON-RPC batch into messages, checking only the grammar: each is decoded separately, so that an invalid one
/// does not affect the others.
fn batch(mut scan: Scan<'_>) -> Result<Message<'_>, ParseError> {
    scan.skip_key_checks();
    let mut elements = Vec::new();
    scan.elements(0, |element| elements.push(element))?;
    scan.expect_end()?;
    if elements.is_empty() {
        return Err(ParseError::new(ParseErrorKind::Shape, 0, "a batch must contain at least one message"));
    }
    Ok(Message::Batch(elements))
}

impl<'a> EnvelopeParts<'a> {
    fn member(&mut self, scan: &mut Scan<'a>, key: RawString<'a>, depth: u32) -> Result<(), ParseError> {
        let name = if key.escaped { unescape(key.raw) } else { Cow::Borrowed(key.raw) };
        let first = scan.peek();
        let at = scan.at;
        match &*name {
            "params" if first == Some(b'{') => {
                self.params = Some(Params::read(scan, depth)?);
                return Ok(());
            }
            "method" if first == Some(b'"') => {
                let method = scan.string()?;
                self.method = Some(unescape(method.raw));
                return Ok(());
            }
            _ => {}
        }
        self.has_response |= matches!(&*name, "result" | "error");
        let value = scan.value(depth)?;
        match &*name {
            "jsonrpc" => {
                self.version = value == "\"2.0\"";
                if !self.version {
                    self.record_error(at, "\"jsonrpc\" must be the string \"2.0\"");
                }
            }
            "id" => self.id = Some(read_id(value, at)),
            "method" => self.record_error(at, "\"method\" must be a string"),
            "params" => {
                let fault = ParseError::new(ParseErrorKind::Params, at, "\"params\" must be an object");
                self.first_error.get_or_insert(fault);
            }
            "result" => self.result = Some(value),
            "error" => self.error = Some(value),
            _ => {}
        }
        Ok(())
    }

    fn record_error(&mut self, at: usize, message: &'static str) {
        self.first_error.get_or_insert(ParseError::new(ParseErrorKind::Shape, at, message));
    }

    /// Checks that the members of the object form a JSON-RPC message and returns the first error.
    fn validate(&mut self) -> Result<(), ParseError> {
        if !self.version {
            self.record_error(0, "the member \"jsonrpc\": \"2.0\" is missing");
        }
        let response_members = usize::from(self.result.is_some()) + usize::from(self.error.is_some());
        if self.method.is_some() && response_members > 0 {
            self.record_error(0, "a message with \"method\" cannot also carry \"result\" or \"error\"");
        } else if response_members == 2 {
            self.record_error(0, "a response carries either \"result\" or \"error\", not both");
        } else if self.method.is_none() && response_members == 0 {
            self.record_error(0, "the message has neither \"method\" nor \"result\" nor \"error\"");
        } else if self.result.is_some() && self.id.is_none() {
            self.record_error(0, "a response with \"result\" needs the \"id\" of its request");
        }
        // JSON-RPC 2.0 sends `"id": null` in the response to a message whose id could not be read.
        if let Some(Err(error)) = &self.id
            && !(self.error.is_some() && error.at == NULL_ID)
        {
            let fault = ParseError { at: if error.at == NULL_ID { 0 } else { error.at }, ..error.clone() };
            // Invalid parameters without an id would indicate a notification, but this message has an `id` member.
            self.first_error.take_if(|first_error| first_error.kind == ParseErrorKind::Params);
            self.first_error.get_or_insert(fault);
        }
        self.first_error.take().map_or(Ok(()), Err)
    }

    fn into_message(self) -> Result<Message<'a>, ParseError> {
        let id = self.id.and_then(Result::ok);
        let params = self.params.unwrap_or_default();
        Ok(match (self.method, id, self.result, self.error) {
            (Some(method), Some(id), ..) => Message::Request { id, method, params },
            (Some(method), None, ..) => Message::Notification { method, params },
            (None, id, Some(result), _) => Message::Response { id, reply: ResponsePayload::Result(result) },
            (None, id, None, Some(error)) => Message::Response { id, reply: ResponsePayload::Error(error) },
            (None, _, None, None) => {
                return Err(ParseError::new(ParseErrorKind::Shape, 0, "the message is empty"));
            }
        })
    }
}

/// Error position that stands for an error about `"id": null`.
const NULL_ID: usize = usize::MAX;

/// Maximum length of a string id of a JSON-RPC message in bytes. Ids are held in memory while their requests are in
/// progress.
const MAX_ID_LEN: usize = 1_024;

fn read_id(text: &str, at: usize) -> Result<Id<'_>, ParseError> {
    let invalid = |at, message: &'static str| Err(ParseError::new(ParseErrorKind::Shape, at, message));
    match text.as_bytes().first() {
        Some(b'"') if text.len() > MAX_ID_LEN => invalid(at, "\"id\" must not be longer than 1,024 bytes"),
        Some(b'"') => Ok(Id::String(unescape(&text[1..text.len() - 1]))),
        Some(b'n') => invalid(NULL_ID, "\"id\" must be a string or an integer, not null"),
        Some(b'-' | b'0'..=b'9') => match text.parse() {
            Ok(number) => Ok(Id::Number(number)),
            Err(_) => invalid(at, "\"id\" must be an integer that fits into 64 bits"),
        },
        _ => invalid(at, "\"id\" must be a string or an integer"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::code;

    fn parsed(line: &str) -> Result<Message<'_>, ParseError> {
        parse(line.as_bytes(), Limits::default())
    }

    fn fault(line: &str) -> (i64, String, Option<Id<'static>>) {
        let error = parsed(line).unwrap_err();
        (error.code(), error.message.to_string(), error.id)
    }

    #[test]
    fn a_request_borrows_from_its_line() {
        let line = r#"{"jsonrpc":"2.0","id":7,"method":"a/b","params":{"x":[1, 2],"y":"z"}}"#;
        let Message::Request { id, method, params } = parsed(line).unwrap() else { panic!("not a request") };
        assert_eq!(id, Id::Number(7));
        assert!(matches!(method, Cow::Borrowed("a/b")));
        assert_eq!(params.find("x"), Some("[1, 2]"));
        assert_eq!(params.find("y"), Some("\"z\""));
        assert_eq!(params.find("z"), None);
        assert_eq!(params.text(), Some(r#"{"x":[1, 2],"y":"z"}"#));
    }

    #[test]
    fn keys_may_be_escaped_and_members_many() {
        let line = r#"{"jsonrpc":"2.0","id":"i","m\u0065thod":"m","params":{"1":1,"2":2,"3":3,"4":4,"5":5,"6":6,"7":7,"\u0038":8}}"#;
        let Message::Request { id, method, params } = parsed(line).unwrap() else { panic!("not a request") };
        assert_eq!((id, &*method), (Id::from("i"), "m"));
        assert_eq!((params.find("1"), params.find("7"), params.find("8")), (Some("1"), Some("7"), Some("8")));
    }

    #[test]
    fn the_other_kinds() {
        assert!(matches!(parsed(r#"{"jsonrpc":"2.0","method":"n"}"#), Ok(Message::Notification { .. })));
        let response = parsed(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
        assert!(matches!(
            response,
            Ok(Message::Response { id: Some(Id::Number(1)), reply: ResponsePayload::Result("{}") })
        ));
        let anonymous = parsed(r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}"#);
        assert!(matches!(anonymous, Ok(Message::Response { id: None, reply: ResponsePayload::Error(_) })));
        assert!(matches!(parsed("[1, {}]"), Ok(Message::Batch(elements)) if elements == ["1", "{}"]));
    }

    #[test]
    fn faults_say_what_is_wrong_and_keep_the_id() {
        let id = Some(Id::Number(1));
        let cases = [
            (r#"{"jsonrpc":"2.0","id":1,"method":3}"#, "\"method\" must be a string", id.clone()),
            (
                r#"{"jsonrpc":"1.0","id":1,"method":"m"}"#,
                "\"jsonrpc\" must be the string \"2.0\"",
                id.clone(),
            ),
            (r#"{"id":1,"method":"m"}"#, "the member \"jsonrpc\": \"2.0\" is missing", id.clone()),
            (
                r#"{"jsonrpc":"2.0","id":null,"method":"m"}"#,
                "\"id\" must be a string or an integer, not null",
                None,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1.5,"method":"m"}"#,
                "\"id\" must be an integer that fits into 64 bits",
                None,
            ),
            (r#"{"jsonrpc":"2.0","id":{},"method":"m"}"#, "\"id\" must be a string or an integer", None),
            (
                r#"{"jsonrpc":"2.0","id":1,"params":{"a":{"k":1,"k":2}},"method":"m"}"#,
                "the key \"k\" occurs twice in one object",
                id.clone(),
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"m","result":1}"#,
                "a message with \"method\" cannot also carry \"result\" or \"error\"",
                id.clone(),
            ),
            (
                r#"{"jsonrpc":"2.0","id":1}"#,
                "the message has neither \"method\" nor \"result\" nor \"error\"",
                id,
            ),
            (
                r#"{"jsonrpc":"2.0","result":1}"#,
                "a response with \"result\" needs the \"id\" of its request",
                None,
            ),
            ("7", "a message must be a JSON object", None),
            ("[]", "a batch must contain at least one message", None),
        ];
        for (line, message, id) in cases {
            assert_eq!(fault(line), (code::INVALID_REQUEST, message.to_owned(), id), "{line}");
        }
        let params = fault(r#"{"jsonrpc":"2.0","id":1,"method":"m","params":[]}"#);
        assert_eq!(
            params,
            (code::INVALID_PARAMS, "\"params\" must be an object".into(), Some(Id::Number(1)))
        );
        let neither = r#"{"jsonrpc":"2.0","method":"m","params":[],"id":null}"#;
        assert_eq!(fault(neither).1, "\"id\" must be a string or an integer, not null");
        for line in [
            r#"{"jsonrpc":"2.0","id":1,"result":1,"error":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{"k":1,"k":2}}"#,
        ] {
            let error = parsed(line).unwrap_err();
            assert!(error.is_response && error.id == Some(Id::Number(1)), "{line}");
        }
        assert!(!parsed(r#"{"jsonrpc":"2.0","id":1,"method":"m","result":1}"#).unwrap_err().is_response);
        assert_eq!(fault(r#"{"jsonrpc":"2.0","id":1,"method":"m"#).0, code::PARSE_ERROR);
        assert_eq!(parse(b"{\"a\":\"\xff\"}", Limits::default()).unwrap_err().code(), code::PARSE_ERROR);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&line, Limits::default());
        }

        #[test]
        fn no_almost_message_panics(line in r#"\{("(jsonrpc|id|method|params|result|error)":("2.0"|1|null|\{\}|"\\u0|[\[{]),?){0,5}\}?"#) {
            let _ = parse(line.as_bytes(), Limits::default());
        }
    }
}
