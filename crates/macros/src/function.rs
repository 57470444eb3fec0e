//! Annotated function: classification of its parameters, and the function that registers it.
//!
//! The function is replaced by a function of the same name without parameters, which `Server::add` calls. Unlike a unit
//! struct, a function does not prevent variables of the same name. The author's function is nested in it, so that
//! errors point at it.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{
    Attribute, Error, Expr, FnArg, Lit, Pat, PatType, Result, ReturnType, Signature, Token, Type, Visibility,
};

use crate::options::AttributeOptions;

/// Function with an attribute macro; its body is not parsed.
pub(crate) struct Function {
    attributes: Vec<Attribute>,
    visibility: Visibility,
    signature: Signature,
    body: TokenStream,
    /// Source position for errors about the handler: the return type, which most of them are about.
    error_span: Span,
}

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let (attributes, visibility) = (input.call(Attribute::parse_outer)?, input.parse()?);
        if !(input.peek(Token![async]) || input.peek(Token![fn]) || input.peek(Token![unsafe])) {
            return Err(input.error("this attribute can be applied only to an async fn"));
        }
        let signature: Signature = input.parse()?;
        let error_span = match &signature.output {
            ReturnType::Type(_, return_type) => return_type.span(),
            ReturnType::Default => signature.ident.span(),
        };
        let error_span = Span::mixed_site().located_at(error_span);
        Ok(Function { attributes, visibility, signature, body: input.parse()?, error_span })
    }
}

