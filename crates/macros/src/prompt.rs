//! `#[prompt]`: a function as a `linchpin::Prompt`.

use proc_macro2::TokenStream;
use quote::quote;

use crate::function;
use crate::options::{DESCRIPTION, NAME, Options, TITLE};

pub(crate) fn expand(options: TokenStream, item: TokenStream) -> TokenStream {
    function::expand("prompt", item, |function| {
        let options = Options::parse("prompt", &[NAME, TITLE, DESCRIPTION], options)?;
        let name = function.name(&options);
        let described = function.described(options);
        Ok(quote!(::linchpin::Prompt::new(#name) #described))
    })
}
