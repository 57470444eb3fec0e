//! Dependency budget: the number of crates that the SDK adds to a program.

use anyhow::{Context, ensure};

use crate::command;

/// Package, features and the maximum number of crates.
const LIMITS: [(&str, &[&str], usize); 4] = [
    ("linchpin", &[], 64),
    ("linchpin", &["--features", "http"], 110),
    ("smallest-server", &[], 42),
    ("smallest-client", &[], 42),
];

pub(crate) fn run() -> anyhow::Result<()> {
    for (package, features, most) in LIMITS {
        let tree = ["tree", "--package", package, "--edges", "normal,build", "--prefix", "none"];
        let listed = command::output("cargo", &[&tree[..], features].concat())?;
        let count = count(&listed);
        println!("{package} {}: {count} crates, at most {most}", features.join(" "));
        ensure!(count > 1, "cargo tree lists nothing for {package}");
        ensure!(
            count <= most,
            "{package} has {count} crates, more than {most}: remove a dependency or raise the limit"
        );
    }
    Ok(())
}

/// Counts the distinct crates in the output of `cargo tree`.
fn count(listed: &str) -> usize {
    let name = |line: &str| line.split(" (").next().map(str::to_owned).context("a line has a name").ok();
    let mut names: Vec<_> = listed.lines().filter(|line| !line.is_empty()).filter_map(name).collect();
    names.sort();
    names.dedup();
    names.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_counts_once() {
        assert_eq!(count("a v1.0.0 (/x)\nb v2.0.0\n\na v1.0.0 (*)\na v2.0.0\n"), 3);
    }
}
