//! Options of an attribute and the builder calls they expand to.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::{Error, Expr, Ident, Lit, Result, Token};

/// Kind of value that an option of an attribute macro takes, such as a string or a flag.
#[derive(Clone, Copy)]
pub(crate) enum OptionValueKind {
    Str,
    StrArray,
    Flag,
    Bool,
    Milliseconds,
}

/// Specification of an option: its name, the builder method and the kind of its value.
pub(crate) type OptionSpec = (&'static str, &'static str, OptionValueKind);

pub(crate) const NAME: OptionSpec = ("name", "name", OptionValueKind::Str);
pub(crate) const TITLE: OptionSpec = ("title", "title", OptionValueKind::Str);
pub(crate) const DESCRIPTION: OptionSpec = ("description", "description", OptionValueKind::Str);

/// Parsed options of an attribute such as `#[tool(…)]`.
#[derive(Default)]
pub(crate) struct AttributeOptions {
    pub(crate) name: Option<TokenStream>,
    pub(crate) description: Option<TokenStream>,
    /// Generated builder calls for the options that have no field here.
    pub(crate) calls: TokenStream,
}

impl AttributeOptions {
    /// Parses the options in the parentheses of `#[attribute(…)]`.
    pub(crate) fn parse(attribute: &str, specs: &[OptionSpec], input: ParseStream<'_>) -> Result<Self> {
        let (mut options, mut seen_names) = (AttributeOptions::default(), Vec::new());
        while !input.is_empty() {
            let name = input.call(Ident::parse_any)?;
            let Some((_, method, value_kind)) = specs.iter().find(|(option, ..)| name == option) else {
                let list: Vec<_> = specs.iter().map(|(option, ..)| *option).collect();
                let text =
                    format!("unknown option `{name}` of #[{attribute}]: use one of {}", list.join(", "));
                return Err(Error::new(name.span(), text));
            };
            if seen_names.contains(&name) {
                return Err(Error::new(name.span(), format!("duplicate option `{name}`")));
            }
            let value = input.parse::<Option<Token![=]>>()?.map(|_| input.parse()).transpose()?;
            let value = value_kind.value(&name, value.as_ref())?;
            match *method {
                "name" => options.name = Some(value),
                "description" => options.description = Some(value),
                _ => {
                    let method = Ident::new(method, name.span());
                    options.calls.extend(quote!(.#method(#value)));
                }
            }
            seen_names.push(name);
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(options)
    }
}

impl OptionValueKind {
    /// Returns the argument that an option of the attribute passes to its builder method. The value can be any
    /// expression; a literal must have the right type.
    fn value(self, name: &Ident, value: Option<&Expr>) -> Result<TokenStream> {
        let literal = if let Some(Expr::Lit(value)) = value { Some(&value.lit) } else { None };
        let example = match (self, value, literal) {
            (OptionValueKind::Flag, None, _) => return Ok(TokenStream::new()),
            (OptionValueKind::Bool, None, _) => return Ok(quote!(true)),
            (OptionValueKind::Str, Some(value), None | Some(Lit::Str(_)))
            | (OptionValueKind::StrArray, Some(value), None)
            | (OptionValueKind::Bool, Some(value), None | Some(Lit::Bool(_))) => {
                return Ok(value.to_token_stream());
            }
            (OptionValueKind::Milliseconds, Some(number), None | Some(Lit::Int(_))) => {
                return Ok(quote!(::std::time::Duration::from_millis(#number)));
            }
            (OptionValueKind::Flag, ..) => "",
            (OptionValueKind::Str, ..) => " = \"…\"",
            (OptionValueKind::StrArray, ..) => " = [\"…\"]",
            (OptionValueKind::Bool, ..) => " = false",
            (OptionValueKind::Milliseconds, ..) => " = 5000",
        };
        let text = format!("invalid option: write `{name}{example}`");
        Err(Error::new_spanned(quote!(#name #value), text))
    }
}
