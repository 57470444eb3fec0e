//! Rule: permitted dependencies between the crates. The layers are, from the bottom: jsonrpc, protocol, SDK, hub.

use super::manifest::Manifest;
use super::{Finding, SourceFile, rust};

/// Workspace crates that each crate may use. A package that is not listed may use all but the hub.
const MAY_USE: [(&str, &[&str]); 9] = [
    ("linchpin-jsonrpc", &[]),
    ("linchpin-protocol", &["linchpin-jsonrpc"]),
    ("linchpin-macros", &[]),
    ("linchpin-schema", &[]),
    ("linchpin", &["linchpin-jsonrpc", "linchpin-protocol", "linchpin-macros", "linchpin-schema"]),
    ("linchpin-hub-core", &["linchpin"]),
    ("linchpin-hub-store", &["linchpin-hub-core"]),
    ("linchpin-hub-gateway", &["linchpin", "linchpin-hub-core"]),
    ("linchpin-hub-http", &["linchpin", "linchpin-hub-core", "linchpin-hub-gateway"]),
];
const HUB: &str = "linchpin-hub";
/// Packages that may use axum: the SDK, which offers an integration, the hub, and an example.
const MAY_USE_AXUM: [&str; 3] = ["linchpin", "linchpin-hub-http", "axum-router"];
const TOKIO_IN_JSONRPC: [&str; 2] = ["sync", "time"];

pub(super) fn crates_depend_downwards(files: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, manifest) in manifests(files) {
        for dependency in manifest.dependencies.iter().filter(|dependency| dependency.shipped) {
            let wrong = is_upwards(&manifest.name, &dependency.name)
                || match (&*manifest.name, &*dependency.name) {
                    ("linchpin-protocol", "tokio") | ("linchpin-hub-core", "axum" | "hyper" | "http") => true,
                    (package, "axum") => !MAY_USE_AXUM.contains(&package),
                    (package, "rusqlite" | "tokio-postgres") => package != "linchpin-hub-store",
                    ("linchpin-jsonrpc", "tokio") => {
                        dependency.features().any(|feature| !TOKIO_IN_JSONRPC.contains(&feature))
                    }
                    _ => false,
                };
            if wrong {
                let advice = format!(
                    "{} may not use {}: move the code that needs it to the crate above",
                    manifest.name, dependency.text
                );
                findings.push(file.finding(dependency.line, advice));
            }
        }
    }
    findings
}

fn is_upwards(package: &str, used: &str) -> bool {
    if !(used == "linchpin" || used.starts_with("linchpin-")) {
        return false;
    }
    match MAY_USE.into_iter().find(|(name, _)| *name == package) {
        Some((_, allowed)) => !allowed.contains(&used),
        None => used == HUB && package != HUB,
    }
}

pub(super) fn versions_come_from_the_workspace(files: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, manifest) in manifests(files) {
        for dependency in manifest.dependencies.iter().filter(|dependency| !dependency.is_from_workspace()) {
            let name = &dependency.name;
            let advice = format!(
                "put {name} into the table in the root Cargo.toml and write `{name}.workspace = true`"
            );
            findings.push(file.finding(dependency.line, advice));
        }
    }
    findings
}

pub(super) fn jsonrpc_knows_nothing_of_the_protocol(files: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in rust(files).filter(|file| file.path.starts_with("crates/jsonrpc/src/")) {
        // `memcpy` contains the letters by accident.
        let knows = |line: &str| line.to_lowercase().replace("memcpy", "").contains("mcp");
        let found = file.lines().filter(|(_, line)| knows(line));
        findings.extend(found.map(|(number, _)| file.finding(number, "this crate must not know about MCP")));
    }
    findings
}

/// Returns whether a file belongs to a package outside the workspace.
fn is_outside_workspace(path: &str) -> bool {
    ["bench/peers/", "interop/rmcp/"].iter().any(|folder| path.starts_with(folder))
}

/// Returns the manifests of the members, without the root and the packages outside the workspace.
fn manifests(files: &[SourceFile]) -> impl Iterator<Item = (&SourceFile, Manifest)> {
    files
        .iter()
        .filter(|file| file.path.ends_with("/Cargo.toml") && !is_outside_workspace(&file.path))
        .map(|file| (file, Manifest::read(file)))
}

#[cfg(test)]
mod tests {
    use super::super::tests::finding_locations;
    use super::*;

    fn upward(name: &str, dependency: &str) -> bool {
        let manifest = format!("[package]\nname = \"{name}\"\n[dependencies]\n{dependency}\n");
        let found = finding_locations(crates_depend_downwards, &[("crates/a/Cargo.toml", &manifest)]);
        assert!(found.is_empty() || found == ["crates/a/Cargo.toml:4"], "{found:?}");
        !found.is_empty()
    }

    #[test]
    fn dependencies_that_point_upwards_are_found() {
        for (name, wrong) in [
            ("linchpin-jsonrpc", "linchpin-protocol.workspace = true"),
            ("linchpin-jsonrpc", "tokio = { workspace = true, features = [\"sync\", \"rt\"] }"),
            ("linchpin-protocol", "linchpin-macros.workspace = true"),
            ("linchpin-protocol", "tokio.workspace = true"),
            ("linchpin-macros", "linchpin-jsonrpc.workspace = true"),
            ("linchpin", "linchpin-hub.workspace = true"),
            ("bench", "linchpin-hub.workspace = true"),
            ("linchpin-hub-http", "linchpin-hub-store.workspace = true"),
            ("linchpin-hub", "axum.workspace = true"),
            ("linchpin-hub-core", "tokio-postgres.workspace = true"),
        ] {
            assert!(upward(name, wrong), "{name}: {wrong}");
        }
        for (name, right) in [
            ("linchpin-jsonrpc", "tokio = { workspace = true, features = [\"sync\", \"time\"] }"),
            ("linchpin-protocol", "linchpin-jsonrpc.workspace = true"),
            ("linchpin", "linchpin-macros.workspace = true"),
            ("linchpin-hub", "linchpin = { workspace = true, features = [\"validate\"] }"),
            ("linchpin-hub-http", "axum.workspace = true"),
            ("linchpin-hub-http", "[dev-dependencies]\nlinchpin-hub-store.workspace = true"),
            ("linchpin-protocol", "[dev-dependencies]\ntokio.workspace = true"),
        ] {
            assert!(!upward(name, right), "{name}: {right}");
        }
    }

    #[test]
    fn a_version_in_a_member_is_found() {
        let manifest = "[package]\nname = \"a\"\n[dependencies]\nb.workspace = true\nc = \"1\"\n\
                        d = { version = \"2\" }\n[dev-dependencies]\ne = { path = \"../e\" }\n";
        let files = [
            ("crates/a/Cargo.toml", manifest),
            ("bench/peers/p/Cargo.toml", manifest),
            ("interop/rmcp/Cargo.toml", manifest),
            ("Cargo.toml", manifest),
        ];
        let expected = ["crates/a/Cargo.toml:5", "crates/a/Cargo.toml:6", "crates/a/Cargo.toml:8"];
        assert_eq!(finding_locations(versions_come_from_the_workspace, &files), expected);
    }

    #[test]
    fn the_name_of_the_protocol_in_jsonrpc_is_found() {
        let text = "//! x\n// for McpServer\n// as fast as memcpy\n";
        let files = [("crates/jsonrpc/src/a.rs", text), ("crates/sdk/src/a.rs", text)];
        assert_eq!(
            finding_locations(jsonrpc_knows_nothing_of_the_protocol, &files),
            ["crates/jsonrpc/src/a.rs:2"]
        );
    }
}
