//! A client of ours that answers everything it is asked, and what its results say.

#![expect(clippy::unwrap_used, reason = "it is only used in tests")]

use linchpin::client::{Client, Command, Eras};
use linchpin::model::{CallToolResult, CreateMessageResult, ElicitResult, Root};
use linchpin::{ClientBuilder, ClientError};
use serde_json::{Value, json};

use super::support::PATIENCE;

pub(crate) fn client(command: &[String]) -> ClientBuilder {
    let command = Command::new(&command[0]).args(&command[1..]);
    Client::command(command)
        .eras(Eras::new())
        .open_timeout(PATIENCE)
        .timeout(PATIENCE)
        .probe_timeout(PATIENCE)
        .roots([Root { uri: "file:///tmp/a".into(), name: Some("a".into()), meta: None }])
        .on_elicit(|_| async { Ok(ElicitResult::accept(json!({ "name": "Ada" }))) })
        .on_sample(|_| async { Ok(CreateMessageResult::text("interop", "sampled")) })
}

/// The text of a tool's result.
pub(crate) fn text(result: Result<CallToolResult, ClientError>) -> Value {
    match result {
        Ok(result) => result.content.iter().filter_map(|block| block.as_text()).collect::<String>().into(),
        Err(error) => json!({ "error": error.to_string() }),
    }
}

pub(crate) async fn read(client: &Client, uri: &str) -> String {
    let result = client.read(uri).await.unwrap();
    result.contents.into_iter().filter_map(|contents| contents.text).collect()
}

pub(crate) async fn prompt(client: &Client, name: &str, arguments: &[(&str, &str)]) -> String {
    let result = client.prompt(name, arguments.iter().copied()).await.unwrap();
    result.messages.into_iter().filter_map(|message| Some(message.content.as_text()?.to_owned())).collect()
}
