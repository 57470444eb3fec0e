//! Resources, prompts, completion, logging and progress in every revision.

mod support;

use std::collections::BTreeMap;

use linchpin::model::{GetPromptResult, Meta, key};
use linchpin::server::CompletionRequest;
use linchpin::{
    Content, Context, Error, Json, LogLevel, NoArgs, Prompt, PromptMessage, Resource, ResourceContents,
    ResourceTemplate, Result, Revision, Server, args, prompt,
};
use serde_json::{Value, json};
use support::{Peer, STATELESS, fault, session_revisions};

use Revision::{V2025_03_26, V2025_06_18};

#[args]
struct User {
    id: u32,
    full: Option<bool>,
}

fn resources() -> Server {
    Server::new("resources", "1")
        .add(
            Resource::new("memory://text", "text")
                .title("Text")
                .description("Some text")
                .mime_type("text/markdown")
                .size(5)
                .handler(|| async { "*hi*" }),
        )
        .resource("memory://bytes", "bytes", || async { vec![0_u8, 255] })
        .resource("memory://json", "json", || async { Json(vec![1, 2]) })
        .resource("memory://value", "value", || async { json!({"a": 1}) })
        .resource("memory://parts", "parts", |cx: Context| async move {
            let id = cx.request_id().to_string();
            vec![ResourceContents::text("a:1", "text/plain", id), ResourceContents::blob("a:2", "x/y", [1])]
        })
        .resource("memory://none", "none", || async { None::<String> })
        .resource_template("users://{id}{?full}", "user", |User { id, full }| async move {
            format!("user {id}, {}", if full == Some(true) { "full" } else { "short" })
        })
}

#[test]
fn resources_and_templates_are_listed() {
    for revision in Revision::ALL {
        let mut peer = Peer::open(revision, resources());
        let list = peer.result("resources/list", json!({}));
        let mut first = json!({
            "uri": "memory://text", "name": "text", "description": "Some text", "mimeType": "text/markdown", "size": 5,
        });
        if revision >= V2025_06_18 {
            first["title"] = "Text".into();
        }
        assert_eq!(list["resources"][0], first);
        assert_eq!(list["resources"].as_array().unwrap().len(), 6);
        let templates = peer.result("resources/templates/list", json!({}));
        assert_eq!(
            templates["resourceTemplates"],
            json!([{"uriTemplate": "users://{id}{?full}", "name": "user"}])
        );
        peer.close();
    }
}

