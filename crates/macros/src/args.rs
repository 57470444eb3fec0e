//! `#[args]`: both derives, from the copies of serde and schemars that `linchpin` carries.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{Error, Fields, Generics, Item, Result};

pub(crate) fn expand(options: &TokenStream, item: TokenStream) -> Result<TokenStream> {
    if !options.is_empty() {
        let text = "#[args] has no options: put #[serde(…)] or #[schemars(…)] on the struct or its fields";
        return Err(Error::new_spanned(options, text));
    }
    let (generics, implementation) = match syn::parse2(item.clone())? {
        Item::Struct(item) => {
            check_fields(&item.ident, &item.fields)?;
            let name = &item.ident;
            (item.generics, quote!(impl ::linchpin::Args for #name {}))
        }
        Item::Enum(item) => (item.generics, TokenStream::new()),
        other => return Err(Error::new_spanned(first_token(&other), "#[args] goes on a struct or an enum")),
    };
    check_generics(&generics)?;
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

fn check_generics(generics: &Generics) -> Result<()> {
    if generics.params.is_empty() {
        return Ok(());
    }
    let text =
        "arguments have no lifetimes and no type parameters: each field has an owned type such as String";
    Err(Error::new_spanned(generics, text))
}

/// The error is shown at the beginning of the item, not at all of it.
fn first_token(item: &Item) -> TokenStream {
    item.to_token_stream().into_iter().take(1).collect()
}
