//! Attribute macros of Linchpin: structs as arguments, and functions as tools, resources and prompts.
//!
//! They are sugar over the builders of the `linchpin` crate, which say what is wrong with a name, a schema or a
//! template. Generated code finds everything below `::linchpin`: its user needs no other dependency.

use proc_macro::TokenStream;

mod args;
mod function;
mod options;
mod prompt;
mod resource;
mod tool;

/// Makes a struct the arguments of a handler, or an enum a type for their fields: it decodes from JSON and
/// describes itself. Doc comments become descriptions; `#[serde(…)]` and `#[schemars(…)]` work as usual.
#[proc_macro_attribute]
pub fn args(options: TokenStream, item: TokenStream) -> TokenStream {
    args::expand(&options.into(), &item.into()).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// Makes an async function a tool, which `.add(name)` adds to a server.
///
/// Each parameter is an argument, with its doc comment as description; an `Option` may be left out. A `Context`,
/// and any `State<T>`, come from the server. One parameter marked `#[args]` takes all arguments as a struct.
/// The doc comment of the function is what the model reads.
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

/// Makes an async function a resource, or a resource template when the URI has a `{variable}`, whose variables
/// are then the parameters. A `Context`, and any `State<T>`, come from the server. Options: `name = "…"`,
/// `title = "…"`, `description = "…"`, `mime = "…"`.
///
/// ```text
/// #[resource("users://{id}/profile", mime = "application/json")]
/// async fn profile(id: u64, db: State<Db>) -> Result<Json<Profile>> { … }
/// ```
#[proc_macro_attribute]
pub fn resource(options: TokenStream, item: TokenStream) -> TokenStream {
    resource::expand(options.into(), item.into()).into()
}

/// Makes an async function a prompt, whose arguments are the parameters; a `Context`, and any `State<T>`, come from
/// the server. Options: `name = "…"`, `title = "…"`, `description = "…"`.
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
