//! `#[args]`: derives with the copies of serde and schemars that `linchpin` re-exports.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::{Error, Fields, Item, Result};

pub(crate) fn expand(options: &TokenStream, item: &TokenStream) -> Result<TokenStream> {
    if !options.is_empty() {
        let text = "#[args] takes no options: put #[serde(…)] or #[schemars(…)] on the struct or its fields";
        return Err(Error::new_spanned(options, text));
    }
    let (generics, implementation) = match syn::parse2(item.clone())? {
        Item::Struct(item) => {
            let name = &item.ident;
            check_fields(name, &item.fields)?;
            (item.generics, quote!(impl ::linchpin::Args for #name {}))
        }
        Item::Enum(item) => (item.generics, TokenStream::new()),
        _ => return Err(Error::new(Span::call_site(), "#[args] can be applied only to a struct or an enum")),
    };
    if !generics.params.is_empty() {
        let text = "arguments must not have lifetimes or type parameters: write `String` instead of `&str`";
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
        Fields::Unnamed(_) => format!("arguments must have names: write `struct {name} {{ name: Type, … }}`"),
        Fields::Unit => format!(
            "arguments must not be a unit struct: write `struct {name} {{}}`, or remove the parameter"
        ),
    };
    Err(Error::new_spanned(name, text))
}
