//! `#[prompt]`: defines a `linchpin::Prompt` by a function.

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::{ParseStream, Parser};

use crate::function;
use crate::options::{AttributeOptions, DESCRIPTION, NAME, TITLE};

pub(crate) fn expand(options: TokenStream, item: TokenStream) -> TokenStream {
    function::expand("prompt", item, |function, _| {
        let read =
            |input: ParseStream<'_>| AttributeOptions::parse("prompt", &[NAME, TITLE, DESCRIPTION], input);
        Ok(function.builder(&quote!(Prompt), &TokenStream::new(), read.parse2(options)?))
    })
}
