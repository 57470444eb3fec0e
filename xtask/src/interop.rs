//! Installation of the official SDKs, on which the peers in `interop/` are built, so that tests can start them.
//!
//! Each installation uses files with exact versions: npm installs `interop/node_modules`, and the MCP Inspector with the
//! Node.js that it needs in `interop/inspector/node_modules`; pip installs the Python environments
//! `target/interop/python` and `python-1`, one for each generation of that SDK. Each stores a copy of these files and
//! is skipped while the copy is current. cargo builds the peers on the Rust SDK in their own workspace. The browser is
//! a system package, installed only if it is missing. This module knows nothing about the behaviour of the peers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::command::{cargo, install_package, output, root, run};

/// Minimum major version of Node.js for the TypeScript SDK.
const NODE: u32 = 20;
/// Browser for sign-in tests, at the path of Debian's package.
const CHROMIUM: &str = "/usr/bin/chromium";

/// Directory with a `package.json`.
#[derive(Clone, Copy)]
struct NodeProject {
    name: &'static str,
    folder: &'static str,
    /// File in `node_modules` whose absence means that the installation is incomplete.
    witness: &'static str,
}

const SDKS: NodeProject = NodeProject {
    name: "the TypeScript SDKs, in interop/node_modules",
    folder: "interop",
    witness: ".bin/mcp-server-everything",
};
const INSPECTOR: NodeProject = NodeProject {
    name: "the MCP Inspector, in interop/inspector/node_modules",
    folder: "interop/inspector",
    witness: ".bin/mcp-inspector",
};

/// Generation of the Python SDK.
#[derive(Clone, Copy)]
struct Generation {
    name: &'static str,
    /// File with the exact versions.
    requirements: &'static str,
    folder: &'static str,
}

const PYTHONS: [Generation; 2] = [
    Generation {
        name: "the Python SDK, in target/interop/python",
        requirements: "interop/requirements.txt",
        folder: "target/interop/python",
    },
    Generation {
        name: "the Python SDK 1.x, in target/interop/python-1",
        requirements: "interop/requirements-1.txt",
        folder: "target/interop/python-1",
    },
];

/// Installs all peers. Errors name the missing program.
pub(crate) fn install() -> anyhow::Result<()> {
    let found = output("node", &["--version"]).context(
        "the peers on the TypeScript SDK need node: install it (apt-get install nodejs npm) and try again",
    )?;
    check_node(&found)?;
    output("python3", &["--version"]).context(
        "the peers on the Python SDK need python3: \
         install it (apt-get install python3 python3-venv) and try again",
    )?;
    install_chromium()?;
    for project in [SDKS, INSPECTOR] {
        project.installation(root()).ensure(|| project.install())?;
    }
    for generation in PYTHONS {
        let python = python(root(), generation);
        python.ensure(|| install_python(&python.folder, generation.requirements))?;
    }
    build_rmcp()
}

fn check_node(found: &str) -> anyhow::Result<()> {
    let found = found.trim();
    let major = found.trim_start_matches('v').split('.').next().and_then(|major| major.parse::<u32>().ok());
    if major.is_none_or(|major| major < NODE) {
        bail!("the TypeScript SDK needs node {NODE} or newer, found {found}: install a newer one");
    }
    Ok(())
}

/// Installs the browser as a system package; npm packages must not download one.
fn install_chromium() -> anyhow::Result<()> {
    if Path::new(CHROMIUM).exists() {
        return Ok(());
    }
    let advice = "tests sign in with Chromium, and /usr/bin/chromium is missing: install it \
                  (apt-get install chromium, as root) and try again";
    println!("installing Debian's chromium: {CHROMIUM} is missing");
    install_package("chromium").context(advice)
}

impl NodeProject {
    fn installation(self, root: &Path) -> Installation {
        let folder = root.join(self.folder);
        Installation {
            name: self.name,
            sources: vec![folder.join("package.json"), folder.join("package-lock.json")],
            folder: folder.join("node_modules"),
            witness: self.witness,
        }
    }

    fn install(self) -> anyhow::Result<()> {
        output("npm", &["--version"])
            .context("the TypeScript peers need npm: install it (apt-get install npm) and try again")?;
        // No package needs its install script, so none is run.
        let quiet = ["--ignore-scripts", "--no-audit", "--no-fund"];
        let folder = self.folder;
        run(Command::new("npm").args(["ci", "--prefix", folder]).args(quiet)).with_context(|| {
            format!("npm could not install {folder}/package-lock.json: see its error above; it needs the npm registry")
        })
    }
}

