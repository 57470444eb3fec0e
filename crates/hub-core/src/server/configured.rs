//! Configured server: a server of the configuration file, either remote (with a `url`) or stdio (with a `command` that
//! starts it).

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::{ProgramSpec, ServerSettings, Transport};
use crate::error::{Error, Result};
use crate::object_reader::ObjectReader;
use crate::tool::names::Slug;

const MAX_PATH_LEN: usize = 4_096;
const MAX_ARGS: usize = 256;
const MAX_ARG_LEN: usize = 32_768;
const MAX_VARIABLES: usize = 256;
const MAX_VARIABLE_NAME_LEN: usize = 128;

/// Server declared in the configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfiguredServer {
    /// Slug of the server: its unique short name.
    pub slug: Slug,
    /// Settings of the server in the configuration file.
    pub settings: ServerSettings,
    /// Transport to the server, with its command or URL.
    pub transport: Transport,
    /// Names of variables that a stdio server inherits from the hub's environment.
    pub inherit: Vec<String>,
}

impl ConfiguredServer {
    /// Reads the settings of one server from its table in the configuration file. Default of `name`: the slug.
    pub fn read(slug: &str, value: Value) -> Result<Self> {
        let slug = Slug::new(slug)?;
        let mut form = ObjectReader::new(value)?;
        form.members.entry("name").or_insert_with(|| slug.as_str().into());
        let is_program = form.members.contains_key("command");
        if is_program {
            let text = "must not be set together with `command`: remove one of them";
            form.reject_fields(&["url", "headers", "authentication", "credentials"], text)?;
            let text = "must not be set: a stdio server has no streams over HTTP";
            form.reject_fields(&["read_timeout_ms", "max_reconnects"], text)?;
        } else {
            let text = "must not be set: this server has no `command`";
            form.reject_fields(&["args", "env", "inherit", "secrets", "directory"], text)?;
        }
        let settings = ServerSettings::read(&mut form)?;
        let (transport, inherit) = if is_program {
            let (program, inherit) = ProgramSpec::read(&mut form)?;
            (Transport::Stdio(program), inherit)
        } else {
            let has_url = form.members.contains_key("url");
            let transport = Transport::read_remote(&mut form);
            // An error about a misspelt name explains the missing one.
            form.also_accepts("command").finish()?;
            if !has_url {
                let text = "a server requires either a `command` or a `url`: add one of them";
                return Err(Error::invalid("command", text));
            }
            (transport?, Vec::new())
        };
        form.finish()?;
        Ok(ConfiguredServer { slug, settings, transport, inherit })
    }
}

impl ProgramSpec {
    /// Reads the program of a stdio server and the names of the variables that it inherits.
    fn read(form: &mut ObjectReader) -> Result<(Self, Vec<String>)> {
        let command = form.string("command", MAX_PATH_LEN)?.unwrap_or_default();
        if command.trim().is_empty() {
            return Err(Error::invalid("command", "must be a command name or a path"));
        }
        if form.string("transport", 20)?.is_some_and(|kind| kind != "stdio") {
            let text = "a server with a `command` uses `stdio`: remove `transport`, or use `url` instead of `command`";
            return Err(Error::invalid("transport", text));
        }
        let args = form.strings("args", MAX_ARGS, MAX_ARG_LEN)?;
        let env = form.string_map("env", MAX_VARIABLES, MAX_ARG_LEN)?;
        let inherit = form.strings("inherit", MAX_VARIABLES, MAX_VARIABLE_NAME_LEN)?;
        let secrets = form.strings("secrets", MAX_VARIABLES, MAX_VARIABLE_NAME_LEN)?;
        let named =
            |field, names: &[String]| names.iter().map(|name| (field, name.clone())).collect::<Vec<_>>();
        let env_names = env.keys().map(|name| ("env", name.clone()));
        for (field, name) in env_names.chain(named("inherit", &inherit)).chain(named("secrets", &secrets)) {
            if name.is_empty() || name.contains(['=', '\0']) || name.len() > MAX_VARIABLE_NAME_LEN {
                let text = "a variable name must have 1 to 128 characters, without `=`";
                return Err(Error::invalid(field, text));
            }
        }
        let secrets: BTreeSet<_> = secrets.into_iter().collect();
        if let Some(name) = secrets.iter().find(|name| env.contains_key(*name) || inherit.contains(name)) {
            let text = format!("`{name}` is also in `env` or `inherit`: remove one of them");
            return Err(Error::invalid("secrets", text));
        }
        let directory = form.string("directory", MAX_PATH_LEN)?;
        if directory.as_deref().is_some_and(|path| !Path::new(path).is_absolute()) {
            return Err(Error::invalid("directory", "must be an absolute path, such as `/srv/files`"));
        }
        Ok((ProgramSpec { command, args, env, inherited: BTreeSet::new(), secrets, directory }, inherit))
    }
}
