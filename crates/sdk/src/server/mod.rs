//! MCP servers: builder, definitions, request dispatch and connections.
//!
//! [`Server`] collects definitions and settings; [`Service`] is the built, shareable server; a `Connection` serves one
//! client. Requests pass from `connection` through `dispatch` to the handler.

mod answer;
mod args;
mod ask;
#[cfg(feature = "auth")]
mod auth;
#[cfg(all(not(feature = "auth"), feature = "http-server"))]
#[path = "no_auth.rs"]
mod auth;
mod background;
mod batch;
mod builder;
mod cancel;
mod catalog;
mod clock;
mod completion;
mod connection;
mod context;
mod custom;
mod describe;
mod dispatch;
mod form;
mod handle;
mod handler;
#[cfg(feature = "http-server")]
mod http;
mod identity;
mod layer;
mod listed;
mod output;
mod prompt;
mod proxy;
mod questions;
mod report;
mod request;
mod resource;
#[cfg(feature = "rounds")]
mod rounds;
#[cfg(not(feature = "rounds"))]
#[path = "no_rounds.rs"]
mod rounds;
mod schema;
mod scope;
mod service;
mod session;
mod settings;
mod skills;
mod state;
mod strings;
mod subscriptions;
mod tasks;
mod template;
mod tool;
mod url_elicitation;
mod validate;
#[cfg(feature = "http-server")]
pub mod web;

pub use args::{Args, NoArgs};
pub use ask::Asking;
#[cfg(feature = "auth")]
pub use auth::{Auth, Dpop};
pub use builder::Server;
pub use context::{Context, Progress};
pub use handle::Handle;
pub use handler::Handler;
#[cfg(feature = "auth")]
pub(crate) use http::listener::bind;
#[cfg(feature = "http-server")]
pub use http::{
    Body, EventStore, Http, HttpService, KeptEvent, Listening, Refusal, SavedSession, SessionKey,
    SessionStore,
};
pub use identity::Identity;
#[cfg(feature = "http-client")]
pub(crate) use identity::is_scope;
pub use layer::{Next, Request, Response};
pub use listed::Listed;
pub use output::{Audio, Image, IntoContent, IntoPrompt, IntoResource, IntoToolOutput, Json};
pub use prompt::Prompt;
pub use report::{Event, Report};
pub use resource::{Resource, ResourceTemplate};
pub use service::Service;
pub use session::Session;
#[cfg(feature = "skills")]
pub use skills::Skill;
#[doc(hidden)]
pub use state::RequiredState;
pub use state::State;
pub use tasks::{Stored, TaskOutcome, TaskRecord, TaskStore};
pub use tool::Tool;
pub use url_elicitation::UrlElicitation;

pub(crate) use background::start;
#[cfg(feature = "http-client")]
pub(crate) use background::start_abortable;
pub use catalog::{Addable, Register};
#[doc(hidden)]
pub use catalog::{Annotated, Finished, Item};
#[cfg(feature = "http-client")]
pub(crate) use clock::Clock;
pub use completion::{Completing, CompletionInput, CompletionOutput};
pub(crate) use connection::{Caller, Connection, Reach};
pub use custom::IntoJson;
pub(crate) use request::caught_future;
pub use resource::ResourceArgs;
#[cfg(feature = "rounds")]
pub use rounds::{Key, Keys};
pub(crate) use validate::Validator;

use std::fmt::Write as _;
use std::pin::Pin;

/// Returns 128 random bits as 32 hexadecimal digits: an identifier that cannot be guessed.
pub(crate) fn unguessable() -> String {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the operating system provides random numbers");
    bytes.iter().fold(String::with_capacity(32), |mut name, byte| {
        let _ = write!(name, "{byte:02x}"); // writing to a `String` cannot fail
        name
    })
}

/// Boxed, type-erased future of a handler.
pub(crate) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;
