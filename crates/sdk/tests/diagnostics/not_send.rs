//! A handler whose future is not `Send`.

use std::rc::Rc;

use linchpin::{Server, args, tool};

#[args]
struct Add {
    a: i64,
    b: i64,
}

#[tool]
async fn add(a: i64, b: i64) -> i64 {
    let local = Rc::new(a + b);
    std::future::ready(()).await;
    *local
}

fn main() {
    let _ = Server::new("test", "1")
        .tool("add", "Adds", |Add { a, b }| async move {
            let local = Rc::new(a + b);
            std::future::ready(()).await;
            *local
        })
        .add(add);
}
