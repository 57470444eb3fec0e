//! Target for the wire codecs: decoding any message for any revision gives a value or an error with an existing path,
//! and every decoded value encodes, for every revision, to JSON that our scanner accepts.

use linchpin_jsonrpc::{Limits, Message, Params, ResponsePayload, check, from_checked, parse, path_at};
use linchpin_protocol::encode::{Encode, to_vec};
use linchpin_protocol::model::{
    CallToolParams, CallToolResult, CancelledParams, CompleteParams, CompleteResult, CreateMessageParams,
    CreateMessageResult, DiscoverResult, ElicitParams, ElicitResult, GetPromptParams, GetPromptResult,
    InitializeParams, InitializeResult, InputRequiredResult, ListPromptsResult, ListResourceTemplatesResult,
    ListResourcesResult, ListRootsResult, ListToolsResult, LogParams, ProgressParams, ReadResourceResult,
    SubscriptionsListenParams,
};
use linchpin_protocol::wire::{ClientRequest, DecodeError, InvalidValue, decode, stateless_era};
use linchpin_protocol::{Revision, wire};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Decodes the bytes as a message with every codec.
pub fn codecs(data: &[u8]) {
    match parse(data, Limits::default()) {
        Ok(Message::Request { method, params, .. }) => {
            check_paths(&params);
            check_request(&method, &params);
            if let Some(text) = params.text() {
                check_params(text);
            }
        }
        Ok(Message::Notification { params, .. }) => {
            if let Some(text) = params.text() {
                check_params(text);
            }
        }
        Ok(Message::Response { reply: ResponsePayload::Result(text), .. }) => check_results(text),
        _ => {}
    }
}

fn check_paths(params: &Params<'_>) {
    let Some(text) = params.text() else { return };
    let Ok(value) = serde_json::from_str::<Value>(text) else { return };
    for at in [0, text.len() / 3, text.len() / 2, text.len().saturating_sub(2), text.len()] {
        let path = path_at(text, at);
        assert!(
            value.pointer(&path).is_some(),
            "byte {at} of {text} has the path {path}, which does not exist"
        );
    }
    // serde_json rejects only numbers beyond the range of f64.
    assert_eq!(from_checked::<Value>(text).is_ok(), serde_json::from_str::<Value>(text).is_ok(), "{text}");
}

fn check_request(method: &str, params: &Params<'_>) {
    let meta = stateless_era::request_meta(params);
    if let Ok(Some(meta)) = &meta {
        let _ = stateless_era::check(meta, &Revision::ALL);
    }
    for revision in Revision::ALL {
        match ClientRequest::decode(revision, method, params) {
            Ok(_) | Err(DecodeError::NotInRevision) => {}
            Err(error @ DecodeError::Invalid(_)) => {
                let object = wire::error_object(&error.into_error(method), revision);
                assert_eq!(object.code, linchpin_protocol::code::INVALID_PARAMS);
                assert!(!object.message.is_empty());
            }
        }
    }
}

fn check_params(text: &str) {
    round_trip::<InitializeParams>(text);
    round_trip::<CallToolParams>(text);
    round_trip::<GetPromptParams>(text);
    round_trip::<CompleteParams>(text);
    round_trip::<SubscriptionsListenParams>(text);
    round_trip::<CreateMessageParams>(text);
    round_trip::<ElicitParams>(text);
    round_trip::<CancelledParams>(text);
    round_trip::<ProgressParams>(text);
    round_trip::<LogParams>(text);
}

fn check_results(text: &str) {
    round_trip::<InitializeResult>(text);
    round_trip::<DiscoverResult>(text);
    round_trip::<CallToolResult>(text);
    round_trip::<ListToolsResult>(text);
    round_trip::<ListResourcesResult>(text);
    round_trip::<ListResourceTemplatesResult>(text);
    round_trip::<ReadResourceResult>(text);
    round_trip::<ListPromptsResult>(text);
    round_trip::<GetPromptResult>(text);
    round_trip::<CompleteResult>(text);
    round_trip::<CreateMessageResult>(text);
    round_trip::<ElicitResult>(text);
    round_trip::<ListRootsResult>(text);
    round_trip::<InputRequiredResult>(text);
}

/// Decodes, encodes for every revision, and decodes the encoding of the newest one again.
fn round_trip<T: DeserializeOwned + Encode>(text: &str) {
    let value = match decode::<T>(text) {
        Ok(value) => value,
        Err(InvalidValue { path, .. }) => {
            let Ok(value) = serde_json::from_str::<Value>(text) else { return };
            assert!(value.pointer(&path).is_some(), "{path} does not exist in {text}");
            return;
        }
    };
    for revision in Revision::ALL {
        let json = String::from_utf8(to_vec(&value, revision)).expect("JSON is UTF-8");
        if let Err(error) = check(&json, Limits { depth: u32::MAX, keys: u32::MAX, values: u32::MAX }) {
            panic!("{text} was written for {revision} as {json}: {error}");
        }
        if revision == Revision::LATEST
            && let Err(error) = decode::<T>(&json)
        {
            panic!("{text} was written as {json}, which does not decode: {error:?}");
        }
    }
}
