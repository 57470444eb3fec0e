//! `#[tool]`: defines a `linchpin::Tool` by a function.

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::{ParseStream, Parser};

use crate::function;
use crate::options::{AttributeOptions, DESCRIPTION, NAME, OptionSpec, OptionValueKind, TITLE};

const OPTIONS: [OptionSpec; 9] = [
    NAME,
    TITLE,
    DESCRIPTION,
    ("read_only", "read_only", OptionValueKind::Flag),
    ("destructive", "destructive", OptionValueKind::Bool),
    ("idempotent", "idempotent", OptionValueKind::Flag),
    ("open_world", "open_world", OptionValueKind::Bool),
    ("timeout_ms", "timeout", OptionValueKind::Milliseconds),
    ("scopes", "scopes", OptionValueKind::StrArray),
];

pub(crate) fn expand(options: TokenStream, item: TokenStream) -> TokenStream {
    function::expand("tool", item, |function, _| {
        let read = |input: ParseStream<'_>| AttributeOptions::parse("tool", &OPTIONS, input);
        Ok(function.builder(&quote!(Tool), &TokenStream::new(), read.parse2(options)?))
    })
}
