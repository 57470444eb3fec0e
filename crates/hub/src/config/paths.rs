//! Paths of the hub: data directory, configuration file and key file. The keys are outside the data directory, so that
//! a copy of the data directory alone is useless.

use std::ffi::OsString;
use std::fs::{OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use linchpin::auth::Secret;
use linchpin_hub_core::audit::head_file::HeadFile;
use linchpin_hub_core::platform::SystemPlatform;
use linchpin_hub_core::private_file;
use linchpin_hub_core::store::Store;
use linchpin_hub_core::vault::KeyFile;
use linchpin_hub_store::{Postgres, Sqlite};
use rustix::fs::Access;

use super::{Config, Durability};
use crate::error::{CliError, CliErrorKind};
use crate::terminal::shell_quote;

/// Global options that locate the hub.
#[derive(Args, Debug, Default, Clone)]
pub(crate) struct LocationArgs {
    /// Data directory of the hub. Default: `$LINCHPIN_DATA_DIR`, else ~/.local/share/linchpin
    #[arg(long, global = true, value_name = "DIRECTORY", help_heading = "Hub location")]
    pub(crate) data_dir: Option<PathBuf>,

    /// Configuration file. Default: linchpin.toml in the data directory
    #[arg(long, global = true, value_name = "FILE", help_heading = "Hub location")]
    pub(crate) config: Option<PathBuf>,

    /// Key file. Default: ~/.config/linchpin/hub.keys, or NAME.keys beside a data directory NAME that is set explicitly
    #[arg(long, global = true, value_name = "FILE", help_heading = "Hub location")]
    pub(crate) key_file: Option<PathBuf>,

    /// PostgreSQL URL, such as `postgres://user@host/name`, instead of a database file in the data directory. Default:
    /// `$LINCHPIN_DATABASE`, which hides a password from the process list
    #[arg(long, global = true, value_name = "URL", help_heading = "Hub location")]
    pub(crate) database: Option<Secret>,
}

/// Paths of the hub's data directory, configuration file and key file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HubPaths {
    data: PathBuf,
    /// Path of the configuration file.
    pub(crate) config: PathBuf,
    /// Path of the key file.
    pub(crate) keys: PathBuf,
    /// PostgreSQL URL; `None` for a `SQLite` file.
    database: Option<Secret>,
}

