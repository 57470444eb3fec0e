//! The annotated function: what each of its parameters is, and the function that registers it.
//!
//! It becomes a function of the same name without parameters, which `Server::add` calls. A function, unlike a unit
//! struct, leaves its name free for variables, and rustc warns of one that is never used. The author's function
//! stands inside, as it was written, so that errors point at it.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{
    Attribute, Error, Expr, ExprLit, FnArg, Ident, Lit, Meta, Pat, PatType, Result, ReturnType, Signature,
    Token, Type, Visibility,
};

use crate::options::Options;

/// A function whose body is not looked at.
pub(crate) struct Function {
    attributes: Vec<Attribute>,
    visibility: Visibility,
    signature: Signature,
    body: TokenStream,
}

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let attributes = input.call(Attribute::parse_outer)?;
        let visibility = input.parse()?;
        if !(input.peek(Token![async]) || input.peek(Token![fn]) || input.peek(Token![unsafe])) {
            return Err(input.error("this attribute goes on an async fn"));
        }
        Ok(Function { attributes, visibility, signature: input.parse()?, body: input.parse()? })
    }
}

/// The whole expansion of `#[attribute]`. `builder` is everything before `.handler(…)`; an error stands in the
/// function that registers, so that its name exists all the same.
pub(crate) fn expand(
    attribute: &str,
    item: TokenStream,
    builder: impl FnOnce(&Function) -> Result<TokenStream>,
) -> TokenStream {
    let function: Function = match syn::parse2(item) {
        Ok(function) => function,
        Err(error) => return error.to_compile_error(),
    };
    let (visibility, name) = (&function.visibility, &function.signature.ident);
    let outer =
        function.attributes.iter().filter(|attribute| is_outer(attribute) || is(attribute, &["allow"]));
    let content = function
        .check(attribute)
        .and_then(|()| builder(&function))
        .and_then(|builder| function.content(&builder));
    let content = content.unwrap_or_else(|error| error.to_compile_error());
    quote! {
        #(#outer)*
        #visibility fn #name() -> impl ::linchpin::__private::Register {
            #content
        }
    }
}

fn is(attribute: &Attribute, names: &[&str]) -> bool {
    attribute.path().segments.last().is_some_and(|last| names.iter().any(|name| last.ident == name))
}

fn is_outer(attribute: &Attribute) -> bool {
    is(attribute, &["doc", "cfg", "deprecated"])
}

/// What a parameter is filled with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Argument,
    AllArguments,
    Context,
    State,
}

impl Role {
    fn of(parameter: &PatType) -> Self {
        let last = match &*parameter.ty {
            Type::Path(kind) => kind.path.segments.last(),
            _ => None,
        };
        match last {
            _ if parameter.attrs.iter().any(|attribute| is(attribute, &["args"])) => Role::AllArguments,
            Some(segment) if segment.ident == "Context" => Role::Context,
            Some(segment) if segment.ident == "State" => Role::State,
            _ => Role::Argument,
        }
    }
}

impl Function {
    /// The name that was given, or the function's own.
    pub(crate) fn name(&self, options: &Options) -> TokenStream {
        options.name.clone().unwrap_or_else(|| self.signature.ident.unraw().to_string().to_token_stream())
    }

    /// Builder calls for all options but the name.
    pub(crate) fn described(&self, options: Options) -> TokenStream {
        let description =
            options.description.or_else(|| self.documentation().map(ToTokens::into_token_stream));
        let (description, calls) = (description.into_iter(), options.calls);
        quote!(#(.description(#description))* #calls)
    }

    /// The doc comment, without the space after each `///`.
    fn documentation(&self) -> Option<String> {
        let texts = self.attributes.iter().filter_map(|attribute| match &attribute.meta {
            Meta::NameValue(meta) if meta.path.is_ident("doc") => match &meta.value {
                Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
                _ => None,
            },
            _ => None,
        });
        let text = texts.collect::<Vec<_>>().join("\n");
        let lines = text.split('\n').map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end());
        let text = lines.collect::<Vec<_>>().join("\n").trim().to_owned();
        (!text.is_empty()).then_some(text)
    }

    fn parameters(&self) -> impl Iterator<Item = (&PatType, Role)> {
        self.signature.inputs.iter().filter_map(|input| match input {
            FnArg::Typed(parameter) => Some((parameter, Role::of(parameter))),
            FnArg::Receiver(_) => None,
        })
    }

    /// The first parameter that is an argument.
    pub(crate) fn find_argument(&self) -> Option<&PatType> {
        let is_argument = |role| matches!(role, Role::Argument | Role::AllArguments);
        self.parameters().find(|(_, role)| is_argument(*role)).map(|(parameter, _)| parameter)
    }

    fn check(&self, attribute: &str) -> Result<()> {
        let Signature { ident, generics, asyncness, fn_token, .. } = &self.signature;
        if asyncness.is_none() {
            let text = format!("a {attribute} is an async fn: write `async fn {ident}(…)`");
            return Err(Error::new(fn_token.span, text));
        }
        if let Some(receiver) = self.signature.receiver() {
            let text =
                format!("a {attribute} takes no self: give the value to `Server::state` and take `State<T>`");
            return Err(Error::new_spanned(receiver, text));
        }
        if !generics.params.is_empty() {
            return Err(Error::new_spanned(
                generics,
                format!("a {attribute} has no lifetimes and no type parameters"),
            ));
        }
        let by_reference = |(parameter, _): &(&PatType, _)| matches!(*parameter.ty, Type::Reference(_));
        if let Some((parameter, _)) = self.parameters().find(by_reference) {
            let text =
                "parameters are owned: write `String` instead of `&str`, and `Context` instead of `&Context`";
            return Err(Error::new_spanned(&parameter.ty, text));
        }
        Ok(())
    }

