//! What the operator's file says of a server: the same as a [`Draft`](super::Draft), or a program to start.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::{Launch, Settings, Transport};
use crate::error::{Error, Result};
use crate::form::Form;
use crate::names::Slug;

const LONGEST_PATH: usize = 4_096;
const MOST_ARGS: usize = 256;
const LONGEST_ARG: usize = 32_768;
const MOST_VARIABLES: usize = 256;
const LONGEST_VARIABLE: usize = 128;

/// A server of the operator's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operated {
    /// Its short name.
    pub slug: Slug,
    /// What can be said of any server.
    pub settings: Settings,
    /// How it is reached.
    pub transport: Transport,
    /// Names of variables that a program gets from the hub's own environment.
    pub inherit: Vec<String>,
}

impl Operated {
    /// Reads what stands below a slug. Its name is its slug unless it has one.
    pub fn read(slug: &str, value: Value) -> Result<Self> {
        let slug = Slug::new(slug)?;
        let mut form = Form::new(value)?;
        form.members.entry("name").or_insert_with(|| slug.as_str().into());
        let is_program = form.members.contains_key("command");
        if is_program {
            let text = "it is for a server with a `url`, and this one has a `command`: remove one of them";
            form.refuse(&["url", "headers", "authentication", "credentials"], text)?;
        } else {
            let text = "it is for a program, and this server has no `command`";
            form.refuse(&["args", "env", "inherit", "secrets", "directory"], text)?;
        }
        let settings = Settings::read(&mut form)?;
        let (transport, inherit) = if is_program {
            let (launch, inherit) = Launch::read(&mut form)?;
            (Transport::Stdio(launch), inherit)
        } else {
            let has_url = form.members.contains_key("url");
            let transport = Transport::remote(&mut form);
            // A misspelt name explains what is missing.
            form.knows("command").end()?;
            if !has_url {
                let text = "a server has either a `command` to start or a `url`: add one of them";
                return Err(Error::invalid("command", text));
            }
            (transport?, Vec::new())
        };
        form.end()?;
        Ok(Operated { slug, settings, transport, inherit })
    }
}

impl Launch {
    /// The program, and what it gets of the hub's environment.
    fn read(form: &mut Form) -> Result<(Self, Vec<String>)> {
        let command = form.text("command", LONGEST_PATH)?.unwrap_or_default();
        if command.trim().is_empty() {
            return Err(Error::invalid("command", "it is the name of a program or the path to one"));
        }
        if form.text("transport", 20)?.is_some_and(|kind| kind != "stdio") {
            let text =
                "a program is reached over `stdio`: leave it out, or give a `url` instead of the `command`";
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
                let text = "the name of a variable has no `=`, and 1 to 128 characters";
                return Err(Error::invalid(field, text));
            }
        }
        let secrets: BTreeSet<_> = secrets.into_iter().collect();
        if let Some(name) = secrets.iter().find(|name| env.contains_key(*name) || inherit.contains(name)) {
            let text = format!("`{name}` stands in `env` or `inherit`, too: a variable has one value");
            return Err(Error::invalid("secrets", text));
        }
        let directory = form.text("directory", LONGEST_PATH)?;
        if directory.as_deref().is_some_and(|path| !Path::new(path).is_absolute()) {
            return Err(Error::invalid("directory", "it is a whole path, such as `/srv/files`"));
        }
        Ok((Launch { command, args, env, inherited: BTreeSet::new(), secrets, directory }, inherit))
    }
}