/// Function that looks up an environment variable, replaced in tests.
pub(crate) type Variables<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Returns an environment variable of this process; `None` if it is empty.
pub(crate) fn env_variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Returns the directory `linchpin` below the one that a variable names, or below a default in the home directory.
pub(crate) fn own_directory(
    variables: Variables<'_>,
    variable: &str,
    default_name: &str,
) -> Result<PathBuf, CliError> {
    let named = variables(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || variables("HOME").map(|home| PathBuf::from(home).join(default_name));
    let text = format!("neither {variable} nor HOME is set: set one of them");
    Ok(named.or_else(home).ok_or_else(|| CliError::new(CliErrorKind::Other, text))?.join("linchpin"))
}

impl HubPaths {
    /// Determines the paths of the local hub from the command line, environment and platform. Creates nothing.
    pub(crate) fn resolve(location: &LocationArgs, variables: Variables<'_>) -> Result<Self, CliError> {
        let named = location.data_dir.clone().or_else(|| variables("LINCHPIN_DATA_DIR").map(PathBuf::from));
        let (data, keys) = if let Some(data) = named {
            let data = std::path::absolute(&data).map_err(|error| unusable_path(&data, &error))?;
            let data = std::fs::canonicalize(&data).unwrap_or(data);
            let keys = data.file_name().map(|name| {
                let mut name = name.to_owned();
                name.push(".keys");
                data.with_file_name(name)
            });
            (data, keys)
        } else {
            let keys = || {
                Ok::<_, CliError>(own_directory(variables, "XDG_CONFIG_HOME", ".config")?.join("hub.keys"))
            };
            let data = own_directory(variables, "XDG_DATA_HOME", ".local/share")?;
            (data, location.key_file.is_none().then(keys).transpose()?)
        };
        let unreadable = |_| CliError::usage("LINCHPIN_DATABASE must be a UTF-8 URL");
        let database =
            variables("LINCHPIN_DATABASE").map(|url| url.into_string().map(Secret::new)).transpose();
        let database = database.map_err(unreadable)?;
        let no_key_file_error = || {
            CliError::usage(format!(
                "the data directory `{}` has no parent directory for the key file: set the path of the key file with --key-file",
                data.display()
            ))
        };
        if let Some(path) = location.config.as_deref().filter(|path| matches!(path.try_exists(), Ok(false))) {
            return Err(CliError::usage(format!(
                "`{}`, named by --config, does not exist: correct the path, or create the file (an empty one is valid)",
                path.display()
            )));
        }
        Ok(HubPaths {
            config: location.config.clone().unwrap_or_else(|| data.join("linchpin.toml")),
            keys: location.key_file.clone().or(keys).ok_or_else(no_key_file_error)?,
            database: location.database.clone().or(database),
            data,
        })
    }

    /// Returns the `linchpin` command line that uses this data directory, for messages.
    pub(crate) fn shell_command(&self) -> String {
        let default_dir = own_directory(&env_variable, "XDG_DATA_HOME", ".local/share");
        if default_dir.is_ok_and(|default_dir| default_dir == self.data) {
            return "linchpin".to_owned();
        }
        format!("linchpin --data-dir {}", shell_quote(&self.data.to_string_lossy()))
    }

    /// Creates the data directory, accessible to its owner alone.
    pub(crate) fn create(&self) -> Result<(), CliError> {
        private_file::check_parents(&self.data)
            .map_err(|reason| unusable_path(&self.data, &io::Error::other(reason)))?;
        let made =
            private_file::create_private_folder(&self.data).and_then(|()| std::fs::metadata(&self.data));
        let metadata = made.map_err(|error| unusable_path(&self.data, &error))?;
        private_file::check_private(&metadata)
            .map_err(|reason| unusable_path(&self.data, &io::Error::other(reason)))?;
        rustix::fs::access(&self.data, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| {
            let text = format!(
                "the data directory `{}` cannot be written: {}: make it writable for the user of the hub, or choose \
                 another one with --data-dir",
                self.data.display(),
                io::Error::from(error)
            );
            CliError::new(CliErrorKind::Other, text)
        })
    }

    /// Returns the data directory.
    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    /// Returns the path of the `SQLite` database.
    fn database_path(&self) -> PathBuf {
        self.data.join("hub.db")
    }

    /// Describes the store of the hub for error messages.
    pub(crate) fn describe_store(&self) -> String {
        match self.database {
            Some(_) => "the database".to_owned(),
            None => format!("`{}`", self.data.display()),
        }
    }

    /// Opens or creates the store of the hub. A `SQLite` file is accessible to its owner alone.
    pub(crate) async fn store(&self, durability: Durability) -> Result<Arc<dyn Store>, CliError> {
        if let Some(url) = &self.database {
            let store = Postgres::join(url.expose(), durability.into(), Arc::new(SystemPlatform)).await?;
            return Ok(Arc::new(store));
        }
        let path = self.database_path();
        create_private_file(&path)?;
        Ok(Arc::new(Sqlite::open_with(&path, durability.into()).map_err(|error| with_path(&path, error))?))
    }

    /// Returns whether the database of the hub exists.
    pub(crate) fn has_store(&self) -> bool {
        self.database.is_some() || self.database_path().exists()
    }

    /// Opens the store of the hub, which must exist; see [`Self::store`].
    pub(crate) async fn open_existing_store(&self) -> Result<Arc<dyn Store>, CliError> {
        if let Some(url) = &self.database {
            return Ok(Arc::new(Postgres::open(url.expose()).await?));
        }
        let path = self.database_path();
        if !self.has_store() {
            let text = format!(
                "no database at `{}`: set the data directory of the hub with --data-dir",
                path.display()
            );
            return Err(CliError::new(CliErrorKind::Other, text));
        }
        Ok(Arc::new(Sqlite::open(&path).map_err(|error| with_path(&path, error))?))
    }

    /// Reads the existing key file.
    pub(crate) fn read_keys(&self) -> Result<KeyFile, CliError> {
        if !self.keys.exists() {
            let text = format!("no key file at `{}`: set its path with --key-file", self.keys.display());
            return Err(CliError::new(CliErrorKind::Other, text));
        }
        Ok(KeyFile::open(&self.keys, &SystemPlatform)?.0)
    }

    /// Returns the path of the file with a second copy of the audit checkpoints, outside the database.
    pub(crate) fn checkpoint_file(&self) -> PathBuf {
        self.data.join("checkpoints")
    }

    /// Returns the file of signed chain heads. Default: beside the key file.
    pub(crate) fn head_file(&self, config: &Config) -> HeadFile {
        let path = config.audit.head.as_ref().map_or_else(
            || {
                let mut name = self.keys.as_os_str().to_owned();
                name.push(".head");
                std::path::absolute(PathBuf::from(&name)).unwrap_or_else(|_| name.into())
            },
            |path| self.data.join(path),
        );
        let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let data = real(&self.data);
        let is_inside = path.parent().is_some_and(|folder| real(folder).starts_with(&data));
        let location = self
            .database
            .as_ref()
            .map_or_else(|| data.display().to_string(), |url| database_name(url.expose()));
        HeadFile { path, location, is_in_data_dir: is_inside }
    }

    /// Returns the folder of audit segments. Default: `audit` in the data directory.
    pub(crate) fn segment_folder(&self, config: &Config) -> PathBuf {
        self.data.join(config.audit.folder.as_deref().unwrap_or(Path::new("audit")))
    }

    /// Returns the file in which the process guard stores the lineage of the stdio servers.
    pub(crate) fn guard_file(&self) -> PathBuf {
        self.data.join("hub.guard")
    }
}

/// Returns host, port and database name of a database URL, without user and password.
fn database_name(url: &str) -> String {
    if let Some((_, rest)) = url.split_once("://") {
        let rest = rest.split(['?', '#']).next().unwrap_or_default();
        return format!("postgres://{}", rest.rsplit_once('@').map_or(rest, |(_, authority)| authority));
    }
    let is_name =
        |part: &&str| ["host=", "hostaddr=", "port=", "dbname="].iter().any(|name| part.starts_with(name));
    format!("postgres {}", url.split_ascii_whitespace().filter(is_name).collect::<Vec<_>>().join(" "))
}

/// Creates a file if it does not exist, and sets its mode to 0600. `SQLite` gives its journal files the same mode.
fn create_private_file(path: &Path) -> Result<(), CliError> {
    let made = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
    made.and_then(|file| file.set_permissions(Permissions::from_mode(0o600)))
        .map_err(|error| unusable_path(path, &error))
}

fn with_path(path: &Path, error: linchpin_hub_core::Error) -> CliError {
    CliError::from(error).context(&format!("`{}`", path.display()))
}

pub(super) fn unusable_path(path: &Path, error: &io::Error) -> CliError {
    CliError::new(CliErrorKind::Other, format!("the path `{}` cannot be used: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(set: &'static [(&'static str, &'static str)]) -> impl Fn(&str) -> Option<OsString> {
        move |name| set.iter().find(|(variable, _)| *variable == name).map(|(_, value)| value.into())
    }

    fn resolved_paths(location: &LocationArgs, set: &'static [(&'static str, &'static str)]) -> [String; 3] {
        let paths = HubPaths::resolve(location, &variables(set)).unwrap();
        [paths.data, paths.config, paths.keys].map(|path| path.display().to_string())
    }

    #[test]
    fn the_usual_places_and_those_that_are_named() {
        let none = LocationArgs::default();
        let config = "/h/.local/share/linchpin/linchpin.toml";
        assert_eq!(
            resolved_paths(&none, &[("HOME", "/h")]),
            ["/h/.local/share/linchpin", config, "/h/.config/linchpin/hub.keys"]
        );
        assert_eq!(
            resolved_paths(&none, &[("HOME", "/h"), ("XDG_DATA_HOME", "/d"), ("XDG_CONFIG_HOME", "/c")]),
            ["/d/linchpin", "/d/linchpin/linchpin.toml", "/c/linchpin/hub.keys"]
        );
        assert_eq!(
            resolved_paths(&none, &[("HOME", "/h"), ("XDG_DATA_HOME", "d")])[0],
            "/h/.local/share/linchpin"
        );
        assert_eq!(
            resolved_paths(&none, &[("LINCHPIN_DATA_DIR", "/nowhere/v")]),
            ["/nowhere/v", "/nowhere/v/linchpin.toml", "/nowhere/v.keys"]
        );
        let location = LocationArgs { data_dir: Some("/nowhere/t.1".into()), ..LocationArgs::default() };
        assert_eq!(
            resolved_paths(&location, &[("LINCHPIN_DATA_DIR", "/nowhere/v")]),
            ["/nowhere/t.1", "/nowhere/t.1/linchpin.toml", "/nowhere/t.1.keys"]
        );
        let (config, key_file) = (Some("/dev/null".into()), Some("/k".into()));
        let location = LocationArgs { data_dir: Some("/".into()), config, key_file, database: None };
        assert_eq!(resolved_paths(&location, &[]), ["/", "/dev/null", "/k"]);
        let location = LocationArgs { config: Some("/nowhere/linchpin.toml".into()), ..location };
        let error = HubPaths::resolve(&location, &variables(&[])).unwrap_err();
        assert!(
            error.to_string().contains("named by --config, does not exist") && error.exit_code() == 2,
            "{error}"
        );
        let location = LocationArgs { data_dir: Some("/".into()), ..LocationArgs::default() };
        let error = HubPaths::resolve(&location, &variables(&[])).unwrap_err();
        assert!(error.to_string().contains("--key-file") && error.exit_code() == 2, "{error}");
        let error = HubPaths::resolve(&none, &variables(&[])).unwrap_err();
        assert!(error.to_string().starts_with("neither XDG_DATA_HOME nor HOME is set"), "{error}");
    }

    #[test]
    fn the_database_is_named_by_an_option_or_else_a_variable_and_never_shown() {
        let set = &[("HOME", "/h"), ("LINCHPIN_DATABASE", "postgres://a:canary@b/c")];
        let location =
            LocationArgs { database: Some("postgres://d:canary@e/f".into()), ..LocationArgs::default() };
        for (location, expected) in
            [(&LocationArgs::default(), "postgres://a:canary@b/c"), (&location, "postgres://d:canary@e/f")]
        {
            let paths = HubPaths::resolve(location, &variables(set)).unwrap();
            assert_eq!(paths.database.as_ref().unwrap().expose(), expected);
            assert!(!format!("{paths:?}{location:?}").contains("canary"));
        }
    }

    #[test]
    fn heads_are_beside_the_keys_and_know_the_database_without_its_password() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let heads = |key_file: Option<PathBuf>, database: Option<&str>, head: Option<&str>| {
            let database = database.map(Secret::new);
            let location = LocationArgs { data_dir: Some(data.clone()), key_file, database, config: None };
            let paths = HubPaths::resolve(&location, &variables(&[])).unwrap();
            paths.create().unwrap();
            let mut config = Config::default();
            config.audit.head = head.map(PathBuf::from);
            paths.head_file(&config)
        };
        let real = std::fs::canonicalize(folder.path()).unwrap();
        let found = heads(None, None, None);
        assert_eq!((found.path, found.is_in_data_dir), (real.join("data.keys.head"), false));
        assert_eq!(found.location, real.join("data").display().to_string());
        assert!(heads(Some(data.join("keys")), None, None).is_in_data_dir);
        assert!(heads(None, None, Some("heads")).is_in_data_dir);
        assert_eq!(heads(None, None, Some("/elsewhere/heads")).path, PathBuf::from("/elsewhere/heads"));
        for (url, expected) in [
            ("postgres://a:canary@b:5432/c?sslmode=require", "postgres://b:5432/c"),
            ("postgres://b/c", "postgres://b/c"),
            ("postgresql://a:can@ary@b/c", "postgres://b/c"),
            ("host=b user=a password=canary dbname=c", "postgres host=b dbname=c"),
        ] {
            assert_eq!(heads(None, Some(url), None).location, expected);
        }
    }
}
