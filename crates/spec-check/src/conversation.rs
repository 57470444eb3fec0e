//! Checks of a whole conversation: the messages sent determine how each received line is checked.
//!
//! Revisions are taken from the conversation: a request may contain its own, and the result of `initialize` contains
//! that of the session.

use std::collections::HashMap;

use serde_json::Value;

use crate::{Schemas, tasks};

/// State of a checked conversation: its requests by id and its revisions, against which received lines are checked.
#[derive(Debug, Default)]
pub struct Conversation {
    /// Method and own revision, if any, of each recorded request, by id. An id may be reused.
    requests: HashMap<String, Vec<(String, Option<String>)>>,
    /// Id of the received `initialize` request.
    initialize_id: Option<String>,
    /// Revisions in use in this conversation: that of the session, and those that requests declare themselves.
    revisions: Vec<String>,
    session: Option<String>,
    /// Whether a response has shown that the other side knows the revision of the requests. Until then it may not
    /// have read the request yet.
    confirmed: bool,
}

impl Conversation {
    /// Creates an empty conversation.
    pub fn new() -> Self {
        Self::default()
    }

    /// Records lines that were sent, against which received lines are checked. They may be invalid.
    pub fn record_sent(&mut self, lines: impl AsRef<[u8]>) {
        for line in lines.as_ref().split(|byte| *byte == b'\n') {
            match serde_json::from_slice(line) {
                Ok(Value::Array(batch)) => batch.iter().for_each(|message| self.record(message)),
                Ok(message) => self.record(&message),
                Err(_) => {}
            }
        }
    }

    fn record(&mut self, message: &Value) {
        let Some(method) = message["method"].as_str() else { return self.record_response(message) };
        let declared = own_revision(message);
        self.revisions.extend(declared.clone());
        self.requests.entry(message["id"].to_string()).or_default().push((method.to_owned(), declared));
    }

    /// Records the revision of the session from the result of `initialize`.
    fn record_response(&mut self, message: &Value) {
        if let Some(version) = message["result"]["protocolVersion"].as_str()
            && self.initialize_id == Some(message["id"].to_string())
        {
            self.open_session(version);
        }
    }

    fn open_session(&mut self, version: &str) {
        self.session.get_or_insert_with(|| version.to_owned());
        self.revisions.push(version.to_owned());
    }

    /// Checks one line that the other side of the conversation has sent. Accepts everything if the schemas are missing.
    pub fn check_received(&mut self, line: &str) -> Result<(), String> {
        let Some(schemas) = Schemas::find() else { return Ok(()) };
        let message: Value = serde_json::from_str(line).map_err(|error| format!("{error}: {line}"))?;
        let checked = match &message {
            Value::Array(batch) => {
                let session = self.session.as_deref().unwrap_or_default();
                let batch_check = schemas.check_batch(session, &message);
                batch_check.and_then(|()| batch.iter().try_for_each(|message| self.check(schemas, message)))
            }
            message => self.check(schemas, message),
        };
        checked.map_err(|fault| format!("{fault}\n{line}"))
    }

    fn check(&mut self, schemas: Schemas, message: &Value) -> Result<(), String> {
        if message.get("method").is_some() && message.get("id").is_some() {
            return self.check_request(schemas, message);
        }
        if message.get("method").is_some() {
            return self
                .check_any_revision(schemas, |revision| check_notification(schemas, revision, message));
        }
        if message.get("error").is_some() {
            return self.check_any_revision(schemas, |revision| schemas.check_error(revision, message));
        }
        let requests = self.requests.get(&message["id"].to_string()).cloned().unwrap_or_default();
        // If an id was used for several requests, the response does not determine which of them it belongs to.
        let is_unambiguous = requests.len() == 1;
        let mut last = Err("response without a request".to_owned());
        for (method, declared) in requests {
            if method == "initialize"
                && let Some(version) = message["result"]["protocolVersion"].as_str()
            {
                self.open_session(version);
            }
            let revision = declared.or_else(|| self.session.clone());
            let confirms = is_unambiguous && revision.is_some();
            let revision = revision.unwrap_or_else(|| latest_session_revision(schemas));
            last = schemas.check_result(&revision, &method, message);
            if last.is_ok() {
                self.confirmed |= confirms;
                break;
            }
        }
        last
    }

    fn check_request(&mut self, schemas: Schemas, message: &Value) -> Result<(), String> {
        let mut declared = own_revision(message);
        self.revisions.extend(declared.clone());
        if message["method"] == "initialize" {
            self.initialize_id = Some(message["id"].to_string());
            declared = message["params"]["protocolVersion"].as_str().map(str::to_owned);
        }
        match declared.filter(|declared| schemas.has_definition(declared, "Result")) {
            Some(declared) => check_request(schemas, &declared, message),
            None => self.check_any_revision(schemas, |revision| check_request(schemas, revision, message)),
        }
    }

    /// Runs a check of a message for each revision in use; one of them must succeed. Before the other side knows the
    /// revision, errors have the form of JSON-RPC itself, which only the oldest revisions allow.
    fn check_any_revision(
        &self,
        schemas: Schemas,
        check: impl Fn(&str) -> Result<(), String>,
    ) -> Result<(), String> {
        let oldest = schemas.revisions().next().unwrap_or_default();
        let known = self
            .revisions
            .iter()
            .map(String::as_str)
            .filter(|revision| schemas.has_definition(revision, "Result"));
        let mut candidates: Vec<&str> = known.collect();
        if !self.confirmed {
            candidates.push(oldest);
        }
        let mut last = Ok(());
        for revision in candidates {
            last = check(revision);
            if last.is_ok() {
                break;
            }
        }
        last
    }
}

