//! Round trips: every official example of the latest revision decodes into its model type and is encoded as the same
//! JSON.

use std::collections::{BTreeMap, BTreeSet};

use linchpin_jsonrpc::{ErrorObject, Id, Limits, Message, Params, ResponsePayload, parse, write};
use linchpin_protocol::encode::{Encode, Encoder, to_value, to_vec};
use linchpin_protocol::model::{
    CallToolParams, CallToolResult, CancelledParams, ClientCapabilities, CompleteParams, CompleteResult,
    Content, CreateMessageParams, CreateMessageResult, DiscoverResult, ElicitParams, ElicitResult,
    EmptyParams, EmptyResult, GetPromptParams, GetPromptResult, InputRequest, InputRequiredResult,
    ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListRootsResult, ListToolsResult,
    LogParams, ModelPreferences, PageParams, PrimitiveSchema, ProgressParams, ReadResourceParams,
    ReadResourceResult, Resource, ResourceContents, ResourceUpdatedParams, Root, SamplingMessage,
    ServerCapabilities, SubscriptionsAcknowledgedParams, SubscriptionsListenParams, Tool,
};
use linchpin_protocol::wire::{ClientRequest, decode, error_object};
use linchpin_protocol::{Error, Method, Revision, code};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use spec_check::Schemas;

const LATEST: Revision = Revision::LATEST;

#[test]
fn every_example_survives_decoding_and_encoding() {
    let Some(schemas) = Schemas::find() else { return };
    let examples = schemas.examples(LATEST.as_str());
    let mut folders = BTreeSet::new();
    for example in &examples {
        let place = format!("{}/{}", example.definition, example.name);
        let encoded =
            round_trip(&example.definition, &example.text).unwrap_or_else(|fault| panic!("{place}: {fault}"));
        let original: Value = serde_json::from_str(&example.text).unwrap();
        assert!(is_same(&encoded, &original), "{place}:\n{original}\nbecame\n{encoded}");
        folders.insert(&example.definition);
    }
    println!("{} examples of {} definitions", examples.len(), folders.len());
    assert!(folders.len() >= 80, "only {} folders of examples", folders.len());
}