    /// The author's function, the struct of its arguments, and the finished builder.
    fn content(&self, builder: &TokenStream) -> Result<TokenStream> {
        let (arguments_type, arguments_struct) = self.arguments()?;
        let (function, handler) = (self.without_attributes(), self.handler(&arguments_type)?);
        Ok(quote!(#function #arguments_struct #builder.handler(#handler)))
    }

    /// The type of all arguments together, and its definition if it is made here.
    fn arguments(&self) -> Result<(TokenStream, Option<TokenStream>)> {
        let mut arguments =
            self.parameters().filter(|(_, role)| matches!(role, Role::Argument | Role::AllArguments));
        if let Some((all, _)) = self.parameters().find(|(_, role)| *role == Role::AllArguments) {
            return match arguments.find(|(other, _)| !std::ptr::eq(*other, all)) {
                None => Ok((all.ty.to_token_stream(), None)),
                Some((other, _)) => Err(Error::new_spanned(
                    other,
                    "another parameter is marked #[args] and takes all arguments: put this one into its struct",
                )),
            };
        }
        let fields = arguments.map(|(parameter, _)| {
            let (name, kind) = (argument_name(parameter)?, &parameter.ty);
            let attributes = parameter.attrs.iter().filter(|attribute| !is_lint_level(attribute));
            Ok(quote!(#(#attributes)* #name: #kind))
        });
        let fields = fields.collect::<Result<Vec<_>>>()?;
        if fields.is_empty() {
            return Ok((quote!(::linchpin::NoArgs), None));
        }
        Ok((quote!(__Arguments), Some(quote!(#[::linchpin::args] struct __Arguments { #(#fields,)* }))))
    }

    /// The author's function, without the attributes that are said elsewhere.
    fn without_attributes(&self) -> TokenStream {
        let mut signature = self.signature.clone();
        for input in &mut signature.inputs {
            if let FnArg::Typed(parameter) = input {
                let argument = Role::of(parameter) == Role::Argument;
                let said = |attribute: &Attribute| argument || is(attribute, &["doc", "args"]);
                parameter.attrs.retain(|attribute| is_lint_level(attribute) || !said(attribute));
            }
        }
        let (attributes, body) =
            (self.attributes.iter().filter(|attribute| !is_outer(attribute)), &self.body);
        quote!(#[allow(clippy::unused_async)] #(#attributes)* #signature #body)
    }

    /// A closure of the arguments and the context that calls the author's function. It stands where the return
    /// type is written, since that is what an error about it speaks of. The result of a function that takes state
    /// is wrapped, whatever it is: the state may be missing.
    fn handler(&self, arguments_type: &TokenStream) -> Result<TokenStream> {
        let Signature { ident, output, .. } = &self.signature;
        let place = if let ReturnType::Type(_, returned) = output { returned.span() } else { ident.span() };
        let span = Span::mixed_site().located_at(place);
        let (mut states, mut values) = (Vec::new(), Vec::new());
        for (parameter, role) in self.parameters() {
            values.push(match role {
                Role::Argument => {
                    let name = argument_name(parameter)?;
                    quote_spanned!(span=> arguments.#name)
                }
                Role::AllArguments => quote_spanned!(span=> arguments),
                Role::Context => quote_spanned!(span=> cx),
                Role::State => {
                    let (state, kind) = (format_ident!("state_{}", states.len(), span = span), &parameter.ty);
                    states.push(quote_spanned!(span=> let #state = <#kind>::from_context(&cx)?;));
                    state.into_token_stream()
                }
            });
        }
        let mut work = quote_spanned!(span=> #ident(#(#values),*));
        if !states.is_empty() {
            work = quote_spanned! {span=> async move {
                #(#states)*
                ::std::result::Result::<_, ::linchpin::Error>::Ok(#work.await)
            }};
        }
        let arguments = self.find_argument().map_or_else(|| quote!(_), |_| quote_spanned!(span=> arguments));
        let uses_context = self.parameters().any(|(_, role)| matches!(role, Role::Context | Role::State));
        let context = uses_context.then(|| quote_spanned!(span=> , cx: ::linchpin::Context));
        Ok(quote_spanned!(span=> |#arguments: #arguments_type #context| #work))
    }
}

/// Lint levels stay with a parameter; everything else said about an argument is said about its field.
fn is_lint_level(attribute: &Attribute) -> bool {
    is(attribute, &["allow", "expect", "warn", "deny"])
}

fn argument_name(parameter: &PatType) -> Result<&Ident> {
    match &*parameter.pat {
        Pat::Ident(pattern) if pattern.subpat.is_none() => Ok(&pattern.ident),
        pattern => Err(Error::new_spanned(
            pattern,
            "this parameter needs a name, which becomes the name of the argument; a struct of all arguments is \
             marked #[args]",
        )),
    }
}