/// Returns the complete expansion of `#[attribute]`. `builder` returns everything before `.handler(…)`. An error is
/// placed inside the registering function, so that its name is defined nevertheless.
pub(crate) fn expand(
    attribute: &str,
    item: TokenStream,
    builder: impl FnOnce(&Function, &Parameters) -> Result<TokenStream>,
) -> TokenStream {
    let mut function: Function = match syn::parse2(item) {
        Ok(function) => function,
        Err(error) => return error.to_compile_error(),
    };
    let content = function.parameters(attribute).and_then(|parameters| {
        let builder = builder(&function, &parameters)?;
        function.content(parameters, &builder)
    });
    let content = content.unwrap_or_else(|error| error.to_compile_error());
    let (visibility, Signature { fn_token, ident, .. }) = (&function.visibility, &function.signature);
    let outer =
        function.attributes.iter().filter(|attr| is_outer_attribute(attr) || is_named(attr, &["allow"]));
    // rustc warns about an unused function only if its signature and braces have spans in the author's code.
    let return_type = quote_spanned!(fn_token.span=> () -> impl ::linchpin::__private::Register);
    let body = quote_spanned!(function.body.span()=> { #content });
    quote! {
        #(#outer)*
        #[must_use = "a definition does nothing until it is added to a server"]
        #visibility #fn_token #ident #return_type #body
    }
}

fn is_named(attribute: &Attribute, names: &[&str]) -> bool {
    attribute.path().segments.last().is_some_and(|last| names.iter().any(|name| last.ident == name))
}

fn is_outer_attribute(attribute: &Attribute) -> bool {
    is_named(attribute, &["doc", "cfg", "deprecated"])
}

impl Function {
    /// Generates the builder expression `::linchpin::Kind::new(…)` with a call for each option. `first` contains the
    /// arguments before the name.
    pub(crate) fn builder(
        &self,
        kind: &TokenStream,
        first: &TokenStream,
        options: AttributeOptions,
    ) -> TokenStream {
        let AttributeOptions { name, description, calls } = options;
        let name = name.unwrap_or_else(|| self.signature.ident.unraw().to_string().to_token_stream());
        let description = description.or_else(|| self.documentation().map(ToTokens::into_token_stream));
        let description = description.map(|text| quote!(.description(#text)));
        quote_spanned!(self.error_span=> ::linchpin::#kind::new(#first #name) #description #calls)
    }

    /// Returns the doc comment without the space after each `///`.
    fn documentation(&self) -> Option<String> {
        let texts = self.attributes.iter().filter(|attr| is_named(attr, &["doc"])).filter_map(|attr| {
            let Expr::Lit(value) = &attr.meta.require_name_value().ok()?.value else { return None };
            if let Lit::Str(text) = &value.lit { Some(text.value()) } else { None }
        });
        let text = texts.collect::<Vec<_>>().join("\n");
        let lines = text.split('\n').map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end());
        Some(lines.collect::<Vec<_>>().join("\n").trim().to_owned()).filter(|text| !text.is_empty())
    }

    /// Classifies the parameters and strips their attributes.
    fn parameters(&mut self, attribute: &str) -> Result<Parameters> {
        let Signature { ident, generics, asyncness, fn_token, inputs, .. } = &mut self.signature;
        if asyncness.is_none() {
            let text = format!("a {attribute} must be an async fn: write `async fn {ident}(…)`");
            return Err(Error::new(fn_token.span, text));
        }
        if !generics.params.is_empty() {
            let text = format!("a {attribute} must not have lifetimes or type parameters");
            return Err(Error::new_spanned(generics, text));
        }
        let mut parameters = Parameters::default();
        for input in inputs {
            match input {
                FnArg::Typed(parameter) => parameters.add(parameter, self.error_span)?,
                FnArg::Receiver(this) => {
                    let text =
                        "a handler cannot take self: set the value with `Server::state` and take `State<T>`";
                    return Err(Error::new_spanned(this, text));
                }
            }
        }
        Ok(parameters)
    }

    /// Generates the final items: the author's function, the struct of its arguments and the complete builder.
    fn content(&self, mut parameters: Parameters, builder: &TokenStream) -> Result<TokenStream> {
        let Function { signature, body, error_span, .. } = self;
        let attributes = self.attributes.iter().filter(|attribute| !is_outer_attribute(attribute));
        let required = std::mem::take(&mut parameters.required);
        let (arguments, handler) = parameters.handler(signature, *error_span)?;
        let built = quote_spanned!(*error_span=> #builder.handler(#handler));
        let mut built = quote_spanned!(*error_span=> ::linchpin::__private::Register::register(#built));
        if !required.is_empty() {
            built =
                quote_spanned!(*error_span=> ::linchpin::__private::with_state(#built, &[#(#required),*]));
        }
        Ok(quote! {
            #[allow(clippy::unused_async, clippy::too_many_arguments, clippy::fn_params_excessive_bools)]
            #(#attributes)*
            #signature #body
            #arguments
            #built
        })
    }
}

/// Parameters of an annotated function by kind, with the generated code that supplies their values.
#[derive(Default)]
pub(crate) struct Parameters {
    /// Fields of the generated arguments struct.
    fields: Vec<TokenStream>,
    /// Types of the parameters marked `#[args]`.
    structs: Vec<Type>,
    /// Generated statements that get shared state from the context.
    states: Vec<TokenStream>,
    /// Types of shared state that the function requires, for `Server::build`.
    required: Vec<TokenStream>,
    /// Generated expressions for the arguments of the author's function.
    values: Vec<TokenStream>,
    context: bool,
}

impl Parameters {
    /// Reports whether the function has parameters that a client can send.
    pub(crate) fn has_arguments(&self) -> bool {
        !self.fields.is_empty() || !self.structs.is_empty()
    }

    /// Adds a parameter of the function: as an argument, the context or shared state. Its attributes move to the field
    /// of the argument; lint levels stay.
    fn add(&mut self, parameter: &mut PatType, span: Span) -> Result<()> {
        let kind = &parameter.ty;
        let last = match &**kind {
            Type::Reference(_) => {
                let text =
                    "parameters must be owned: write `String`, not `&str`, and `Context`, not `&Context`";
                return Err(Error::new_spanned(kind, text));
            }
            Type::Path(kind) => kind.path.segments.last().map(|last| last.ident.to_string()),
            _ => None,
        };
        let attributes = std::mem::take(&mut parameter.attrs).into_iter();
        let (lints, argument_attributes): (Vec<_>, Vec<_>) =
            attributes.partition(|attribute| is_named(attribute, &["allow", "expect"]));
        parameter.attrs = lints;
        self.values.push(match last.as_deref() {
            _ if argument_attributes.iter().any(|attribute| is_named(attribute, &["args"])) => {
                self.structs.push(Type::clone(kind));
                quote_spanned!(span=> arguments)
            }
            Some("Context") => {
                self.context = true;
                quote_spanned!(span=> cx)
            }
            Some("State") => {
                let state = format_ident!("state_{}", self.states.len(), span = span);
                self.context = true;
                self.states.push(quote_spanned!(span=> let #state = <#kind>::from_context(&cx)?;));
                self.required.push(quote_spanned!(span=> <#kind>::required()));
                state.into_token_stream()
            }
            _ => {
                let Pat::Ident(pattern) = &*parameter.pat else {
                    let text = "an argument must have a name; mark a struct of all arguments with #[args]";
                    return Err(Error::new_spanned(&parameter.pat, text));
                };
                let name = &pattern.ident;
                self.fields.push(quote!(#(#argument_attributes)* #name: #kind));
                quote_spanned!(span=> arguments.#name)
            }
        });
        Ok(())
    }

    /// Generates the arguments struct, if any, and a closure that calls the author's function. The result of a function
    /// with state is wrapped in a `Result`, since the state may be missing.
    fn handler(self, signature: &Signature, span: Span) -> Result<(Option<TokenStream>, TokenStream)> {
        let Parameters { fields, structs, states, values, context, .. } = self;
        let (pattern, kind, generated) = match (&structs[..], &fields[..]) {
            ([], []) => (quote!(_), quote!(::linchpin::NoArgs), None),
            ([], _) => {
                let generated = quote!(#[::linchpin::args] struct __Arguments { #(#fields,)* });
                (quote_spanned!(span=> arguments), quote!(__Arguments), Some(generated))
            }
            ([all], []) => (quote_spanned!(span=> arguments), all.to_token_stream(), None),
            _ => {
                let text = "a parameter marked #[args] takes all arguments: move the others into its struct";
                return Err(Error::new_spanned(&signature.inputs, text));
            }
        };
        let name = &signature.ident;
        let mut work = quote_spanned!(span=> ::linchpin::__private::require_send(#name(#(#values),*)));
        if !states.is_empty() {
            let result =
                quote_spanned!(span=> ::std::result::Result::<_, ::linchpin::Error>::Ok(#work.await));
            work = quote_spanned!(span=> async move { #(#states)* #result });
        }
        let context = context.then(|| quote_spanned!(span=> , cx: ::linchpin::Context));
        Ok((generated, quote_spanned!(span=> |#pattern: #kind #context| #work)))
    }
}
