//! Decoding of client requests: the three outcomes for every method in every revision, and no panics on any input.

use linchpin_jsonrpc::{Limits, Message, parse};
use linchpin_protocol::wire::{ClientRequest, DecodeError, InvalidValue};
use linchpin_protocol::{Direction, Method, Revision};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Decodes a request with these parameters. Returns the debug text of the decoded request.
fn decoded(revision: Revision, method: &str, params: &Value) -> Result<String, DecodeError> {
    let line = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
    match parse(line.as_bytes(), Limits::default()) {
        Ok(Message::Request { method, params, .. }) => {
            ClientRequest::decode(revision, &method, &params).map(|request| format!("{request:?}"))
        }
        other => panic!("{line} is no request but {other:?}"),
    }
}

/// Returns parameters that are valid in every revision that has the method.
fn valid_params(method: Method) -> Value {
    match method {
        Method::Initialize => {
            json!({"protocolVersion": "v", "capabilities": {}, "clientInfo": {"name": "n", "version": "1"}})
        }
        Method::CallTool | Method::GetPrompt => json!({"name": "n"}),
        Method::ReadResource
        | Method::Subscribe
        | Method::Unsubscribe
        | Method::GetSkill
        | Method::ReadResourceDirectory => json!({"uri": "a:b"}),
        Method::Listen => json!({"notifications": {}}),
        Method::Complete => {
            json!({"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": "v"}})
        }
        Method::SetLevel => json!({"level": "info"}),
        Method::GetTask | Method::CancelTask | Method::GetTaskPayload => json!({"taskId": "t"}),
        Method::UpdateTask => json!({"taskId": "t", "inputResponses": {}}),
        _ => json!({}),
    }
}

#[test]
fn a_method_is_typed_or_not_in_the_revision() {
    for revision in Revision::ALL {
        for &method in Method::ALL {
            let is_client_request = method.is_request() && method.direction() != Direction::ToClient;
            let served = is_client_request && method.exists_in(revision);
            let outcome = decoded(revision, method.name(), &valid_params(method));
            let bare = decoded(revision, method.name(), &json!({}));
            if served {
                assert!(outcome.is_ok(), "{} in {revision}: {outcome:?}", method.name());
                assert_eq!(
                    bare.is_ok(),
                    valid_params(method) == json!({}),
                    "{} in {revision}: {bare:?}",
                    method.name()
                );
                assert_ne!(bare.err(), Some(DecodeError::NotInRevision));
            } else {
                assert_eq!(outcome, Err(DecodeError::NotInRevision), "{} in {revision}", method.name());
                assert_eq!(bare, Err(DecodeError::NotInRevision));
            }
        }
        assert_eq!(decoded(revision, "my/own", &json!({})), Err(DecodeError::NotInRevision));
        assert_eq!(decoded(revision, "initialized", &json!({})), Err(DecodeError::NotInRevision));
    }
}

