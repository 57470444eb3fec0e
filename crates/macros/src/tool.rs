//! `#[tool]`: a function as a `linchpin::Tool`.

use proc_macro2::TokenStream;
use quote::quote;

use crate::function;
use crate::options::{DESCRIPTION, Known, NAME, Options, TITLE, Takes};

const OPTIONS: [Known; 8] = [
    NAME,
    TITLE,
    DESCRIPTION,
    ("read_only", "read_only", Takes::Nothing),
    ("destructive", "destructive", Takes::Bool),
    ("idempotent", "idempotent", Takes::Nothing),
    ("open_world", "open_world", Takes::Bool),
    ("timeout_ms", "timeout", Takes::Milliseconds),
];

pub(crate) fn expand(options: TokenStream, item: TokenStream) -> TokenStream {
    function::expand("tool", item, |function| {
        let options = Options::parse("tool", &OPTIONS, options)?;
        let name = function.name(&options);
        let described = function.described(options);
        Ok(quote!(::linchpin::Tool::new(#name) #described))
    })
}
