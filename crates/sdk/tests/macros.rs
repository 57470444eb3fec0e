//! Attribute macros, tested by the JSON responses of a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use linchpin::model::ResourceLink;
use linchpin::server::{Addable, Next, Request};
use linchpin::{Context, Error, Json, Result, Server, State, Tool, args, prompt, resource, tool};
use serde_json::{Value, json};
use spec_check::Conversation;

struct Db {
    greeting: String,
}

fn db() -> Db {
    Db { greeting: "hello".into() }
}

fn server<Form>(item: impl Addable<Form>) -> Server {
    Server::new("test", "1").state(db()).add(item)
}

/// Returns the result of one request, or its error.
async fn ask(server: Server, method: &str, params: Value) -> Value {
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
    let answer = server.build().expect("a server").handle_json(request.as_bytes()).await.expect("a response");
    let answer = String::from_utf8(answer).expect("UTF-8");
    let mut conversation = Conversation::new();
    conversation.record_sent(request);
    assert_eq!(conversation.check_received(&answer), Ok(()));
    let mut answer: Value = serde_json::from_str(&answer).expect("JSON");
    let part = if answer.get("result").is_some() { "result" } else { "error" };
    answer[part].take()
}

async fn list_tool<Form>(item: impl Addable<Form>) -> Value {
    ask(server(item), "tools/list", json!({})).await["tools"][0].take()
}

async fn call<Form>(item: impl Addable<Form>, name: &str, arguments: Value) -> Value {
    ask(server(item), "tools/call", json!({"name": name, "arguments": arguments})).await
}

async fn read<Form>(item: impl Addable<Form>, uri: &str) -> Value {
    ask(server(item), "resources/read", json!({"uri": uri})).await
}

fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}], "isError": false})
}

/// Adds two numbers
#[tool(title = "Addition", read_only, idempotent)]
async fn add(
    a: i64,
    /** second number */
    b: i64,
) -> i64 {
    a + b
}

#[tokio::test]
async fn a_tool_is_described_by_its_signature_and_its_comments() {
    let expected = json!({
        "name": "add",
        "title": "Addition",
        "description": "Adds two numbers",
        "inputSchema": {
            "type": "object",
            "properties": {
                "a": {"type": "integer"},
                "b": {"description": "second number", "type": "integer"},
            },
            "required": ["a", "b"],
        },
        "annotations": {"readOnlyHint": true, "idempotentHint": true},
    });
    assert_eq!(list_tool(add).await, expected);
    assert_eq!(call(add, "add", json!({"a": 2, "b": 3})).await, text("5"));
}

#[tokio::test]
async fn the_closure_form_and_the_attribute_form_define_the_same_tool() {
    #[args]
    struct Add {
        a: i64,
        /// second number
        b: i64,
    }
    let closure = Tool::new("add").title("Addition").description("Adds two numbers").read_only().idempotent();
    let closure = closure.handler(|Add { a, b }| async move { a + b });
    assert_eq!(list_tool(closure).await.to_string(), list_tool(add).await.to_string());
}

const TITLE: &str = "Every option";

/// Says how to
/// use every option.
///
///     indented
#[tool(name = "every.option", title = TITLE, destructive = false, open_world = true, timeout_ms = 50)]
async fn every_option() {
    std::future::pending::<()>().await;
}

#[tool(description = concat!("Removes ", "things"), destructive)]
async fn remove() {}

#[tokio::test(start_paused = true)]
async fn options_reach_the_definition() {
    let expected = json!({
        "name": "every.option",
        "title": "Every option",
        "description": "Says how to\nuse every option.\n\n    indented",
        "inputSchema": {"type": "object", "properties": {}},
        "annotations": {"destructiveHint": false, "openWorldHint": true},
    });
    assert_eq!(list_tool(every_option).await, expected);
    let late = "the tool `every.option` did not finish within 50ms";
    let expected = json!({"content": [{"type": "text", "text": late}], "isError": true});
    assert_eq!(call(every_option, "every.option", json!({})).await, expected);

    let expected = json!({
        "name": "remove",
        "description": "Removes things",
        "inputSchema": {"type": "object", "properties": {}},
        "annotations": {"destructiveHint": true},
    });
    assert_eq!(list_tool(remove).await, expected);
    assert_eq!(call(remove, "remove", json!({})).await, json!({"content": [], "isError": false}));
}

