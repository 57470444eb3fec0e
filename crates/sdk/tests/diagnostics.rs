//! Compiler errors of invalid handlers and attributes.
//!
//! `TRYBUILD=overwrite cargo test -p linchpin --test diagnostics` rewrites the expected texts.

#[test]
fn mistakes_are_explained() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/diagnostics/smallest_server.rs");
    for case in [
        "arguments",
        "functions",
        "handlers",
        "never_added",
        "not_send",
        "options",
        "programs",
        "returns",
        "structs",
    ] {
        cases.compile_fail(format!("tests/diagnostics/{case}.rs"));
    }
}
