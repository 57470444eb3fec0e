//! Configured server: a server of the configuration file, either with the fields of a [`Draft`](super::Draft) or with a
//! command.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::{Launch, Settings, Transport};
use crate::error::{Error, Result};
use crate::object_reader::Form;
use crate::tool::names::Slug;

const LONGEST_PATH: usize = 4_096;
const MOST_ARGS: usize = 256;
const LONGEST_ARG: usize = 32_768;
const MOST_VARIABLES: usize = 256;
const LONGEST_VARIABLE: usize = 128;

/// Server declared in the configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operated {
    /// Slug.
    pub slug: Slug,
    /// Settings.
    pub settings: Settings,
    /// Transport.
    pub transport: Transport,
    /// Names of variables that a stdio server inherits from the hub's environment.
    pub inherit: Vec<String>,
}

impl Operated {
    /// Reads the table of a server. Default of `name`: the slug.
    pub fn read(slug: &str, value: Value) -> Result<Self> {
        let slug = Slug::new(slug)?;
        let mut form = Form::new(value)?;
        form.members.entry("name").or_insert_with(|| slug.as_str().into());
        let is_program = form.members.contains_key("command");
        if is_program {
            let text = "must not be set together with `command`: remove one of them";
            form.refuse(&["url", "headers", "authentication", "credentials"], text)?;
        } else {
            let text = "must not be set: this server has no `command`";
            form.refuse(&["args", "env", "inherit", "secrets", "directory"], text)?;
        }
        let settings = Settings::read(&mut form)?;
        let (transport, inherit) = if is_program {
            let (launch, inherit) = Launch::read(&mut form)?;
            (Transport::Stdio(launch), inherit)
        } else {
            let has_url = form.members.contains_key("url");
            let transport = Transport::remote(&mut form);
            // An error about a misspelt name explains the missing one.
            form.knows("command").end()?;
            if !has_url {
                let text = "a server requires either a `command` or a `url`: add one of them";
                return Err(Error::invalid("command", text));
            }
            (transport?, Vec::new())
        };
        form.end()?;
        Ok(Operated { slug, settings, transport, inherit })
    }
}

impl Launch {
    /// Reads the program and the names of inherited variables.
    fn read(form: &mut Form) -> Result<(Self, Vec<String>)> {
        let command = form.text("command", LONGEST_PATH)?.unwrap_or_default();
        if command.trim().is_empty() {
            return Err(Error::invalid("command", "must be a command name or a path"));
        }
        if form.text("transport", 20)?.is_some_and(|kind| kind != "stdio") {
            let text = "a server with a `command` uses `stdio`: remove `transport`, or use `url` instead of `command`";
            return Err(Error::invalid("transport", text));
        }
        let args = form.texts("args", MOST_ARGS, LONGEST_ARG)?;
        let env = form.map("env", MOST_VARIABLES, LONGEST_ARG)?;
        let inherit = form.texts("inherit", MOST_VARIABLES, LONGEST_VARIABLE)?;
        let secrets = form.texts("secrets", MOST_VARIABLES, LONGEST_VARIABLE)?;
        let named =
            |field, names: &[String]| names.iter().map(|name| (field, name.clone())).collect::<Vec<_>>();
        let own = env.keys().map(|name| ("env", name.clone()));
        for (field, name) in own.chain(named("inherit", &inherit)).chain(named("secrets", &secrets)) {
            if name.is_empty() || name.contains(['=', '\0']) || name.len() > LONGEST_VARIABLE {
                let text = "a variable name must have 1 to 128 characters, without `=`";
                return Err(Error::invalid(field, text));
            }
        }
        let secrets: BTreeSet<_> = secrets.into_iter().collect();
        if let Some(name) = secrets.iter().find(|name| env.contains_key(*name) || inherit.contains(name)) {
            let text = format!("`{name}` is also in `env` or `inherit`: remove one of them");
            return Err(Error::invalid("secrets", text));
        }
        let directory = form.text("directory", LONGEST_PATH)?;
        if directory.as_deref().is_some_and(|path| !Path::new(path).is_absolute()) {
            return Err(Error::invalid("directory", "must be an absolute path, such as `/srv/files`"));
        }
        Ok((Launch { command, args, env, inherited: BTreeSet::new(), secrets, directory }, inherit))
    }
}
