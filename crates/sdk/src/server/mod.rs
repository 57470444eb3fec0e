//! MCP servers: builder, definitions, request dispatch and connections.
//!
//! [`Server`] collects definitions and settings; [`Service`] is the built, shareable server; a `Connection` serves one
//! client. Requests pass from `connection` through `dispatch` to the handler.

#[cfg(feature = "auth")]
mod auth;
#[cfg(all(not(feature = "auth"), feature = "http-server"))]
#[path = "no_auth.rs"]
mod auth;
mod builder;
mod catalog;
mod clock;
mod connection;
mod definitions;
mod forward;
mod handle;
#[cfg(feature = "http-server")]
mod http;
mod identity;
mod input;
mod proxy;
mod request;
mod service;
mod session;
mod settings;
mod skills;
mod spawn;
mod subscriptions;
mod tasks;
#[cfg(feature = "http-server")]
pub mod web;

#[cfg(feature = "auth")]
pub use auth::{Auth, Dpop};
pub use builder::Server;
pub use definitions::args::{Args, NoArgs};
pub use definitions::definition_ref::DefinitionRef;
pub use definitions::handler::Handler;
pub use definitions::output::{Audio, Image, IntoContent, IntoPrompt, IntoResource, IntoToolOutput, Json};
pub use definitions::prompt::Prompt;
pub use definitions::resource::{Resource, ResourceTemplate};
#[doc(hidden)]
pub use definitions::shared_state::RequiredState;
pub use definitions::shared_state::State;
pub use definitions::tool::Tool;
pub use definitions::uri_template::UriTemplate;
pub use forward::{Forward, ForwardedDefinitions};
pub use handle::ServerHandle;
#[cfg(feature = "auth")]
pub(crate) use http::listener::bind;
#[cfg(feature = "http-server")]
pub use http::{
    Body, BoundEndpoint, EventStore, HttpEndpoint, HttpService, PrincipalError, SavedSession, SessionKey,
    SessionStore, StoredEvent,
};
pub use identity::Identity;
#[cfg(feature = "http-client")]
pub(crate) use identity::is_scope;
pub use input::ask::NamedRequest;
pub use input::url_elicitation::UrlElicitation;
pub use request::context::{Context, Progress};
pub use request::layer::{Next, Request, Response};
pub use request::observe::{ErrorReport, RequestEvent};
pub use service::Service;
pub use session::Session;
#[cfg(feature = "skills")]
pub use skills::Skill;
pub use tasks::{StoreFuture, TaskOutcome, TaskRecord, TaskStore};

pub use catalog::{Addable, Register};
#[doc(hidden)]
pub use catalog::{AnnotatedForm, CatalogItem, CompletedForm};
#[cfg(feature = "http-client")]
pub(crate) use clock::Clock;
pub(crate) use connection::{ClientState, Connection, INPUT_ENDED, ReplyChannel};
pub use definitions::completion::{CompletionInput, CompletionOutput, CompletionRequest};
pub use definitions::custom_method::IntoJson;
pub use definitions::resource::ResourceArgs;
pub(crate) use definitions::validator::Validator;
#[cfg(feature = "rounds")]
pub use input::rounds::{StateKey, StateKeys};
pub(crate) use request::work::run_catching_panics;
pub(crate) use spawn::spawn;
#[cfg(feature = "http-client")]
pub(crate) use spawn::spawn_abortable;

use std::fmt::Write as _;
use std::pin::Pin;

/// Returns 128 random bits as 32 hexadecimal digits: an identifier that cannot be guessed.
pub(crate) fn random_id() -> String {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the operating system provides random numbers");
    bytes.iter().fold(String::with_capacity(32), |mut name, byte| {
        let _ = write!(name, "{byte:02x}"); // writing to a `String` cannot fail
        name
    })
}

/// Boxed, type-erased future of a handler.
pub(crate) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;
