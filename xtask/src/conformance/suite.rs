//! The official conformance suite: installation into `target/conformance` from `conformance/package-lock.json`, list of
//! scenarios, and command line.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::command::{output, root, run};
use crate::interop::Installation;

/// Minimum major version of Node.js for the suite.
const NODE: u32 = 22;
/// Marker of the suite for scenarios without a revision.
pub(super) const EXTENSION: &str = "extension";

/// Side under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    Server,
    /// Our server behind the gateway of the hub.
    Gateway,
    Client,
}

impl Side {
    pub(super) fn word(self) -> &'static str {
        match self {
            Side::Server => "server",
            Side::Gateway => "gateway",
            Side::Client => "client",
        }
    }
}

/// Scenario and its revisions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Scenario {
    pub(super) name: String,
    pub(super) side: Side,
    pub(super) revisions: Vec<String>,
}

pub(super) struct Suite {
    folder: PathBuf,
    node: PathBuf,
}

impl Suite {
    /// Installs the suite. Errors name the missing program.
    pub(super) fn install() -> anyhow::Result<Self> {
        let (sources, folder) = (root().join("conformance"), root().join("target/conformance"));
        let files = ["package.json", "package-lock.json"];
        let installation = Installation {
            name: "the conformance suite, in target/conformance",
            sources: files.iter().map(|file| sources.join(file)).collect(),
            folder: folder.join("node_modules"),
            witness: ".bin/conformance",
        };
        installation.ensure(|| {
            output("npm", &["--version"])
                .context("the conformance suite needs npm: install it (apt-get install npm) and try again")?;
            fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
            for file in files {
                fs::copy(sources.join(file), folder.join(file)).with_context(|| format!("cannot copy {file}"))?;
            }
            // No package needs its install script, so none is run.
            let quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
            run(Command::new("npm").args(["ci", "--prefix"]).arg(&folder).args(quiet)).context(
                "npm could not install conformance/package-lock.json: see its error above; it needs the npm registry",
            )
        })?;
        let node = find_node(&folder)?;
        Ok(Suite { folder, node })
    }

    /// Returns the directory for the output of the suite and our programs.
    pub(super) fn results(&self) -> PathBuf {
        self.folder.join("results")
    }

    fn script(&self) -> PathBuf {
        self.folder.join("node_modules/@modelcontextprotocol/conformance/dist/index.js")
    }

    /// Returns the command line of the suite, for messages.
    pub(super) fn command_line(&self) -> String {
        format!("{} {}", self.node.display(), self.script().display())
    }

    /// Returns the command of the suite, without arguments.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.node);
        command.arg(self.script()).env("NO_COLOR", "1").current_dir(root());
        command
    }

    /// Lists all scenarios for servers and clients.
    pub(super) fn list(&self) -> anyhow::Result<Vec<Scenario>> {
        let mut scenarios = Vec::new();
        for side in [Side::Server, Side::Client] {
            let listed = self.command().args(["list", &format!("--{}", side.word())]).output();
            let listed = listed.with_context(|| format!("cannot start {}", self.command_line()))?;
            let found = parse_list(&String::from_utf8_lossy(&listed.stdout), side)?;
            if found.is_empty() {
                bail!("the suite lists no scenario for a {}", side.word());
            }
            scenarios.extend(found);
        }
        Ok(scenarios)
    }
}

/// Returns the Node.js installed with the suite, or else that of the machine.
fn find_node(folder: &Path) -> anyhow::Result<PathBuf> {
    let own = folder.join("node_modules/.bin/node");
    if own.exists() {
        return Ok(own);
    }
    let found = output("node", &["--version"]).with_context(|| {
        format!("the conformance suite needs node: install version {NODE} or newer and try again")
    })?;
    let major =
        found.trim().trim_start_matches('v').split('.').next().and_then(|major| major.parse::<u32>().ok());
    if major.is_none_or(|major| major < NODE) {
        bail!(
            "the conformance suite needs node {NODE} or newer, found {}: install a newer one",
            found.trim()
        );
    }
    Ok("node".into())
}

/// Parses lines such as `  - tools-list [first,second]`.
fn parse_list(text: &str, side: Side) -> anyhow::Result<Vec<Scenario>> {
    let lines = text.lines().filter_map(|line| line.trim().strip_prefix("- "));
    let scenario = |line: &str| {
        let (name, rest) = line.split_once(" [")?;
        let revisions = rest.strip_suffix(']')?.split(',').map(str::to_owned).collect();
        Some(Scenario { name: name.to_owned(), side, revisions })
    };
    lines
        .map(|line| scenario(line).with_context(|| format!("unknown format of a listed scenario: {line}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read() {
        let text = "Server scenarios:\n  - ping [one,two]\n  - tasks [extension]\n\n";
        let found = parse_list(text, Side::Server).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(
            (&*found[0].name, &*found[0].revisions),
            ("ping", &["one".to_owned(), "two".to_owned()][..])
        );
        assert_eq!(found[1].revisions, [EXTENSION]);
        assert!(parse_list("  - ping\n", Side::Server).is_err());
    }

    #[test]
    fn every_version_is_exact_and_no_registry_is_named() {
        let [package, lock] = ["package.json", "package-lock.json"]
            .map(|name| fs::read_to_string(root().join("conformance").join(name)).unwrap());
        let package: serde_json::Value = serde_json::from_str(&package).unwrap();
        for kind in ["dependencies", "optionalDependencies"] {
            for (name, version) in package[kind].as_object().unwrap() {
                assert!(
                    version.as_str().unwrap().starts_with(|first: char| first.is_ascii_digit()),
                    "{name}"
                );
            }
        }
        assert!(
            !lock.contains("\"resolved\""),
            "npm install --omit-lockfile-registry-resolved leaves them out"
        );
    }
}
