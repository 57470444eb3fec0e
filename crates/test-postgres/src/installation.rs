//! PostgreSQL programs of this machine, and the system user that runs the server of a test.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folder in which Debian packages install each version.
const VERSIONS_FOLDER: &str = "/usr/lib/postgresql";
const REQUIRED_PROGRAMS: [&str; 3] = ["initdb", "postgres", "psql"];

/// Folder with the PostgreSQL programs of this machine.
pub(crate) struct Installation(PathBuf);

impl Installation {
    pub(crate) fn find() -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let on_path =
            std::env::split_paths(&path).filter_map(|folder| folder.join("postgres").canonicalize().ok());
        let mut folders: Vec<_> = on_path.filter_map(|program| Some(program.parent()?.to_owned())).collect();
        let versions = std::fs::read_dir(VERSIONS_FOLDER).into_iter().flatten().flatten();
        folders.extend(versions.map(|version| version.path().join("bin")));
        let found = folders
            .into_iter()
            .find(|folder| REQUIRED_PROGRAMS.iter().all(|name| folder.join(name).is_file()));
        Installation(found.unwrap_or_else(|| {
            panic!(
                "PostgreSQL is neither on the PATH nor in {VERSIONS_FOLDER}: `cargo xtask test` installs it as root \
                 (apt-get install --no-install-recommends postgresql)"
            )
        }))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

/// System user that runs the PostgreSQL server of a test. PostgreSQL refuses root, so that root uses another user.
pub(crate) struct ServerUser(Option<(u32, u32)>);

impl ServerUser {
    pub(crate) fn find() -> Self {
        let temp_folder = tempfile::tempdir().unwrap();
        if std::fs::metadata(temp_folder.path()).unwrap().uid() != 0 {
            return ServerUser(None);
        }
        let number = |option: &str, name: &str| {
            let id = Command::new("id").args([option, name]).output().ok()?;
            String::from_utf8(id.stdout).ok()?.trim().parse::<u32>().ok()
        };
        let find = |name: &str| Some((number("-u", name)?, number("-g", name)?));
        let found = find("postgres").or_else(|| find("nobody"));
        assert!(
            found.is_some(),
            "PostgreSQL refuses to run as root, and there is no user `postgres` or `nobody`: create one of them"
        );
        ServerUser(found)
    }

    /// Creates a temporary folder that belongs to the user who runs PostgreSQL. The caller removes it.
    pub(crate) fn create_folder(&self) -> PathBuf {
        let folder = tempfile::Builder::new().prefix("pg").tempdir().unwrap().keep();
        if let Some((user, group)) = self.0 {
            chown(&folder, Some(user), Some(group)).unwrap();
        }
        folder
    }

    /// Writes a file that only the owner can read.
    pub(crate) fn write_private(&self, path: &Path, bytes: &[u8]) {
        std::fs::write(path, bytes).unwrap();
        std::fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
        if let Some((user, group)) = self.0 {
            chown(path, Some(user), Some(group)).unwrap();
        }
    }

    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir("/");
        if let Some((user, group)) = self.0 {
            command.uid(user).gid(group);
        }
        command
    }
}
