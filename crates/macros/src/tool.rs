//! `#[tool]`: defines a `linchpin::Tool` by a function.

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::{ParseStream, Parser};

use crate::function;
use crate::options::{DESCRIPTION, Known, NAME, Options, TITLE, Takes};

const OPTIONS: [Known; 9] = [
    NAME,
    TITLE,
    DESCRIPTION,
    ("read_only", "read_only", Takes::Nothing),
    ("destructive", "destructive", Takes::Bool),
    ("idempotent", "idempotent", Takes::Nothing),
    ("open_world", "open_world", Takes::Bool),
    ("timeout_ms", "timeout", Takes::Milliseconds),
    ("scopes", "scopes", Takes::Texts),
];

pub(crate) fn expand(options: TokenStream, item: TokenStream) -> TokenStream {
    function::expand("tool", item, |function, _| {
        let read = |input: ParseStream<'_>| Options::parse("tool", &OPTIONS, input);
        Ok(function.builder(&quote!(Tool), &TokenStream::new(), read.parse2(options)?))
    })
}
