//! Running other programs: from the workspace root, printing each command line first.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

/// Returns the workspace root.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the workspace")
}

/// Runs cargo with the given arguments.
pub(crate) fn cargo(arguments: &[&str]) -> anyhow::Result<()> {
    run(Command::new("cargo").args(arguments))
}

/// Prints the command line and runs it in the workspace root. Fails if the program fails.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let shown = show(command);
    println!("$ {shown}");
    let status = command.current_dir(root()).status().with_context(|| format!("cannot start: {shown}"))?;
    if !status.success() {
        bail!("`{shown}` failed with {status}");
    }
    Ok(())
}

/// Runs the program in the workspace root and returns its standard output.
pub(crate) fn output(program: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let shown = format!("{program} {}", arguments.join(" "));
    let output = Command::new(program)
        .args(arguments)
        .current_dir(root())
        .output()
        .with_context(|| format!("cannot start: {shown}"))?;
    if !output.status.success() {
        bail!("`{shown}` failed with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("`{shown}` printed invalid UTF-8"))
}

/// Fails with installation advice if a program is not installed.
pub(crate) fn require_program(program: &str, why: &str) -> anyhow::Result<()> {
    output(program, &["--version"]).map(drop).with_context(|| {
        format!("{program} is needed {why}: install it (apt-get install {program}) and try again")
    })
}

/// Installs a Debian package; requires root.
pub(crate) fn install_package(name: &str) -> anyhow::Result<()> {
    if output("id", &["-u"])?.trim() != "0" {
        bail!("only root can install {name}");
    }
    let apt = |arguments: &[&str]| {
        run(Command::new("apt-get").env("DEBIAN_FRONTEND", "noninteractive").args(["-q"]).args(arguments))
    };
    apt(&["update"])?;
    apt(&["install", "--yes", "--no-install-recommends", name])
}

/// Formats the command for a shell.
fn show(command: &Command) -> String {
    let changes = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
    let changes = changes.map(|(name, value)| format!("{}={}", name.to_string_lossy(), quote(value)));
    let words = std::iter::once(command.get_program()).chain(command.get_args()).map(quote);
    changes.chain(words).collect::<Vec<_>>().join(" ")
}

fn quote(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_=/.,:+@%".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        word.into_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_it_can_be_typed() {
        let mut command = Command::new("cargo");
        command.args(["build", "-p", "it's", ""]).env("RUSTFLAGS", "-Ca -Cb");
        assert_eq!(show(&command), r"RUSTFLAGS='-Ca -Cb' cargo build -p 'it'\''s' ''");
    }

    #[test]
    fn failures_name_the_command() {
        let failure = run(Command::new("git").arg("no-such-verb")).unwrap_err().to_string();
        assert!(failure.contains("git no-such-verb"), "{failure}");
        let missing = format!("{:#}", require_program("no-such-program", "for a test").unwrap_err());
        assert!(missing.contains("no-such-program is needed for a test: install it"), "{missing}");
    }

    #[test]
    fn the_root_is_the_workspace() {
        assert!(root().join("Cargo.toml").is_file() && root().join("xtask").is_dir());
    }
}
