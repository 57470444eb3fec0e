//! The hub as its users meet it: the program itself, by REST and on the command line, with `server-everything` and a
//! Python server that wants to know who asks. The names of the tests begin with the requirement that they show.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod approvals;
mod audit;
mod calls;
mod credentials;
mod newcomer;
mod oauth;
mod offers;
mod pins;
mod servers;
mod sync;
mod tools;

use serde_json::Value;

/// A text of an answer.
#[track_caller]
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

/// Every one of these at this pointer.
fn each<'a>(values: &'a [Value], pointer: &str) -> Vec<&'a str> {
    values.iter().map(|value| text(value.pointer(pointer).unwrap())).collect()
}
