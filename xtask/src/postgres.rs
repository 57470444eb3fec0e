//! Installation of PostgreSQL. Tests start their own servers; a server started by the package is not used.

use std::path::Path;

use anyhow::Context as _;

use crate::command::{install_package, output};

/// Directory of the versions installed by Debian's packages.
const VERSIONS: &str = "/usr/lib/postgresql";

/// Installs PostgreSQL if it is missing.
pub(crate) fn install() -> anyhow::Result<()> {
    if output("postgres", &["--version"]).is_ok() || is_in(Path::new(VERSIONS)) {
        return Ok(());
    }
    println!("installing Debian's postgresql: it is neither on the PATH nor in {VERSIONS}");
    install_package("postgresql").context(
        "the tests of the hub's store need PostgreSQL: install it \
         (apt-get install --no-install-recommends postgresql, as root) and try again",
    )
}

fn is_in(versions: &Path) -> bool {
    let Ok(mut versions) = std::fs::read_dir(versions) else { return false };
    versions.any(|version| version.is_ok_and(|version| version.path().join("bin/postgres").is_file()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::root;

    #[test]
    fn an_installation_is_found_by_its_program() {
        let folder = root().join(format!("target/xtask-postgres-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("15/bin")).unwrap();
        let without = is_in(&folder);
        std::fs::write(folder.join("15/bin/postgres"), "").unwrap();
        let with = is_in(&folder);
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(!without && with && !is_in(&folder));
    }
}
