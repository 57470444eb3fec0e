//! Installation of `cargo-llvm-cov`, and of `llvm-profdata` and `llvm-cov` in the version of LLVM that rustc uses: an
//! older one cannot read the counters.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::command::{cargo, install_package, output, root, run};

const VERSION: &str = "0.9.1";
/// Installation directory, separate from the programs of the user.
const DIRECTORY: &str = "target/tools";
const PROGRAM: &str = "target/tools/bin/cargo-llvm-cov";

/// Installed programs.
pub(super) struct Tools {
    /// Directory of `llvm-profdata` and `llvm-cov`.
    llvm: PathBuf,
}

impl Tools {
    /// Installs the missing programs.
    pub(super) fn install() -> anyhow::Result<Self> {
        let llvm = install_llvm()?;
        let installed = output(PROGRAM, &["llvm-cov", "--version"]);
        if !installed.is_ok_and(|text| text.trim().ends_with(&format!(" {VERSION}"))) {
            cargo(&["install", "--locked", "--root", DIRECTORY, "--version", VERSION, "cargo-llvm-cov"])
                .context("cargo-llvm-cov could not be installed from crates.io: see the error above")?;
        }
        Ok(Self { llvm })
    }

    /// Runs `cargo llvm-cov`.
    pub(super) fn run(&self, arguments: &[&str]) -> anyhow::Result<()> {
        let mut command = Command::new(root().join(PROGRAM));
        command.env("LLVM_PROFDATA", self.llvm.join("llvm-profdata"));
        command.env("LLVM_COV", self.llvm.join("llvm-cov"));
        run(command.arg("llvm-cov").args(arguments))
    }
}

/// Returns the directory of the LLVM tools: the component of the toolchain, or Debian's package of the same version.
fn install_llvm() -> anyhow::Result<PathBuf> {
    let verbose = output("rustc", &["--version", "--verbose"])?;
    let package = package(&verbose).context("`rustc --version --verbose` does not name its LLVM version")?;
    let libraries = output("rustc", &["--print", "target-libdir"])?;
    let component = Path::new(libraries.trim()).with_file_name("bin");
    let debian = Path::new("/usr/lib").join(&package).join("bin");
    if let Some(found) = [&component, &debian].into_iter().find(|folder| is_complete(folder)) {
        return Ok(found.clone());
    }
    println!(
        "installing Debian's {package}: the LLVM tools are neither in {} nor in {}",
        component.display(),
        debian.display()
    );
    install_package(&package).with_context(|| {
        format!(
            "coverage needs the LLVM tools in the version of rustc: install them (`rustup component add llvm-tools`, \
             or apt-get install --no-install-recommends {package}, as root) and try again"
        )
    })?;
    Ok(debian)
}

/// Returns the name of Debian's package with the LLVM tools that read the counters of this rustc.
fn package(verbose: &str) -> Option<String> {
    let version = verbose.lines().find_map(|line| line.strip_prefix("LLVM version: "))?;
    Some(format!("llvm-{}", version.split('.').next()?))
}

fn is_complete(folder: &Path) -> bool {
    ["llvm-profdata", "llvm-cov"].iter().all(|program| folder.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_package_has_the_llvm_version_of_rustc() {
        let verbose = "rustc 1.95.0 (59807616e 2026-04-14)\nrelease: 1.95.0\nLLVM version: 22.1.2\n";
        assert_eq!(package(verbose).as_deref(), Some("llvm-22"));
        assert_eq!(package("rustc 1.95.0"), None);
    }

    #[test]
    fn both_programs_are_needed() {
        let folder = root().join(format!("target/xtask-coverage-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("llvm-profdata"), "").unwrap();
        let one = is_complete(&folder);
        std::fs::write(folder.join("llvm-cov"), "").unwrap();
        let both = is_complete(&folder);
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(!one && both);
    }
}
