//! A client with immediate responses, from a server in the same process, lets other tasks run.

use std::time::Duration;

use linchpin::{NoArgs, Server};

#[tokio::test]
async fn calls_in_a_loop_do_not_keep_the_thread() {
    let server =
        Server::new("quick", "1.0.0").tool("now", "Returns immediately", |_: NoArgs| async { "now" });
    let client = server.connect_in_memory().await.unwrap();
    let calls = async {
        loop {
            client.call("now", ()).await.unwrap();
        }
    };
    let ended = tokio::time::timeout(Duration::from_millis(50), calls).await;
    assert!(ended.is_err(), "the timeout was polled");
}