/// How loud
#[args]
#[derive(Debug, Clone, Copy, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Volume {
    Quiet,
    Loud,
}

fn twice() -> u8 {
    2
}

#[tool]
async fn say(
    /// What to say
    r#type: String,
    #[serde(default = "twice")]
    #[schemars(range(min = 1, max = 3))]
    times: u8,
    mut volume: Option<Volume>,
    #[serde(rename = "addressee")] add: Option<String>, // may have the name of another tool
) -> String {
    let word = if volume.take() == Some(Volume::Loud) { r#type.to_uppercase() } else { r#type };
    add.map(|name| format!("{name}: ")).unwrap_or_default() + &word.repeat(times.into())
}

#[tokio::test]
async fn parameters_may_be_optional_renamed_bounded_and_enums() {
    let expected = json!({
        "type": "object",
        "properties": {
            "type": {"description": "What to say", "type": "string"},
            "times": {"type": "integer", "minimum": 1, "maximum": 3, "default": 2},
            "volume": {"description": "How loud", "type": "string", "enum": ["quiet", "loud"]},
            "addressee": {"type": "string"},
        },
        "required": ["type"],
    });
    assert_eq!(list_tool(say).await["inputSchema"], expected);
    assert_eq!(call(say, "say", json!({"type": "a"})).await, text("aa"));
    let all = json!({"type": "a", "times": 3, "volume": "loud", "addressee": "Eve"});
    assert_eq!(call(say, "say", all).await, text("Eve: AAA"));
    let refused = call(say, "say", json!({"type": "a", "times": 4})).await;
    assert_eq!(refused["isError"], json!(true), "{refused}");
}

/// A page of results
#[args]
struct Page {
    /// The page, from 1
    number: u32,
}

#[tool]
async fn page(#[args] Page { number }: Page, _cx: Context) -> u32 {
    number
}

#[tokio::test]
async fn a_struct_may_take_all_arguments() {
    let expected = json!({
        "description": "A page of results",
        "type": "object",
        "properties": {"number": {"description": "The page, from 1", "type": "integer", "minimum": 0}},
        "required": ["number"],
    });
    assert_eq!(list_tool(page).await["inputSchema"], expected);
    assert_eq!(call(page, "page", json!({"number": 7})).await, text("7"));
}

#[tool]
async fn request(cx: Context) -> String {
    cx.request_id().to_string()
}

#[tool]
async fn greet(db: State<Db>, name: String, cx: Context, again: State<Db>) -> String {
    let db: Arc<Db> = State::into_inner(db);
    format!("{} {name} {} {}", db.greeting, cx.request_id(), again.greeting)
}

#[tokio::test]
async fn context_and_state_come_from_the_server() {
    assert_eq!(call(request, "request", json!({})).await, text("1"));
    assert_eq!(call(greet, "greet", json!({"name": "Ann"})).await, text("hello Ann 1 hello"));
    let expected =
        json!({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]});
    assert_eq!(list_tool(greet).await["inputSchema"], expected);
}

struct Counter(AtomicU64);

#[tool]
async fn count(counter: State<Counter>) -> u64 {
    counter.0.fetch_add(1, Ordering::Relaxed) + 1
}

#[tokio::test]
async fn a_field_of_the_state_is_reached_through_it() {
    let server = Server::new("test", "1").state(Counter(AtomicU64::new(6))).add(count);
    assert_eq!(ask(server, "tools/call", json!({"name": "count"})).await, text("7"));
}

#[resource("memory://stored-greeting")]
async fn stored_greeting(db: State<Db>) -> String {
    db.greeting.clone()
}

#[resource("greeting://{name}")]
async fn greeting_of(name: String, db: State<Db>) -> String {
    format!("{} {name}", db.greeting)
}