#[test]
fn resources_are_read() {
    let text = |uri: &str, mime: &str, text: &str| json!([{"uri": uri, "mimeType": mime, "text": text}]);
    for revision in Revision::ALL {
        let mut peer = Peer::open(revision, resources());
        let cases = [
            text("memory://text", "text/markdown", "*hi*"),
            json!([{"uri": "memory://bytes", "mimeType": "application/octet-stream", "blob": "AP8="}]),
            text("memory://json", "application/json", "[1,2]"),
            text("memory://value", "application/json", r#"{"a":1}"#),
            text("users://7", "text/plain", "user 7, short"),
            text("users://7?full=true", "text/plain", "user 7, full"),
        ];
        for expected in cases {
            let read = peer.result("resources/read", json!({"uri": expected[0]["uri"]}));
            assert_eq!(read["contents"], expected, "{revision}");
            assert_eq!(read.get("ttlMs").is_some(), revision == STATELESS);
        }
        let id = peer.send("resources/read", json!({"uri": "memory://parts"}));
        let parts = peer.answer(&id);
        assert_eq!(parts["result"]["contents"][0]["text"], id.to_string());
        assert_eq!(parts["result"]["contents"][1], json!({"uri": "a:2", "mimeType": "x/y", "blob": "AQ=="}));

        let code = if revision == STATELESS { -32602 } else { -32002 };
        for uri in ["memory://none", "memory://missing", "users://7/more"] {
            let id = peer.send("resources/read", json!({"uri": uri}));
            let answer = peer.answer(&id);
            assert_eq!(fault(&answer), (code, format!("Resource not found: {uri}")), "{revision}");
            assert_eq!(answer["error"]["data"], json!({"uri": uri}));
        }
        let (code, message) = peer.error("resources/read", json!({"uri": "users://seven"}));
        assert_eq!(code, -32602);
        assert_eq!(message, "Invalid params at /uri/id: invalid type: string \"seven\", expected u32");
        peer.close();
    }
}

#[test]
fn what_nothing_stands_for_goes_to_the_catch_all() {
    for revision in Revision::ALL {
        let server = resources().on_read(|uri: String, cx: Context| async move {
            cx.client().ok_or_else(|| Error::resource_not_found(&uri))?;
            Ok::<_, Error>(format!("caught {uri}"))
        });
        let mut peer = Peer::open(revision, server);
        for (uri, expected) in
            [("memory://text", "*hi*"), ("users://7", "user 7, short"), ("x:y", "caught x:y")]
        {
            let read = peer.result("resources/read", json!({"uri": uri}));
            assert_eq!(read["contents"][0]["text"], expected);
        }
        peer.close();
    }
}

#[args]
struct Review {
    /// Which language
    language: String,
    lines: Option<u32>,
}

fn prompts() -> Server {
    let languages = |typed: String| async move {
        ["python", "rust", "ruby"].into_iter().filter(|name| name.starts_with(&typed)).collect::<Vec<_>>()
    };
    let chosen =
        |request: CompletionRequest| async move { vec![format!("{}{:?}", request.value, request.arguments)] };
    Server::new("prompts", "1")
        .add(
            Prompt::new("review")
                .title("Review")
                .description("Reviews code")
                .complete("language", languages)
                .complete("lines", chosen)
                .handler(|Review { language, lines }| async move {
                    format!("Review {lines:?} lines of {language}")
                }),
        )
        .add(
            Prompt::new("free").argument("topic", "What about", true).argument("tone", "How", false).handler(
                |arguments: BTreeMap<String, String>| async move {
                    vec![
                        PromptMessage::user(format!("{arguments:?}")),
                        PromptMessage::assistant(Content::text("ok")),
                    ]
                },
            ),
        )
        .prompt("full", "Overridden", || async {
            let meta = Meta::from_iter([("example.com/m".to_owned(), json!(1))]);
            let messages = vec![PromptMessage::user("m")];
            GetPromptResult { description: Some("Own".into()), messages, meta: Some(meta) }
        })
        .add(
            ResourceTemplate::new("files:///{+path}", "file")
                .complete("path", |_: String| async { (0..150).map(|n| format!("f{n}")).collect::<Vec<_>>() })
                .handler(|_: BTreeMap<String, String>| async { "text" }),
        )
}

#[args]
struct Letter {
    #[schemars(title = "Recipient")]
    to: String,
    from: Option<String>,
}

/// Writes a card
#[prompt]
async fn card(#[schemars(title = "Recipient")] to: String) -> String {
    to
}

#[test]
fn arguments_of_prompts_have_titles() {
    for revision in Revision::ALL {
        let by_hand = Prompt::new("by_hand").argument("to", "Who gets it", true);
        let by_hand = by_hand.argument_title("to", "Recipient");
        let letter = Prompt::new("letter").argument_title("from", "Sender");
        let server = Server::new("prompts", "1")
            .add(by_hand.handler(|_: BTreeMap<String, String>| async { "" }))
            .add(card)
            .add(letter.handler(|Letter { to, from }| async move { format!("{to} {from:?}") }));
        let mut peer = Peer::open(revision, server);
        let prompts = peer.result("prompts/list", json!({}))["prompts"].take();
        let titles = |prompt: usize| -> BTreeMap<&str, &Value> {
            let arguments = prompts[prompt]["arguments"].as_array().unwrap().iter();
            arguments.map(|argument| (argument["name"].as_str().unwrap(), &argument["title"])).collect()
        };
        let title = |title: &str| if revision >= V2025_06_18 { json!(title) } else { Value::Null };
        let (recipient, sender) = (title("Recipient"), title("Sender"));
        assert_eq!(titles(0), BTreeMap::from([("to", &recipient)]));
        assert_eq!(titles(1), BTreeMap::from([("to", &recipient)]));
        assert_eq!(titles(2), BTreeMap::from([("from", &sender), ("to", &recipient)]));
        peer.close();
    }
    let unknown =
        Prompt::new("letter").argument_title("form", "Sender").handler(|Letter { .. }| async { "" });
    let error = Server::new("prompts", "1").add(unknown).build().err().unwrap().to_string();
    assert!(
        error.ends_with("`argument_title` names `form`, which is not an argument of the prompt"),
        "{error}"
    );
}

#[test]
fn prompts_are_listed_and_filled_in() {
    for revision in Revision::ALL {
        let mut peer = Peer::open(revision, prompts());
        let list = peer.result("prompts/list", json!({}));
        let mut review = json!({"name": "review", "description": "Reviews code", "arguments": [
            {"name": "language", "description": "Which language", "required": true},
            {"name": "lines", "required": false},
        ]});
        if revision >= V2025_06_18 {
            review["title"] = "Review".into();
        }
        assert_eq!(list["prompts"][0], review);
        assert_eq!(
            list["prompts"][1]["arguments"][1],
            json!({"name": "tone", "description": "How", "required": false})
        );

        let get = |name: &str, arguments: Value| json!({"name": name, "arguments": arguments});
        let text = |role: &str, text: &str| json!({"role": role, "content": {"type": "text", "text": text}});
        let filled = peer.result("prompts/get", get("review", json!({"language": "rust", "lines": "3"})));
        assert_eq!(filled["description"], "Reviews code");
        assert_eq!(filled["messages"], json!([text("user", "Review Some(3) lines of rust")]));
        let free = peer.result("prompts/get", get("free", json!({"topic": "x"})));
        assert_eq!(free["messages"], json!([text("user", r#"{"topic": "x"}"#), text("assistant", "ok")]));
        let full = peer.result("prompts/get", json!({"name": "full"}));
        assert_eq!((&full["description"], &full["_meta"]["example.com/m"]), (&json!("Own"), &json!(1)));

        let wrong = [
            (get("review", json!({})), "Invalid params at /arguments: missing argument `language`"),
            (
                get("review", json!({"language": "c", "lines": "many"})),
                "Invalid params at /arguments/lines: invalid type: string \"many\", expected u32",
            ),
            (get("free", json!({"tone": "dry"})), "Invalid params at /arguments: missing argument `topic`"),
            (get("none", json!({})), "Invalid params at /name: Unknown prompt: none"),
        ];
        for (params, message) in wrong {
            assert_eq!(peer.error("prompts/get", params), (-32602, message.into()), "{revision}");
        }
        peer.close();
    }
}

#[test]
fn arguments_and_variables_are_completed() {
    for revision in Revision::ALL {
        let mut peer = Peer::open(revision, prompts());
        let of = |name: &str, argument: &str, value: &str| json!({"ref": {"type": "ref/prompt", "name": name}, "argument": {"name": argument, "value": value}});
        let mut complete = |params: Value| peer.result("completion/complete", params)["completion"].take();
        let two = complete(of("review", "language", "r"));
        assert_eq!(two, json!({"values": ["rust", "ruby"], "total": 2, "hasMore": false}));
        assert_eq!(complete(of("free", "topic", "r"))["values"], json!([]), "no completion handler");
        let mut with_context = of("review", "lines", "1");
        with_context["context"] = json!({"arguments": {"language": "c"}});
        assert_eq!(complete(with_context)["values"], json!([r#"1{"language": "c"}"#]));
        let template = json!({"type": "ref/resource", "uri": "files:///{+path}"});
        let many = complete(json!({"ref": template, "argument": {"name": "path", "value": ""}}));
        assert_eq!(many["values"].as_array().unwrap().len(), 100);
        assert_eq!((&many["total"], &many["hasMore"]), (&json!(150), &json!(true)));
        let unknown = (-32602, "Invalid params at /ref/name: Unknown prompt: none".to_owned());
        assert_eq!(peer.error("completion/complete", of("none", "a", "")), unknown);
        let other =
            json!({"ref": {"type": "ref/resource", "uri": "x:{y}"}, "argument": {"name": "y", "value": ""}});
        let unknown = (-32602, "Invalid params at /ref/uri: Unknown resource template: x:{y}".to_owned());
        assert_eq!(peer.error("completion/complete", other), unknown);
        peer.close();
    }
}

fn talkative() -> Server {
    Server::new("talkative", "1")
        .tool("log", "", |_: NoArgs, cx: Context| async move {
            cx.log(LogLevel::Debug, "fine detail");
            cx.log(LogLevel::Warning, json!({"disk": "full"}));
        })
        .tool("work", "", |_: NoArgs, cx: Context| async move {
            cx.progress(0.25);
            cx.progress(f64::NAN);
            cx.progress(0.25); // does not grow
            cx.progress((0.5, f64::INFINITY));
            cx.progress((2.0, 3.0, "nearly"));
            "done"
        })
}

/// Returns the notifications before the response to a call, and the response.
fn heard(peer: &mut Peer, tool: &str, meta: impl Into<Option<Value>>) -> Vec<Value> {
    let mut params = json!({"name": tool});
    if let Some(meta) = meta.into() {
        params["_meta"] = meta;
    }
    let id = peer.send("tools/call", params);
    let mut params = Vec::new();
    loop {
        let mut line = peer.read();
        if line["id"] == id {
            assert_eq!(line["result"]["isError"], false);
            return params;
        }
        params.push(line["params"].take());
    }
}

#[test]
fn log_messages_come_as_the_client_wants_them() {
    let warning = json!({"level": "warning", "logger": "talkative", "data": {"disk": "full"}});
    let detail = json!({"level": "debug", "logger": "talkative", "data": "fine detail"});
    for revision in session_revisions() {
        let mut peer = Peer::open(revision, talkative());
        assert_eq!(heard(&mut peer, "log", None), std::slice::from_ref(&warning), "default: info and above");
        for (level, expected) in [("debug", vec![detail.clone(), warning.clone()]), ("error", vec![])] {
            assert_eq!(peer.result("logging/setLevel", json!({"level": level})), json!({}));
            assert_eq!(heard(&mut peer, "log", None), expected);
        }
        let (code, message) = peer.error("logging/setLevel", json!({"level": "loud"}));
        assert_eq!(code, -32602);
        assert!(message.starts_with("Invalid params at /level: unknown variant `loud`"), "{message}");
        peer.close();
    }
    let mut peer = Peer::open(STATELESS, talkative());
    assert_eq!(heard(&mut peer, "log", None), Vec::<Value>::new(), "not requested");
    assert_eq!(heard(&mut peer, "log", json!({key::LOG_LEVEL: "debug"})), [detail, warning.clone()]);
    assert_eq!(heard(&mut peer, "log", json!({key::LOG_LEVEL: "info"})), [warning]);
    let (code, message) = peer.error("tools/call", json!({"name": "log", "_meta": {key::LOG_LEVEL: "loud"}}));
    assert_eq!(code, -32602);
    assert!(message.contains("unknown variant `loud`"), "{message}");
    peer.close();
}

#[test]
fn progress_is_told_to_those_who_ask() -> Result {
    for revision in Revision::ALL {
        let mut peer = Peer::open(revision, talkative());
        assert_eq!(heard(&mut peer, "work", None), Vec::<Value>::new());
        for token in [json!(7), json!("p")] {
            let mut last = json!({"progressToken": token, "progress": 2.0, "total": 3.0});
            if revision >= V2025_03_26 {
                last["message"] = "nearly".into();
            }
            let expected = [
                json!({"progressToken": token, "progress": 0.25}),
                json!({"progressToken": token, "progress": 0.5}),
                last,
            ];
            assert_eq!(heard(&mut peer, "work", json!({"progressToken": token})), expected, "{revision}");
        }
        peer.end().1?;
    }
    Ok(())
}