/// Returns the protocol revision in the `_meta` of a message.
fn own_revision(message: &Value) -> Option<String> {
    let declared = message.pointer("/params/_meta/io.modelcontextprotocol~1protocolVersion");
    declared.and_then(Value::as_str).map(str::to_owned)
}

/// Checks a request of the protocol. A custom method is only checked as a generic request.
fn check_request(schemas: Schemas, revision: &str, message: &Value) -> Result<(), String> {
    if is_known(schemas, message) {
        return schemas.check_request(revision, message);
    }
    schemas.check(revision, "JSONRPCRequest", message)
}

fn is_known(schemas: Schemas, message: &Value) -> bool {
    let method = message["method"].as_str().unwrap_or_default();
    tasks::has_method(method)
        || schemas.revisions().any(|revision| schemas.methods(revision).contains(method))
}

/// Checks a notification of the protocol. A custom method is only checked as a generic notification.
fn check_notification(schemas: Schemas, revision: &str, message: &Value) -> Result<(), String> {
    if is_known(schemas, message) {
        return schemas.check_notification(revision, message);
    }
    schemas.check(revision, "JSONRPCNotification", message)
}

/// Returns the latest session-era revision, for requests without a revision and without a session.
fn latest_session_revision(schemas: Schemas) -> String {
    let sessions = schemas.revisions().filter(|revision| schemas.methods(revision).contains("initialize"));
    sessions.last().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}"#;
    const INITIALIZE_RESULT: &str = concat!(
        r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":{},"#,
        r#""serverInfo":{"name":"n","version":"1"}}}"#
    );

    #[test]
    fn each_line_is_held_against_what_was_asked() {
        if Schemas::find().is_none() {
            return;
        }
        let mut conversation = Conversation::new();
        conversation.record_sent(format!(
            "{INITIALIZE}\nbroken\n{}",
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#
        ));
        assert_eq!(conversation.check_received(INITIALIZE_RESULT), Ok(()));
        let error =
            conversation.check_received(r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"x"}]}}"#);
        assert!(error.unwrap_err().contains("inputSchema"));
        let right = r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}"#;
        assert_eq!(conversation.check_received(right), Ok(()));
        assert!(
            conversation
                .check_received(r#"{"jsonrpc":"2.0","id":9,"result":{}}"#)
                .unwrap_err()
                .contains("response without a request")
        );
        assert!(conversation.check_received("no json").is_err());
        let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}"#;
        assert!(conversation.check_received(progress).unwrap_err().contains("progressToken"));
        assert_eq!(conversation.check_received(r#"{"jsonrpc":"2.0","method":"acme/own"}"#), Ok(()));
    }

    #[test]
    fn requests_and_their_answers_are_checked_in_both_directions() {
        if Schemas::find().is_none() {
            return;
        }
        let mut server = Conversation::new();
        let initialize = concat!(
            r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","#,
            r#""capabilities":{},"clientInfo":{"name":"n","version":"1"}}}"#
        );
        assert!(server.check_received(INITIALIZE).unwrap_err().contains("capabilities"));
        assert_eq!(server.check_received(initialize), Ok(()));
        server.record_sent(INITIALIZE_RESULT);
        let ask = r#"{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"message":"?","#;
        let form = r#""requestedSchema":{"type":"object","properties":{}}}}"#;
        let mut client = Conversation::new();
        client.record_sent(initialize);
        assert_eq!(client.check_received(INITIALIZE_RESULT), Ok(()));
        assert_eq!(client.check_received(&format!("{ask}{form}")), Ok(()));
        assert!(client.check_received(&format!("{ask}\"x\":1}}}}")).unwrap_err().contains("requestedSchema"));
        server.record_sent(format!("{ask}{form}"));
        assert_eq!(server.check_received(r#"{"jsonrpc":"2.0","id":1,"result":{"action":"accept"}}"#), Ok(()));
        let error = server.check_received(r#"{"jsonrpc":"2.0","id":1,"result":{"action":"perhaps"}}"#);
        assert!(error.unwrap_err().contains("perhaps"));
    }

    #[test]
    fn an_error_without_an_id_has_the_form_of_what_is_spoken() {
        if Schemas::find().is_none() {
            return;
        }
        let null = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"m"}}"#;
        assert_eq!(Conversation::new().check_received(null), Ok(()));
        let mut newest = Conversation::new();
        let meta = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;
        newest.record_sent(format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{{"_meta":{meta}}}}}"#
        ));
        assert_eq!(newest.check_received(null), Ok(()), "it may not have read the request yet");
        let discovered = concat!(
            r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","supportedVersions":[],"#,
            r#""capabilities":{},"ttlMs":0,"cacheScope":"public"}}"#
        );
        assert_eq!(newest.check_received(discovered), Ok(()));
        assert!(newest.check_received(null).is_err());
        assert_eq!(
            newest.check_received(r#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"m"}}"#),
            Ok(())
        );
    }
}
