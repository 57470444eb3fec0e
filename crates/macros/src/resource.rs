//! `#[resource]`: defines a `linchpin::Resource` or a `linchpin::ResourceTemplate` by a function.

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::{ParseStream, Parser};
use syn::{Error, LitStr, Result, Token};

use crate::function;
use crate::options::{AttributeOptions, DESCRIPTION, NAME, OptionSpec, OptionValueKind, TITLE};

const OPTIONS: [OptionSpec; 4] = [NAME, TITLE, DESCRIPTION, ("mime", "mime_type", OptionValueKind::Str)];

pub(crate) fn expand(options: TokenStream, item: TokenStream) -> TokenStream {
    function::expand("resource", item, |function, parameters| {
        let (uri, options) = parse.parse2(options)?;
        if uri.value().contains('{') {
            return Ok(function.builder(&quote!(ResourceTemplate), &quote!(#uri,), options));
        }
        if parameters.has_arguments() {
            let text = "this URI has no {variable}, so the function can take only Context and State";
            return Err(Error::new_spanned(uri, text));
        }
        Ok(function.builder(&quote!(Resource), &quote!(#uri,), options))
    })
}

fn parse(input: ParseStream<'_>) -> Result<(LitStr, AttributeOptions)> {
    let uri = input.parse().map_err(|error| {
        Error::new(
            error.span(),
            "the first option must be the URI: #[resource(\"users://{id}\", mime = \"…\")]",
        )
    })?;
    if !input.is_empty() {
        input.parse::<Token![,]>()?;
    }
    Ok((uri, AttributeOptions::parse("resource", &OPTIONS, input)?))
}