#[test]
fn what_is_missing_or_wrong_is_named_with_its_place() {
    let with = |method: Method, path: &str, value: Value| {
        let mut params = valid_params(method);
        let (parent, key) = path.rsplit_once('/').unwrap();
        params.pointer_mut(parent).unwrap()[key] = value;
        params
    };
    let cases = [
        (Method::CallTool, json!({}), "", "`name`"),
        (Method::CallTool, json!({"name": 1}), "/name", "string"),
        (Method::CallTool, json!({"name": "t", "arguments": []}), "/arguments", "object"),
        (Method::ListTools, json!({"cursor": 7}), "/cursor", "string"),
        (Method::ReadResource, json!({}), "", "`uri`"),
        (Method::ReadResource, json!({"uri": {}}), "/uri", "string"),
        (Method::GetPrompt, json!({}), "", "`name`"),
        (Method::GetPrompt, json!({"name": "p", "arguments": {"a/b": 1}}), "/arguments/a~1b", "string"),
        (Method::Complete, json!({}), "", "`ref`"),
        (Method::Complete, with(Method::Complete, "/argument/value", json!(1)), "/argument/value", "string"),
        (Method::Complete, with(Method::Complete, "/ref", json!({"type": "ref/prompt"})), "/ref", "\"name\""),
        (
            Method::Complete,
            with(Method::Complete, "/ref/type", json!("x")),
            "/ref",
            "ref/prompt or ref/resource",
        ),
        (Method::SetLevel, json!({"level": "loud"}), "/level", "`loud`"),
        (Method::Subscribe, json!({"uri": null}), "/uri", "string"),
        (Method::GetTask, json!({}), "", "`taskId`"),
        (Method::CancelTask, json!({"taskId": 1}), "/taskId", "string"),
        (Method::GetTaskPayload, json!({}), "", "`taskId`"),
        (Method::ListTasks, json!({"cursor": 7}), "/cursor", "string"),
        (Method::UpdateTask, json!({"taskId": "t"}), "", "`inputResponses`"),
        (
            Method::UpdateTask,
            with(Method::UpdateTask, "/inputResponses", json!([])),
            "/inputResponses",
            "map",
        ),
        (Method::ListSkills, json!({"cursor": 7}), "/cursor", "string"),
        (Method::GetSkill, json!({}), "", "`uri`"),
        (Method::ReadResourceDirectory, json!({"uri": "a:b", "cursor": 7}), "/cursor", "string"),
        (
            Method::Initialize,
            with(Method::Initialize, "/clientInfo", json!({"name": "n"})),
            "/clientInfo",
            "`version`",
        ),
        (
            Method::Initialize,
            with(Method::Initialize, "/capabilities/roots", json!({"listChanged": "yes"})),
            "/capabilities/roots/listChanged",
            "boolean",
        ),
        (
            Method::Listen,
            json!({"notifications": {"resourceSubscriptions": ["a:b", 2]}}),
            "/notifications/resourceSubscriptions/1",
            "string",
        ),
    ];
    for (method, params, at, says) in cases {
        for revision in Revision::ALL.into_iter().filter(|revision| method.exists_in(*revision)) {
            match decoded(revision, method.name(), &params) {
                Err(DecodeError::Invalid(InvalidValue { path, reason })) => {
                    assert_eq!(path, at, "{} {params}: {reason}", method.name());
                    assert!(
                        reason.contains(says),
                        "{} {params}: {reason:?} should say {says}",
                        method.name()
                    );
                }
                other => panic!("{} {params} is {other:?}", method.name()),
            }
        }
    }
}

/// Generates JSON whose objects use the member names of requests, so that decoding gets further.
fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,6}".prop_map(Value::from),
        prop::sample::select(vec!["ref/prompt", "ref/resource", "info", "x"]).prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        let list = prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from);
        prop_oneof![list, object(inner).prop_map(Value::Object)]
    })
}

fn object(member: impl Strategy<Value = Value>) -> impl Strategy<Value = Map<String, Value>> {
    let known = prop::sample::select(vec![
        "name",
        "arguments",
        "cursor",
        "uri",
        "ref",
        "argument",
        "value",
        "context",
        "level",
        "notifications",
        "type",
        "resourceSubscriptions",
        "protocolVersion",
        "capabilities",
        "clientInfo",
        "version",
        "roots",
        "sampling",
        "experimental",
        "icons",
        "title",
        "taskId",
        "inputResponses",
        "_meta",
    ]);
    let key = prop_oneof![9 => known.prop_map(str::to_owned), 1 => ".{0,4}"];
    prop::collection::vec((key, member), 0..6).prop_map(|members| members.into_iter().collect())
}

proptest! {
    #[test]
    fn no_params_panic(revision in prop::sample::select(&Revision::ALL[..]), params in object(json_value())) {
        let params = Value::Object(params);
        for method in Method::ALL {
            let _ = decoded(revision, method.name(), &params);
        }
    }

    #[test]
    fn a_fault_is_inside_the_params(
        method in prop::sample::select(Method::ALL),
        noise in object(json_value()),
    ) {
        // Overwriting some members of valid parameters reaches more code than random values.
        let mut params = valid_params(method);
        for (key, value) in noise {
            params[key] = value;
        }
        for revision in Revision::ALL {
            if let Err(DecodeError::Invalid(InvalidValue { path, reason })) = decoded(revision, method.name(), &params) {
                prop_assert!(params.pointer(&path).is_some(), "{reason} at {path} of {params}");
                prop_assert!(!reason.is_empty());
            }
        }
    }
}
