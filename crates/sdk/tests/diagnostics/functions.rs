//! Functions that the attributes reject.

use linchpin::{Server, args, prompt, resource, tool};

#[args]
struct Add {
    a: i64,
    b: i64,
}

#[tool]
fn sync(a: i64) -> i64 {
    a
}

#[resource("memory://status")]
fn sync_resource() -> &'static str {
    "ok"
}

#[prompt]
async fn by_reference(language: &str, _cx: linchpin::Context) -> String {
    language.to_owned()
}

#[tool]
async fn generic<T: Send>(value: T) -> String {
    drop(value);
    String::new()
}

#[tool]
async fn nameless((a, b): (i64, i64)) -> i64 {
    a + b
}

#[tool]
async fn two_structs(#[args] all: Add, more: i64) -> i64 {
    all.a + all.b + more
}

#[resource("memory://status")]
async fn no_variable(id: u64, _db: linchpin::State<String>) -> String {
    id.to_string()
}

#[tool]
struct NoFunction;

struct Methods;

impl Methods {
    #[tool]
    async fn method(&self) {}
}

fn main() {
    let _ = Server::new("test", "1")
        .add(sync)
        .add(sync_resource)
        .add(by_reference)
        .add(generic)
        .add(nameless)
        .add(two_structs)
        .add(no_variable)
        .add(Methods::method);
}
