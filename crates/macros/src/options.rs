//! Options of an attribute and the builder calls they expand to.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::{Error, Expr, Ident, Lit, Result, Token};

/// Kind of the value of an option.
#[derive(Clone, Copy)]
pub(crate) enum Takes {
    Text,
    Texts,
    Nothing,
    Bool,
    Milliseconds,
}

/// Specification of an option: its name, the builder method and the kind of its value.
pub(crate) type Known = (&'static str, &'static str, Takes);

pub(crate) const NAME: Known = ("name", "name", Takes::Text);
pub(crate) const TITLE: Known = ("title", "title", Takes::Text);
pub(crate) const DESCRIPTION: Known = ("description", "description", Takes::Text);

/// Parsed options.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) name: Option<TokenStream>,
    pub(crate) description: Option<TokenStream>,
    /// Builder calls for all other options.
    pub(crate) calls: TokenStream,
}

impl Options {
    /// Parses the options in the parentheses of `#[attribute(…)]`.
    pub(crate) fn parse(attribute: &str, known: &[Known], input: ParseStream<'_>) -> Result<Self> {
        let (mut options, mut seen) = (Options::default(), Vec::new());
        while !input.is_empty() {
            let name = input.call(Ident::parse_any)?;
            let Some((_, method, takes)) = known.iter().find(|(option, ..)| name == option) else {
                let list: Vec<_> = known.iter().map(|(option, ..)| *option).collect();
                let text =
                    format!("unknown option `{name}` of #[{attribute}]: use one of {}", list.join(", "));
                return Err(Error::new(name.span(), text));
            };
            if seen.contains(&name) {
                return Err(Error::new(name.span(), format!("duplicate option `{name}`")));
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
    /// Returns the argument of the builder method. The value can be any expression; a literal must have the right type.
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
        let text = format!("invalid option: write `{name}{example}`");
        Err(Error::new_spanned(quote!(#name #value), text))
    }
}