#[prompt]
async fn greet_politely(db: State<Db>) -> String {
    db.greeting.clone()
}

#[test]
fn a_server_without_the_state_of_its_handlers_is_not_built() {
    let server = || Server::new("test", "1");
    let fault = |server: Server| server.build().err().map(|error| error.to_string()).unwrap_or_default();
    for (server, what) in [
        (server().add(greet), "the tool `greet`"),
        (server().add(stored_greeting), "the resource `memory://stored-greeting`"),
        (server().add(greeting_of), "the resource template `greeting://{name}`"),
        (server().add(greet_politely), "the prompt `greet_politely`"),
        (server().mount("inner", server().add(greet)), "the tool `inner_greet`"),
    ] {
        let expected = format!(
            "{what} takes a State<macros::Db>, which the server does not have: call .state(value) on the server"
        );
        assert_eq!(fault(server), expected);
    }
    assert_eq!(fault(server().state(db()).add(greet)), "");
    assert_eq!(fault(server().state(db()).mount("inner", server().add(greet))), "");
    assert_eq!(fault(server().mount("inner", server().state(db()).add(greet))), "");
    // A layer may set it for each request.
    let layer = |request: Request, next: Next| next.run(request);
    assert_eq!(fault(server().layer(layer).add(greet)), "");
}

#[tool]
async fn parse(number: String) -> Result<Json<Vec<i64>>> {
    if number.is_empty() {
        return Err(Error::tool("write a number"));
    }
    Ok(Json(vec![number.parse::<i64>()?]))
}

type Fallible<T> = std::result::Result<T, Error>;

#[tool]
async fn parse_with_state(number: String, _db: State<Db>) -> Fallible<Json<Vec<i64>>> {
    Ok(Json(vec![number.parse::<i64>()?]))
}

#[tokio::test]
async fn results_keep_their_schema_and_hide_foreign_errors() {
    let schema = list_tool(parse).await["outputSchema"].take();
    assert_eq!(
        schema["properties"]["result"],
        json!({"type": "array", "items": {"type": "integer"}}),
        "{schema}"
    );
    assert_eq!(list_tool(parse_with_state).await["outputSchema"], schema);

    let seven = call(parse, "parse", json!({"number": "7"})).await;
    assert_eq!(seven["structuredContent"], json!({"result": [7]}));
    assert_eq!(call(parse_with_state, "parse_with_state", json!({"number": "7"})).await, seven);

    let own = call(parse, "parse", json!({"number": ""})).await;
    assert_eq!(own, json!({"content": [{"type": "text", "text": "write a number"}], "isError": true}));
    for foreign in [
        call(parse, "parse", json!({"number": "x"})).await,
        call(parse_with_state, "parse_with_state", json!({"number": "x"})).await,
    ] {
        assert_eq!(foreign["isError"], json!(true));
        assert!(!foreign.to_string().contains("invalid digit"), "{foreign}");
    }
}

/// How the server is
#[resource("memory://status", title = "Status", mime = "text/markdown")]
async fn status() -> &'static str {
    "*ok*"
}

#[resource("memory://greeting", name = "greeting", description = "What to say")]
async fn saved_greeting(cx: Context, db: State<Db>) -> Option<String> {
    (cx.request_id().to_string() == "1").then(|| db.greeting.clone())
}

#[tokio::test]
async fn resources() {
    let expected = json!({"resources": [
        {
            "uri": "memory://status", "name": "status", "title": "Status", "description": "How the server is",
            "mimeType": "text/markdown",
        },
        {"uri": "memory://greeting", "name": "greeting", "description": "What to say"},
    ]});
    assert_eq!(ask(server(status).add(saved_greeting), "resources/list", json!({})).await, expected);
    let contents = json!([{"uri": "memory://status", "mimeType": "text/markdown", "text": "*ok*"}]);
    assert_eq!(read(status, "memory://status").await, json!({"contents": contents}));
    let contents = json!([{"uri": "memory://greeting", "mimeType": "text/plain", "text": "hello"}]);
    assert_eq!(read(saved_greeting, "memory://greeting").await, json!({"contents": contents}));
}

