//! Attribute macros of Linchpin for arguments, tools, resources and prompts.
//!
//! The macros expand to the builders of the `linchpin` crate, which validate names, schemas and templates. Generated
//! code refers only to paths below `::linchpin`, so no other dependency is needed.

use proc_macro::TokenStream;

mod args;
mod function;
mod options;
mod prompt;
mod resource;
mod tool;

/// Derives the arguments of a handler from a struct, or a field type for them from an enum: decoding from JSON and a
/// JSON Schema. Doc comments become descriptions. `#[serde(…)]` and `#[schemars(…)]` attributes are supported.
#[proc_macro_attribute]
pub fn args(options: TokenStream, item: TokenStream) -> TokenStream {
    args::expand(&options.into(), &item.into()).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// Defines a tool by an async function. Add it to a server with `.add(name)`.
///
/// Each parameter is an argument, with its doc comment as description. `Option` parameters are optional. `Context` and
/// `State<T>` parameters are provided by the server. A parameter marked `#[args]` takes all arguments as a struct. The
/// doc comment of the function is the description for the model.
///
/// ```text
/// /// Adds two numbers
/// #[tool(read_only, idempotent)]
/// async fn add(a: i64, /** second number */ b: i64) -> i64 { a + b }
/// ```
///
/// Options: `name = "…"`, `title = "…"`, `description = "…"`, `read_only`, `destructive = bool`, `idempotent`,
/// `open_world = bool`, `timeout_ms = 5000`, `scopes = ["…"]`.
#[proc_macro_attribute]
pub fn tool(options: TokenStream, item: TokenStream) -> TokenStream {
    tool::expand(options.into(), item.into()).into()
}

/// Defines a resource by an async function, or a resource template if the URI contains a `{variable}`. The parameters
/// are the variables of the template. `Context` and `State<T>` parameters are provided by the server. Options: `name =
/// "…"`, `title = "…"`, `description = "…"`, `mime = "…"`.
///
/// ```text
/// #[resource("users://{id}/profile", mime = "application/json")]
/// async fn profile(id: u64, db: State<Db>) -> Result<Json<Profile>> { … }
/// ```
#[proc_macro_attribute]
pub fn resource(options: TokenStream, item: TokenStream) -> TokenStream {
    resource::expand(options.into(), item.into()).into()
}

/// Defines a prompt by an async function. The parameters are its arguments. `Context` and `State<T>` parameters are
/// provided by the server. Options: `name = "…"`, `title = "…"`, `description = "…"`.
///
/// ```text
/// /// Review code
/// #[prompt(title = "Review")]
/// async fn review(language: String) -> String { format!("Review this {language} code") }
/// ```
#[proc_macro_attribute]
pub fn prompt(options: TokenStream, item: TokenStream) -> TokenStream {
    prompt::expand(options.into(), item.into()).into()
}
