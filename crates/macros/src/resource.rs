//! `#[resource]`: a function as a `linchpin::Resource`, or as a `linchpin::ResourceTemplate`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::{ParseStream, Parser};
use syn::{Error, LitStr, Result, Token};

use crate::function::{self, Function};
use crate::options::{DESCRIPTION, Known, NAME, Options, TITLE, Takes};

const OPTIONS: [Known; 4] = [NAME, TITLE, DESCRIPTION, ("mime", "mime_type", Takes::Text)];

pub(crate) fn expand(options: TokenStream, item: TokenStream) -> TokenStream {
    function::expand("resource", item, |function| {
        let (uri, options) = parse.parse2(options)?;
        let name = function.name(&options);
        let described = function.described(options);
        if uri.value().contains('{') {
            return Ok(quote!(::linchpin::ResourceTemplate::new(#uri, #name) #described));
        }
        refuse_arguments(function, &uri)?;
        Ok(quote!(::linchpin::Resource::new(#uri, #name) #described))
    })
}

fn parse(input: ParseStream<'_>) -> Result<(LitStr, Options)> {
    let uri = input.parse().map_err(|error| {
        Error::new(error.span(), "the URI comes first: #[resource(\"users://{id}\", mime = \"…\")]")
    })?;
    if !input.is_empty() {
        input.parse::<Token![,]>()?;
    }
    Ok((uri, Options::parse_from("resource", &OPTIONS, input)?))
}

fn refuse_arguments(function: &Function, uri: &LitStr) -> Result<()> {
    let Some(argument) = function.find_argument() else { return Ok(()) };
    let text = format!(
        "`{}` has no {{variable}} to fill this parameter: a plain resource takes only Context and State",
        uri.value()
    );
    Err(Error::new_spanned(argument, text))
}
