//! End-to-end tests of the hub process, by REST and on the command line, with `server-everything` and a Python server
//! that requires authentication. The name of each test starts with the requirement that it verifies.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod approvals;
mod audit;
mod calls;
mod credentials;
mod first_run;
mod oauth;
mod pins;
mod resources_prompts;
mod servers;
mod sync;
mod tools;

use serde_json::Value;

/// Returns a string of a response.
#[track_caller]
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is not a string"))
}

/// Returns the string at a JSON pointer in each value.
fn strings_at<'a>(values: &'a [Value], pointer: &str) -> Vec<&'a str> {
    values.iter().map(|value| text(value.pointer(pointer).unwrap())).collect()
}
