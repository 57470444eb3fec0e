//! `#[args]`: both derives, from the copies of serde and schemars that `linchpin` carries.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::{Error, Fields, Item, Result};

pub(crate) fn expand(options: &TokenStream, item: &TokenStream) -> Result<TokenStream> {
    if !options.is_empty() {
        let text = "#[args] has no options: put #[serde(…)] or #[schemars(…)] on the struct or its fields";
        return Err(Error::new_spanned(options, text));
    }
    let (generics, implementation) = match syn::parse2(item.clone())? {
        Item::Struct(item) => {
            let name = &item.ident;
            check_fields(name, &item.fields)?;
            (item.generics, quote!(impl ::linchpin::Args for #name {}))
        }
        Item::Enum(item) => (item.generics, TokenStream::new()),
        _ => return Err(Error::new(Span::call_site(), "#[args] goes on a struct or an enum")),
    };
    if !generics.params.is_empty() {
        let text = "arguments have no lifetimes and no type parameters: write `String` instead of `&str`";
        return Err(Error::new_spanned(generics, text));
    }
    Ok(quote! {
        #[derive(::linchpin::__private::serde::Deserialize, ::linchpin::__private::schemars::JsonSchema)]
        #[serde(crate = "::linchpin::__private::serde")]
        #[schemars(crate = "::linchpin::__private::schemars")]
        #item
        #implementation
    })
}

fn check_fields(name: &syn::Ident, fields: &Fields) -> Result<()> {
    let text = match fields {
        Fields::Named(_) => return Ok(()),
        Fields::Unnamed(_) => format!("arguments have names: write `struct {name} {{ name: Type, … }}`"),
        Fields::Unit => format!("without arguments, write `struct {name} {{}}` or let the handler take none"),
    };
    Err(Error::new_spanned(name, text))
}