/// Decodes an example of `definition` and encodes it again. Unlisted definitions fail, so that new examples are
/// noticed.
fn round_trip(definition: &str, text: &str) -> Result<Value, String> {
    match definition {
        "TextContent" | "ImageContent" | "AudioContent" | "EmbeddedResource" | "ResourceLink"
        | "ToolUseContent" | "ToolResultContent" => value::<Content>(text),
        "TextResourceContents" | "BlobResourceContents" => value::<ResourceContents>(text),
        "BooleanSchema"
        | "NumberSchema"
        | "StringSchema"
        | "TitledMultiSelectEnumSchema"
        | "TitledSingleSelectEnumSchema"
        | "UntitledMultiSelectEnumSchema"
        | "UntitledSingleSelectEnumSchema" => value::<PrimitiveSchema>(text),
        "ClientCapabilities" => value::<ClientCapabilities>(text),
        "ServerCapabilities" => value::<ServerCapabilities>(text),
        "ModelPreferences" => value::<ModelPreferences>(text),
        "Resource" => value::<Resource>(text),
        "Root" => value::<Root>(text),
        "SamplingMessage" => value::<SamplingMessage>(text),
        "Tool" => value::<Tool>(text),

        "CallToolRequest" => request::<CallToolParams>(text),
        "CompleteRequest" => request::<CompleteParams>(text),
        "DiscoverRequest" => request::<EmptyParams>(text),
        "GetPromptRequest" => request::<GetPromptParams>(text),
        "ListPromptsRequest"
        | "ListResourceTemplatesRequest"
        | "ListResourcesRequest"
        | "ListToolsRequest" => request::<PageParams>(text),
        "ReadResourceRequest" => request::<ReadResourceParams>(text),
        "SubscriptionsListenRequest" => request::<SubscriptionsListenParams>(text),

        "CallToolRequestParams" => value::<CallToolParams>(text),
        "CompleteRequestParams" => value::<CompleteParams>(text),
        "CreateMessageRequestParams" => value::<CreateMessageParams>(text),
        "ElicitRequestFormParams" | "ElicitRequestURLParams" => value::<ElicitParams>(text),
        "GetPromptRequestParams" => value::<GetPromptParams>(text),
        "PaginatedRequestParams" => value::<PageParams>(text),
        "CancelledNotificationParams" => value::<CancelledParams>(text),
        "LoggingMessageNotificationParams" => value::<LogParams>(text),
        "ProgressNotificationParams" => value::<ProgressParams>(text),
        "ResourceUpdatedNotificationParams" => value::<ResourceUpdatedParams>(text),

        "CancelledNotification" => notification::<CancelledParams>(text),
        "LoggingMessageNotification" => notification::<LogParams>(text),
        "ProgressNotification" => notification::<ProgressParams>(text),
        "ResourceUpdatedNotification" => notification::<ResourceUpdatedParams>(text),
        "SubscriptionsAcknowledgedNotification" => notification::<SubscriptionsAcknowledgedParams>(text),
        "PromptListChangedNotification"
        | "ResourceListChangedNotification"
        | "ToolListChangedNotification" => notification::<EmptyParams>(text),

        "CallToolResult" => value::<CallToolResult>(text),
        "CompleteResult" => value::<CompleteResult>(text),
        "CreateMessageResult" => value::<CreateMessageResult>(text),
        "DiscoverResult" => value::<DiscoverResult>(text),
        "ElicitResult" => value::<ElicitResult>(text),
        "GetPromptResult" => value::<GetPromptResult>(text),
        "InputRequiredResult" => value::<InputRequiredResult>(text),
        "ListPromptsResult" => value::<ListPromptsResult>(text),
        "ListResourceTemplatesResult" => value::<ListResourceTemplatesResult>(text),
        "ListResourcesResult" => value::<ListResourcesResult>(text),
        "ListRootsResult" => value::<ListRootsResult>(text),
        "ListToolsResult" => value::<ListToolsResult>(text),
        "ReadResourceResult" => value::<ReadResourceResult>(text),
        "SubscriptionsListenResult" => value::<EmptyResult>(text),

        "CallToolResultResponse" => response::<CallToolResult>(text),
        "CompleteResultResponse" => response::<CompleteResult>(text),
        "DiscoverResultResponse" => response::<DiscoverResult>(text),
        "GetPromptResultResponse" => response::<GetPromptResult>(text),
        "ListPromptsResultResponse" => response::<ListPromptsResult>(text),
        "ListResourceTemplatesResultResponse" => response::<ListResourceTemplatesResult>(text),
        "ListResourcesResultResponse" => response::<ListResourcesResult>(text),
        "ListToolsResultResponse" => response::<ListToolsResult>(text),
        "ReadResourceResultResponse" => response::<ReadResourceResult>(text),
        "SubscriptionsListenResultResponse" => response::<EmptyResult>(text),

        "CreateMessageRequest" => input_request::<CreateMessageParams>(text),
        "ElicitRequest" => input_request::<ElicitParams>(text),
        "ListRootsRequest" => roots_input_request(text),
        "InputRequests" => value::<BTreeMap<String, InputRequest>>(text),
        "InputResponses" => input_responses(text),

        "HeaderMismatchError"
        | "MissingRequiredClientCapabilityError"
        | "UnsupportedProtocolVersionError" => error_response(text),
        "InternalError" | "InvalidParamsError" | "MethodNotFoundError" | "ParseError" => error_body(text),
        _ => Err("these examples have no type of the model".into()),
    }
}

fn decoded<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    decode(text).map_err(|invalid| format!("{} at {:?}", invalid.reason, invalid.path))
}

fn value<T: DeserializeOwned + Encode>(text: &str) -> Result<Value, String> {
    Ok(to_value(&decoded::<T>(text)?, LATEST))
}

fn message(text: &str) -> Result<Message<'_>, String> {
    parse(text.as_bytes(), Limits::default()).map_err(|fault| fault.to_string())
}

fn written(write: impl FnOnce(&mut Vec<u8>)) -> Result<Value, String> {
    let mut out = Vec::new();
    write(&mut out);
    serde_json::from_slice(&out).map_err(|fault| fault.to_string())
}

fn params<T: DeserializeOwned + Encode>(params: &Params<'_>) -> Result<Vec<u8>, String> {
    Ok(to_vec(&decoded::<T>(params.text().unwrap_or("{}"))?, LATEST))
}

fn request<T: DeserializeOwned + Encode>(text: &str) -> Result<Value, String> {
    let Message::Request { id, method, params: members } = message(text)? else {
        return Err("no request".into());
    };
    ClientRequest::decode(LATEST, &method, &members).map_err(|fault| format!("{fault:?}"))?;
    let params = params::<T>(&members)?;
    written(|out| write::request(&id, &method, out, |out| out.extend_from_slice(&params)))
}

