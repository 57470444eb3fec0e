//! Servers: what people register, and how a request finds it.
//!
//! [`Server`] collects definitions and settings; [`Service`] is the finished, shareable server; a `Connection`
//! is one client's line into it. Requests go `connection` → `dispatch` → the handler.

mod answer;
mod args;
mod batch;
mod builder;
mod cancel;
mod catalog;
mod completion;
mod connection;
mod context;
mod custom;
mod describe;
mod dispatch;
mod handle;
mod handler;
mod layer;
mod listed;
mod output;
mod prompt;
mod report;
mod request;
mod resource;
mod schema;
mod scope;
mod service;
mod session;
mod settings;
mod state;
mod strings;
mod subscriptions;
mod tasks;
mod template;
mod tool;
mod validate;

pub use args::{Args, NoArgs};
pub use builder::Server;
pub use context::{Context, Progress};
pub use handle::Handle;
pub use handler::Handler;
pub use layer::{Next, Request, Response};
pub use listed::Listed;
pub use output::{Audio, Image, IntoContent, IntoPrompt, IntoResource, IntoToolOutput, Json};
pub use prompt::Prompt;
pub use report::{Event, Report};
pub use resource::{Resource, ResourceTemplate};
pub use service::Service;
pub use session::Session;
pub use state::State;
pub use tool::Tool;

#[doc(hidden)]
pub use catalog::Item;
pub use catalog::Register;
pub use completion::{Completing, CompletionInput, CompletionOutput};
pub(crate) use connection::Connection;
pub use custom::IntoJson;
pub use resource::ResourceArgs;
pub(crate) use tasks::start;

use std::pin::Pin;

/// A handler's work, with its type erased.
pub(crate) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;
