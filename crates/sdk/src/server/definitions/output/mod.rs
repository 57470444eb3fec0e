//! Return values of handlers and their conversion into results.

mod content;
mod json;
mod prompt;
mod resource;
mod tool;

pub use content::{Audio, Image, IntoContent};
pub use json::Json;
pub use prompt::IntoPrompt;
pub use resource::IntoResource;
pub use tool::IntoToolOutput;
