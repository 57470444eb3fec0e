//! Handler trait, implemented for async functions without parameters, with arguments, or with arguments and a context.

use super::args::NoArgs;
use crate::server::Context;
use crate::server::request::scope::RequestScope;

/// Async function or closure that handles a request for a tool, prompt, resource or custom method. `Form` is inferred
/// from its parameters: `|| async { … }`, `|args| async { … }` or `|args, cx: Context| async { … }`.
#[diagnostic::on_unimplemented(
    message = "this is not a handler",
    label = "a handler is an async closure or function of `()`, of `(args)` or of `(args, cx: Context)`",
    note = "an async closure is written `|args: MyArgs| async move {{ … }}`; its future must be Send"
)]
pub trait Handler<Form>: Send + Sync + 'static {
    /// Type of the handler's arguments.
    type Args: Send;
    /// Type of the handler's return value.
    type Output;
    /// Future that the handler returns.
    type Future: Future<Output = Self::Output> + Send + 'static;

    /// Calls the handler with the arguments of a request.
    #[doc(hidden)]
    fn call(&self, args: Self::Args, scope: &RequestScope<'_>) -> Self::Future;
}

impl<F, Fut> Handler<()> for F
where
    F: Fn() -> Fut + Send + Sync + 'static,
    Fut: Future + Send + 'static,
{
    type Args = NoArgs;
    type Output = Fut::Output;
    type Future = Fut;

    fn call(&self, _: NoArgs, _: &RequestScope<'_>) -> Fut {
        self()
    }
}

impl<F, A, Fut> Handler<(A,)> for F
where
    F: Fn(A) -> Fut + Send + Sync + 'static,
    A: Send,
    Fut: Future + Send + 'static,
{
    type Args = A;
    type Output = Fut::Output;
    type Future = Fut;

    fn call(&self, args: A, _: &RequestScope<'_>) -> Fut {
        self(args)
    }
}

impl<F, A, Fut> Handler<(A, Context)> for F
where
    F: Fn(A, Context) -> Fut + Send + Sync + 'static,
    A: Send,
    Fut: Future + Send + 'static,
{
    type Args = A;
    type Output = Fut::Output;
    type Future = Fut;

    fn call(&self, args: A, scope: &RequestScope<'_>) -> Fut {
        self(args, scope.context())
    }
}
