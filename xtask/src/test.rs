//! `cargo xtask test`: checks for the required programs, then runs all tests.

use std::path::Path;

use anyhow::{Context, bail};

use crate::command::{cargo, require_program, root};
use crate::{interop, postgres};

pub(crate) fn run() -> anyhow::Result<()> {
    require_program("python3", "by the tests that drive a server through a terminal (pty)")?;
    if !root().join("../shared/spec").is_dir() {
        println!(
            "note: ../shared/spec does not exist next to the checkout, so the checks against the published \
             schemas are skipped; all other tests run"
        );
    }
    interop::install()?;
    postgres::install()?;
    let examples = examples(&root().join("examples"))?;
    cargo(&["test", "--workspace", "--all-targets"])?;
    cargo(&["test", "--workspace", "--doc"])?;
    cargo(&["test", "--package", "linchpin", "--no-default-features", "--lib", "--test", "no_validate"])?;
    println!("\nall tests passed, including doc tests and {}", covered(&examples));
    Ok(())
}

/// Returns the names of the examples. Fails if one has no tests, which `cargo test --workspace` would run.
fn examples(folder: &Path) -> anyhow::Result<Vec<String>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry?;
        if !entry.path().join("Cargo.toml").is_file() {
            continue;
        }
        let name = entry.file_name().to_string_lossy().into_owned();
        if !has_rust_file(&entry.path().join("tests")) {
            bail!(
                "examples/{name} has no tests: add examples/{name}/tests/{name}.rs that runs it and asserts"
            );
        }
        names.push(name);
    }
    names.sort();
    Ok(names)
}

fn has_rust_file(folder: &Path) -> bool {
    let Ok(mut entries) = std::fs::read_dir(folder) else { return false };
    entries.any(|entry| entry.is_ok_and(|entry| entry.path().extension().is_some_and(|kind| kind == "rs")))
}

fn covered(examples: &[String]) -> String {
    match examples {
        [] => "no example".to_owned(),
        [one] => format!("the example {one}"),
        many => format!("the examples {}", many.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn an_example_without_tests_is_refused_and_one_with_tests_is_listed() {
        let folder = root().join(format!("target/xtask-examples-{}", std::process::id()));
        fs::create_dir_all(folder.join("story/tests")).unwrap();
        fs::create_dir_all(folder.join("not-a-package")).unwrap();
        fs::write(folder.join("story/Cargo.toml"), "").unwrap();
        let without = examples(&folder).unwrap_err().to_string();
        fs::write(folder.join("story/tests/story.rs"), "").unwrap();
        let with = examples(&folder).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert!(without.starts_with("examples/story has no tests"), "{without}");
        assert_eq!(with, ["story"]);
        assert_eq!(covered(&with), "the example story");
    }
}