fn python(root: &Path, generation: Generation) -> Installation {
    Installation {
        name: generation.name,
        sources: vec![root.join(generation.requirements)],
        folder: root.join(generation.folder),
        witness: "bin/python",
    }
}

fn build_rmcp() -> anyhow::Result<()> {
    let manifest = "interop/rmcp/Cargo.toml";
    cargo(&["build", "--locked", "--manifest-path", manifest, "--target-dir", "target/interop/rmcp"])
        .context("the peers on the Rust SDK could not be built: see the error above")
}

fn install_python(folder: &Path, requirements: &str) -> anyhow::Result<()> {
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(folder)).context(
        "python3 could not create a virtual environment: \
         install what it needs (apt-get install python3-venv) and try again",
    )?;
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    run(Command::new(folder.join("bin/python")).args(pip).args(["--requirement", requirements]))
        .with_context(|| format!("pip could not install {requirements}: see its error above; it needs PyPI"))
}

/// Directory that a package manager fills from lock files.
pub(crate) struct Installation {
    pub(crate) name: &'static str,
    /// Files with the exact versions.
    pub(crate) sources: Vec<PathBuf>,
    /// Directory to fill. The package manager empties it first.
    pub(crate) folder: PathBuf,
    /// File in the directory whose absence means that the installation is incomplete.
    pub(crate) witness: &'static str,
}

impl Installation {
    /// Installs unless the directory was installed from the same sources.
    pub(crate) fn ensure(&self, install: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
        let wanted = self.read_sources()?;
        let stamp = self.folder.join(".installed-from");
        let installed = fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted);
        if installed && self.folder.join(self.witness).exists() {
            return Ok(());
        }
        println!("installing {}: missing or outdated", self.name);
        install()?;
        // Written last, so that an interrupted installation is repeated.
        fs::write(&stamp, wanted).with_context(|| format!("cannot write {}", stamp.display()))
    }

    fn read_sources(&self) -> anyhow::Result<String> {
        let read = |path: &PathBuf| {
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
        };
        self.sources.iter().map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installation_is_done_once_for_each_content_of_its_sources() {
        let folder = root().join(format!("target/xtask-interop-{}", std::process::id()));
        let (source, inside) = (folder.join("lock"), folder.join("inside"));
        fs::create_dir_all(&inside).unwrap();
        fs::write(&source, "one").unwrap();
        let installation = Installation {
            name: "a test",
            sources: vec![source.clone()],
            folder: inside.clone(),
            witness: "program",
        };
        let done = || {
            let mut done = false;
            let fill = || {
                done = true;
                Ok(fs::write(inside.join("program"), "")?)
            };
            installation.ensure(fill).unwrap();
            done
        };
        let (first, again) = (done(), done());
        fs::write(&source, "two").unwrap();
        let changed = done();
        fs::remove_file(inside.join("program")).unwrap();
        let damaged = done();
        fs::write(&source, "three").unwrap();
        let failed = installation.ensure(|| bail!("no network"));
        let after_failure = done();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!((first, again, changed, damaged, after_failure), (true, false, true, true, true));
        assert_eq!(failed.unwrap_err().to_string(), "no network");
    }

    #[test]
    fn an_old_node_is_refused() {
        assert!(check_node("v20.0.0\n").is_ok() && check_node("v104.1.0").is_ok());
        let old = check_node("v18.19.0\n").unwrap_err().to_string();
        assert!(old.contains("node 20 or newer") && old.contains("found v18.19.0:"), "{old}");
        assert!(check_node("nonsense").is_err());
    }

    #[test]
    fn every_version_is_exact_and_no_registry_is_named() {
        let files = ["package.json", "package-lock.json", "requirements.txt", "requirements-1.txt"];
        let [package, lock, new, old] =
            files.map(|name| fs::read_to_string(root().join("interop").join(name)).unwrap());
        let requirements = new + &old;
        let package: serde_json::Value = serde_json::from_str(&package).unwrap();
        for (name, version) in package["dependencies"].as_object().unwrap() {
            let version = version.as_str().unwrap();
            // An aliased package has the version `npm:<package>@<version>`.
            let version = version.rsplit_once('@').map_or(version, |(_, version)| version);
            assert!(version.starts_with(|first: char| first.is_ascii_digit()), "{name}");
        }
        assert!(
            !lock.contains("\"resolved\""),
            "npm install --omit-lockfile-registry-resolved leaves them out"
        );
        for line in requirements.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            assert!(line.contains("=="), "{line}");
        }
    }
}