fn notification<T: DeserializeOwned + Encode>(text: &str) -> Result<Value, String> {
    let Message::Notification { method, params: members } = message(text)? else {
        return Err("no notification".into());
    };
    Method::find(&method).filter(|method| method.exists_in(LATEST)).ok_or("an unknown method")?;
    let params = params::<T>(&members)?;
    written(|out| write::notification(&method, out, |out| out.extend_from_slice(&params)))
}

fn response<T: DeserializeOwned + Encode>(text: &str) -> Result<Value, String> {
    let Message::Response { id: Some(id), reply: ResponsePayload::Result(result) } = message(text)? else {
        return Err("no result".into());
    };
    let result = decoded::<T>(result)?;
    written(|out| write::result(&id, out, |out| result.encode(&mut Encoder { out, revision: LATEST })))
}

/// Decodes a request carried in a result: no envelope, and parameters of its own type.
fn input_request<T: DeserializeOwned + Encode>(text: &str) -> Result<Value, String> {
    let mut request: InputRequest = decoded(text)?;
    if let Some(params) = request.params.take() {
        request.params = Some(value::<T>(&params.to_string())?);
    }
    Ok(to_value(&request, LATEST))
}

/// Decodes a `roots/list` input request. Its only example has an `id`, which neither its schema nor other input
/// requests have: it is added back.
fn roots_input_request(text: &str) -> Result<Value, String> {
    let mut encoded = input_request::<EmptyParams>(text)?;
    encoded["id"] = decoded::<Value>(text)?["id"].take();
    Ok(encoded)
}

/// Decodes input responses. Only the sender of the request knows the type of a response; here its members determine it.
fn input_responses(text: &str) -> Result<Value, String> {
    let mut encoded = Map::new();
    for (name, answer) in decoded::<Map<String, Value>>(text)? {
        let text = answer.to_string();
        let answer = match answer.get("action") {
            Some(_) => value::<ElicitResult>(&text),
            None => value::<CreateMessageResult>(&text),
        };
        encoded.insert(name, answer?);
    }
    Ok(Value::Object(encoded))
}

fn error_response(text: &str) -> Result<Value, String> {
    let Message::Response { id, reply: ResponsePayload::Error(error) } = message(text)? else {
        return Err("no error".into());
    };
    error_of(id.as_ref(), error)
}

fn error_body(text: &str) -> Result<Value, String> {
    Ok(error_of(None, text)?["error"].take())
}

/// Checks that the error round-trips, and that the error of the model with the same code has the same members in its
/// data.
fn error_of(id: Option<&Id<'_>>, text: &str) -> Result<Value, String> {
    let error: ErrorObject = decoded(text)?;
    let ours = error_object(&model_error(error.code)?, LATEST);
    if ours.code != error.code {
        return Err(format!("our code is {}", ours.code));
    }
    let keys = |error: &ErrorObject| -> Option<BTreeSet<String>> {
        Some(error.data.as_ref()?.as_object()?.keys().cloned().collect())
    };
    if ours.data.is_some() && keys(&ours) != keys(&error) {
        return Err(format!("our data are {:?}", ours.data));
    }
    written(|out| write::error(id, write::UnknownId::Absent, &error, out))
}

fn model_error(of_code: i64) -> Result<Error, String> {
    Ok(match of_code {
        code::INTERNAL_ERROR => Error::Internal("i".into()),
        code::INVALID_PARAMS => Error::invalid("", "i"),
        code::METHOD_NOT_FOUND => Error::MethodNotFound("m".into()),
        code::MISSING_CLIENT_CAPABILITY => Error::MissingClientCapability { required: json!({"roots": {}}) },
        code::UNSUPPORTED_VERSION => {
            Error::UnsupportedVersion { requested: "r".into(), supported: vec![LATEST] }
        }
        // Errors that only a transport detects have no variant of their own.
        code::HEADER_MISMATCH => custom(code::HEADER_MISMATCH),
        code::PARSE_ERROR => {
            let fault = parse(b"{", Limits::default()).map(|_| ()).expect_err("no JSON");
            custom(fault.code())
        }
        other => return Err(format!("no error of ours has the code {other}")),
    })
}

fn custom(code: i64) -> Error {
    Error::Custom { code, message: "m".into(), data: None }
}

/// Compares JSON values; 1 and 1.0 are equal.
fn is_same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left == right || left.as_f64() == right.as_f64(),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| is_same(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left.iter().all(|(key, value)| right.get(key).is_some_and(|other| is_same(value, other)))
        }
        _ => left == right,
    }
}
