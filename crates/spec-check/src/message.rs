//! Checks of complete messages: the envelope, and the parameters or result of the method.

use serde_json::Value;

use crate::Schemas;
use crate::document::{Document, Members};
use crate::tasks;

impl Schemas {
    /// Checks a request: its envelope, and its parameters as defined by the method in this revision.
    pub fn check_request(&self, revision: &str, message: &Value) -> Result<(), String> {
        check_method(self.document(revision)?, revision, "Request", message)
    }

    /// Checks a notification: its envelope, and its parameters as defined by the method in this revision.
    pub fn check_notification(&self, revision: &str, message: &Value) -> Result<(), String> {
        check_method(self.document(revision)?, revision, "Notification", message)?;
        if message.get("id").is_some() { Err("a notification has no \"id\"".into()) } else { Ok(()) }
    }

    /// Checks the response to a request of `method`. The result of a method that the revision does not define is only
    /// checked as a generic result.
    pub fn check_result(&self, revision: &str, method: &str, message: &Value) -> Result<(), String> {
        let document = self.document(revision)?;
        check_envelope(document, &["JSONRPCResultResponse", "JSONRPCResponse"], message)?;
        let stem = document
            .with_method("Request")
            .find(|(_, one)| *one == method)
            .and_then(|(name, _)| name.strip_suffix("Request"));
        let result = &message["result"];
        let extension = tasks::has_method(method) || result["resultType"] == "task";
        if extension && tasks::is_supported(document) {
            return tasks::check_result(document, method, result);
        }
        let Some(stem) = stem else { return document.check("Result", result, Members::Any) };
        let result_name = format!("{stem}Result");
        let mut definition =
            document.first_definition(&[&result_name, "EmptyResult", "Result"]).unwrap_or("Result");
        if method == "tools/call"
            && result.get("task").is_some()
            && document.find("CreateTaskResult").is_some()
        {
            definition = "CreateTaskResult";
        }
        if message["result"]["resultType"] == "input_required" {
            definition = "InputRequiredResult";
            let response_definition = document.find(&format!("{stem}ResultResponse")).map(Value::to_string);
            if !response_definition
                .is_some_and(|response_definition| response_definition.contains("/InputRequiredResult\""))
            {
                return Err(format!("\"{method}\" must not have an input_required result in {revision}"));
            }
        }
        document.check(definition, &message["result"], Members::Any)
    }

    /// Checks an error response, and its data if the revision defines them for the code.
    ///
    /// Older schemas require an id in every error response and cannot express an unknown id. JSON-RPC 2.0, which they
    /// are based on, uses `"id": null`, so it is allowed there. Newer schemas omit the id.
    pub fn check_error(&self, revision: &str, message: &Value) -> Result<(), String> {
        let document = self.document(revision)?;
        let names = ["JSONRPCErrorResponse", "JSONRPCError"];
        let required =
            document.first_definition(&names).and_then(|name| document.find(&format!("{name}/required")));
        let id_required = required.and_then(Value::as_array).is_some_and(|all| all.contains(&"id".into()));
        let mut message = message.clone();
        if id_required && message.get("id") == Some(&Value::Null) {
            message["id"] = 0.into();
        }
        check_envelope(document, &names, &message)?;
        match document.find_error(&message["error"]["code"]) {
            Some(definition) => document.check(definition, &message, Members::Any),
            None => Ok(()),
        }
    }

    /// Checks a batch: either requests and notifications, or responses. Results are only checked as generic results,
    /// since the requests of the responses are unknown here.
    pub fn check_batch(&self, revision: &str, batch: &Value) -> Result<(), String> {
        let document = self.document(revision)?;
        if document.find("JSONRPCBatchRequest").is_none() {
            return Err(format!("revision {revision} has no batches"));
        }
        let messages = batch.as_array().ok_or("a batch must be an array")?;
        let calls = messages.iter().filter(|message| message.get("method").is_some()).count();
        if messages.is_empty() {
            return Err("a batch must contain at least one message".into());
        }
        if calls != 0 && calls != messages.len() {
            return Err("a batch must contain either requests and notifications, or responses".into());
        }
        for (index, message) in messages.iter().enumerate() {
            let checked = match (calls > 0, message.get("id"), message.get("error")) {
                (true, Some(_), _) => self.check_request(revision, message),
                (true, None, _) => self.check_notification(revision, message),
                (false, _, Some(_)) => self.check_error(revision, message),
                (false, _, None) => check_envelope(document, &["JSONRPCResponse"], message),
            };
            checked.map_err(|fault| format!("message {index} of the batch: {fault}"))?;
        }
        Ok(())
    }
}

fn check_method(document: &Document, revision: &str, kind: &str, message: &Value) -> Result<(), String> {
    check_envelope(document, &[&format!("JSONRPC{kind}")], message)?;
    let method = message["method"].as_str().unwrap_or_default();
    if tasks::has_method(method) && tasks::is_supported(document) {
        return tasks::check_params(document, method, &message["params"]);
    }
    let Some((name, _)) = document.with_method(kind).find(|(_, one)| *one == method) else {
        return Err(format!("revision {revision} has no {} \"{method}\"", kind.to_lowercase()));
    };
    if !document.is_message(name, kind) {
        return Err(format!("in revision {revision} \"{method}\" is allowed only inside results"));
    }
    document.check(name, message, Members::Any)
}

fn check_envelope(document: &Document, names: &[&str], message: &Value) -> Result<(), String> {
    let name = document.first_definition(names).ok_or_else(|| format!("the schema has none of {names:?}"))?;
    document.check(name, message, Members::Any)
}
