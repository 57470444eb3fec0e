//! The options of an attribute: which there are, and the builder calls they stand for.

use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Error, Expr, ExprLit, Ident, Lit, Result, Token};

/// What follows the name of an option.
#[derive(Clone, Copy)]
pub(crate) enum Takes {
    Text,
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
    pub(crate) fn parse(attribute: &str, known: &[Known], tokens: TokenStream) -> Result<Self> {
        (|input: ParseStream<'_>| Self::parse_from(attribute, known, input)).parse2(tokens)
    }

    /// Reads the rest of `input`.
    pub(crate) fn parse_from(attribute: &str, known: &[Known], input: ParseStream<'_>) -> Result<Self> {
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
            let value = match input.parse::<Option<Token![=]>>()? {
                Some(_) => Some(input.parse()?),
                None => None,
            };
            options.set(&name, &Ident::new(method, name.span()), takes.value(&name, value)?);
            seen.push(name);
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(options)
    }

    fn set(&mut self, name: &Ident, method: &Ident, value: TokenStream) {
        if name == "name" {
            self.name = Some(value);
        } else if name == "description" {
            self.description = Some(value);
        } else {
            self.calls.extend(quote!(.#method(#value)));
        }
    }
}

impl Takes {
    /// The argument of the builder's method. A value need not be a literal; a literal must be of the right kind.
    fn value(self, name: &Ident, value: Option<Expr>) -> Result<TokenStream> {
        let literal = match &value {
            Some(Expr::Lit(ExprLit { lit, .. })) => Some(lit),
            _ => None,
        };
        let reason = match (self, &value, literal) {
            (Takes::Nothing, None, _) => return Ok(TokenStream::new()),
            (Takes::Bool, None, _) => return Ok(quote!(true)),
            (Takes::Text, Some(text), None | Some(Lit::Str(_))) => return Ok(quote!(#text)),
            (Takes::Bool, Some(value), None | Some(Lit::Bool(_))) => return Ok(quote!(#value)),
            (Takes::Milliseconds, Some(number), None | Some(Lit::Int(_))) => {
                return Ok(quote!(::std::time::Duration::from_millis(#number)));
            }
            (Takes::Nothing, ..) => format!("`{name}` stands alone: write `{name}`, or leave it out"),
            (Takes::Text, ..) => format!("`{name}` is a text: write `{name} = \"…\"`"),
            (Takes::Bool, ..) => {
                format!("`{name}` is true or false: write `{name} = false`, or `{name}` alone")
            }
            (Takes::Milliseconds, ..) => {
                format!("`{name}` is a number of milliseconds: write `{name} = 5000`")
            }
        };
        match value {
            Some(value) => Err(Error::new_spanned(value, reason)),
            None => Err(Error::new(name.span(), reason)),
        }
    }
}