#[args]
struct Person {
    id: u64,
}

/// A person
#[resource("users://{id}/profile{?verbose}", mime = "application/json")]
async fn profile(id: u64, verbose: Option<bool>, cx: Context, db: State<Db>) -> Result<Value> {
    Ok(json!({"id": id, "verbose": verbose, "greeting": db.greeting, "request": cx.request_id().to_string()}))
}

#[resource("people://{id}")]
async fn person(#[args] person: Person) -> String {
    format!("number {}", person.id)
}

#[resource("users://{id}")]
async fn misnamed(name: String) -> String {
    name
}

#[tokio::test]
async fn resource_templates() {
    let expected = json!({"resourceTemplates": [
        {
            "uriTemplate": "users://{id}/profile{?verbose}", "name": "profile", "description": "A person",
            "mimeType": "application/json",
        },
        {"uriTemplate": "people://{id}", "name": "person"},
    ]});
    assert_eq!(ask(server(profile).add(person), "resources/templates/list", json!({})).await, expected);
    let uri = "users://7/profile?verbose=true";
    let text = r#"{"id":7,"verbose":true,"greeting":"hello","request":"1"}"#;
    let contents = json!([{"uri": uri, "mimeType": "application/json", "text": text}]);
    assert_eq!(read(profile, uri).await, json!({"contents": contents}));
    assert_eq!(read(person, "people://8").await["contents"][0]["text"], "number 8");

    let error = server(misnamed).build().err().unwrap().to_string();
    assert!(error.contains("its handler takes `name`, which is not a variable of the template"), "{error}");
}

/// Review code
#[prompt(title = "Review")]
async fn review(
    /** of the code */
    language: String,
    strict: Option<bool>,
    db: State<Db>,
) -> String {
    let how = if strict == Some(true) { " strictly" } else { "" };
    format!("{}, review this {language} code{how}", db.greeting)
}

#[prompt(name = "hi", description = "Greets")]
async fn greeting() -> &'static str {
    "hi"
}

#[tokio::test]
async fn prompts() {
    let expected = json!({"prompts": [
        {
            "name": "review", "title": "Review", "description": "Review code",
            "arguments": [
                {"name": "language", "description": "of the code", "required": true},
                {"name": "strict", "required": false},
            ],
        },
        {"name": "hi", "description": "Greets"},
    ]});
    assert_eq!(ask(server(review).add(greeting), "prompts/list", json!({})).await, expected);
    let params = json!({"name": "review", "arguments": {"language": "Rust", "strict": "true"}});
    let text = "hello, review this Rust code strictly";
    let messages = json!([{"role": "user", "content": {"type": "text", "text": text}}]);
    let expected = json!({"description": "Review code", "messages": messages});
    assert_eq!(ask(server(review), "prompts/get", params).await, expected);
    let messages = json!([{"role": "user", "content": {"type": "text", "text": "hi"}}]);
    let expected = json!({"description": "Greets", "messages": messages});
    assert_eq!(ask(server(greeting), "prompts/get", json!({"name": "hi"})).await, expected);
}

mod elsewhere {
    //! Without imports, and with names that generated code might use.

    use super::ResourceLink;

    #[linchpin::tool]
    pub(super) async fn link(link: String, arguments: String, cx: linchpin::Context) -> Vec<ResourceLink> {
        let name = format!("{link} {arguments} {}", cx.request_id());
        vec![ResourceLink { uri: "a:b".into(), name, ..ResourceLink::default() }]
    }
}

#[tokio::test]
async fn names_in_generated_code_do_not_meet_those_of_the_author() {
    let linked = call(elsewhere::link, "link", json!({"link": "x", "arguments": "y"})).await;
    assert_eq!(linked["content"], json!([{"type": "resource_link", "uri": "a:b", "name": "x y 1"}]));
    let add = "a variable may have the name of a tool";
    assert_eq!(add.len(), 38);
}
