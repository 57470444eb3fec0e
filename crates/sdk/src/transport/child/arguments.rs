//! Types of the program arguments that `Client::stdio` accepts.

use std::ffi::{OsStr, OsString};

/// Type of the program arguments of a stdio server: `[]`, `["-y", "some-server"]`, a slice or a `Vec`.
///
/// Arrays by value contain only `&str`, so that the type of `[]` can be inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the arguments of a program",
    note = "pass an array of `&str`, a slice such as `&[path]`, or a `Vec`; for an iterator, write \
            `Client::command(Command::new(program).args(iterator))`"
)]
pub trait Arguments {
    /// Returns the command-line arguments in order.
    #[doc(hidden)]
    fn into_arguments(self) -> Vec<OsString>;
}

fn owned<S: AsRef<OsStr>>(arguments: &[S]) -> Vec<OsString> {
    arguments.iter().map(|argument| argument.as_ref().to_owned()).collect()
}

impl<const N: usize> Arguments for [&str; N] {
    fn into_arguments(self) -> Vec<OsString> {
        owned(&self)
    }
}

impl<S: AsRef<OsStr>, const N: usize> Arguments for &[S; N] {
    fn into_arguments(self) -> Vec<OsString> {
        owned(self)
    }
}

impl<S: AsRef<OsStr>> Arguments for &[S] {
    fn into_arguments(self) -> Vec<OsString> {
        owned(self)
    }
}

impl<S: AsRef<OsStr>> Arguments for Vec<S> {
    fn into_arguments(self) -> Vec<OsString> {
        owned(&self)
    }
}

impl<S: AsRef<OsStr>> Arguments for &Vec<S> {
    fn into_arguments(self) -> Vec<OsString> {
        owned(self)
    }
}
