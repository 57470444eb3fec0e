//! The options of an attribute: which there are, and the builder calls they stand for.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::{Error, Expr, Ident, Lit, Result, Token};

/// What follows the name of an option.
#[derive(Clone, Copy)]
pub(crate) enum Takes {
    Text,
    Texts,
    Nothing,
    Bool,
    Milliseconds,
}

/// The name of an option, the builder's method for it, and what follows it.
pub(crate) type Known = (&'static str, &'static str, Takes);

pub(crate) const NAME: Known = ("name", "name", Takes::Text);
pub(crate) const TITLE: Known = ("title", "title", Takes::Text);
pub(crate) const DESCRIPTION: Known = ("description", "description", Takes::Text);

/// Options that were given.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) name: Option<TokenStream>,
    pub(crate) description: Option<TokenStream>,
    /// Calls of builder methods for all others.
    pub(crate) calls: TokenStream,
}

impl Options {
    /// Reads what stands in the parentheses of `#[attribute(…)]`.
    pub(crate) fn parse(attribute: &str, known: &[Known], input: ParseStream<'_>) -> Result<Self> {
        let (mut options, mut seen) = (Options::default(), Vec::new());
        while !input.is_empty() {
            let name = input.call(Ident::parse_any)?;
            let Some((_, method, takes)) = known.iter().find(|(option, ..)| name == option) else {
                let list: Vec<_> = known.iter().map(|(option, ..)| *option).collect();
                let text =
                    format!("`{name}` is no option of #[{attribute}]: the options are {}", list.join(", "));
                return Err(Error::new(name.span(), text));
            };
            if seen.contains(&name) {
                return Err(Error::new(name.span(), format!("`{name}` is given twice")));
            }
            let value = input.parse::<Option<Token![=]>>()?.map(|_| input.parse()).transpose()?;
            let value = takes.value(&name, value.as_ref())?;
            match *method {
                "name" => options.name = Some(value),
                "description" => options.description = Some(value),
                _ => {
                    let method = Ident::new(method, name.span());
                    options.calls.extend(quote!(.#method(#value)));
                }
            }
            seen.push(name);
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(options)
    }
}

impl Takes {
    /// The argument of the builder's method. A value need not be a literal; a literal must be of the right kind.
    fn value(self, name: &Ident, value: Option<&Expr>) -> Result<TokenStream> {
        let literal = if let Some(Expr::Lit(value)) = value { Some(&value.lit) } else { None };
        let example = match (self, value, literal) {
            (Takes::Nothing, None, _) => return Ok(TokenStream::new()),
            (Takes::Bool, None, _) => return Ok(quote!(true)),
            (Takes::Text, Some(value), None | Some(Lit::Str(_)))
            | (Takes::Texts, Some(value), None)
            | (Takes::Bool, Some(value), None | Some(Lit::Bool(_))) => return Ok(value.to_token_stream()),
            (Takes::Milliseconds, Some(number), None | Some(Lit::Int(_))) => {
                return Ok(quote!(::std::time::Duration::from_millis(#number)));
            }
            (Takes::Nothing, ..) => "",
            (Takes::Text, ..) => " = \"…\"",
            (Takes::Texts, ..) => " = [\"…\"]",
            (Takes::Bool, ..) => " = false",
            (Takes::Milliseconds, ..) => " = 5000",
        };
        let text = format!("this option is written `{name}{example}`");
        Err(Error::new_spanned(quote!(#name #value), text))
    }
}
