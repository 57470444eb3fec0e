//! Server entries for the configuration files of other MCP clients, so that these use the servers without the hub: the
//! counterpart of an import. Secrets are left out; the client takes them from its environment.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::servers::ensure_declared;
use crate::actor::Actor;
use crate::error::{Error, Result};
use crate::hub::registry::Registry;
use crate::secrets::scan::is_secret_name;
use crate::secrets::scan::{contains_secret, find_secret_argument, is_secret};
use crate::server::{
    Authentication, BASE_ENV_VARS, CredentialMode, ProgramSpec, RemoteEndpoint, Server, Transport,
};

/// MCP client application for which the hub generates a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientApp {
    /// Claude Desktop.
    ClaudeDesktop,
    /// Claude Code.
    ClaudeCode,
    /// The editor Cursor.
    Cursor,
    /// The VS Code editor.
    VsCode,
}

/// Generated configuration file with which another MCP client uses servers of the hub directly, with notes on what to
/// add by hand and which servers were skipped.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ClientConfig {
    /// Content of the configuration file of the client app.
    pub file: Value,
    /// Notes for the user about single servers: what to add by hand, and why a server was skipped.
    pub notes: Vec<String>,
}

impl FromStr for ClientApp {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "claude-desktop" => Ok(ClientApp::ClaudeDesktop),
            "claude-code" => Ok(ClientApp::ClaudeCode),
            "cursor" => Ok(ClientApp::Cursor),
            "vscode" => Ok(ClientApp::VsCode),
            _ => {
                Err(Error::unknown_value("client", text, "use claude-desktop, claude-code, cursor or vscode"))
            }
        }
    }
}

impl ClientApp {
    fn name(self) -> &'static str {
        match self {
            ClientApp::ClaudeDesktop => "Claude Desktop",
            ClientApp::ClaudeCode => "Claude Code",
            ClientApp::Cursor => "Cursor",
            ClientApp::VsCode => "VS Code",
        }
    }

    /// Returns the client's syntax for a reference to an environment variable; empty if the client has none.
    fn reference(self, variable: &str) -> String {
        match self {
            ClientApp::ClaudeDesktop => String::new(),
            ClientApp::ClaudeCode => format!("${{{variable}}}"),
            ClientApp::Cursor | ClientApp::VsCode => format!("${{env:{variable}}}"),
        }
    }
}

impl Registry {
    /// Returns a configuration file for an MCP client that contains these servers. Default: all enabled servers.
    pub async fn client_config(
        &self,
        actor: Actor,
        client: ClientApp,
        names: &[String],
    ) -> Result<ClientConfig> {
        actor.require_user()?;
        let mut servers = Vec::new();
        for name in names {
            let server = self.servers.find_server(actor.tenant(), name).await?;
            ensure_declared(&server)?;
            servers.push(server);
        }
        if names.is_empty() {
            servers = self.servers.list_servers(actor.tenant()).await?;
            servers.retain(|server| server.settings.enabled);
            servers.sort_unstable_by(|one, other| one.slug.as_str().cmp(other.slug.as_str()));
        }
        let (mut entries, mut notes) = (Map::new(), Vec::new());
        for server in &servers {
            let slug = server.slug.as_str();
            let mut writer = EntryWriter { client, slug, notes: Vec::new() };
            match writer.entry(server) {
                Ok(entry) => drop(entries.insert(slug.to_owned(), entry)),
                Err(reason) => writer.notes.push(format!("skipped: {reason}")),
            }
            notes.extend(writer.notes.into_iter().map(|note| format!("`{slug}`: {note}")));
        }
        let key = if client == ClientApp::VsCode { "servers" } else { "mcpServers" };
        Ok(ClientConfig { file: json!({ key: entries }), notes })
    }
}

/// Writer of one server entry in the configuration of another MCP client.
struct EntryWriter<'a> {
    client: ClientApp,
    slug: &'a str,
    notes: Vec<String>,
}

impl EntryWriter<'_> {
    fn entry(&mut self, server: &Server) -> Result<Value, String> {
        match &server.transport {
            Transport::Stdio(program) => self.program(program),
            Transport::Http(remote) | Transport::Sse(remote) => self.remote(server, remote),
        }
    }

    /// Returns a text for the client's configuration file that the client uses without expansion. Fails if it contains
    /// a secret or a placeholder.
    fn literal(&self, field: &str, text: &str) -> Result<Value, String> {
        if contains_secret(text) {
            return Err(format!("{field} contains a secret"));
        }
        if self.client != ClientApp::ClaudeDesktop && text.contains("${") {
            return Err(format!("{field} contains `${{`, which {} would expand", self.client.name()));
        }
        Ok(text.into())
    }

    /// Adds a note for the user and returns the placeholder of a secret.
    fn placeholder(&mut self, variable: &str) -> String {
        let client = self.client.name();
        self.notes.push(if self.client == ClientApp::ClaudeDesktop {
            format!(
                "enter the value of `{variable}` into the file: {client} does not read environment variables"
            )
        } else {
            format!("set `{variable}` in the environment of {client}")
        });
        self.client.reference(variable)
    }

    fn program(&mut self, program: &ProgramSpec) -> Result<Value, String> {
        if find_secret_argument(&program.args).is_some() {
            return Err(
                "the arguments of its command contain a secret, which the file must not contain".to_owned()
            );
        }
        let args = program.args.iter().map(|text| self.literal("an argument", text));
        let (args, mut env) = (args.collect::<Result<Vec<_>, _>>()?, Map::new());
        for (name, value) in program.env.iter().filter(|(name, _)| !program.inherited.contains(*name)) {
            let value = if is_secret(name, value) {
                self.placeholder(&secret_variable(name)).into()
            } else {
                self.literal(&format!("`{name}`"), value)?
            };
            env.insert(name.clone(), value);
        }
        for name in &program.secrets {
            env.insert(name.clone(), self.placeholder(&secret_variable(name)).into());
        }
        let client = self.client.name();
        let others = program.inherited.iter().filter(|name| !BASE_ENV_VARS.contains(&&***name));
        self.notes.extend(
            others.map(|name| {
                format!("the server needs the environment variable `{name}`: set it for {client}")
            }),
        );
        let mut entry = json!({ "command": self.literal("its command", &program.command)? });
        if matches!(self.client, ClientApp::ClaudeCode | ClientApp::VsCode) {
            entry["type"] = "stdio".into();
        }
        if !args.is_empty() {
            entry["args"] = args.into();
        }
        if !env.is_empty() {
            entry["env"] = env.into();
        }
        if let Some(directory) = &program.directory {
            entry["cwd"] = self.literal("its directory", directory)?;
        }
        Ok(entry)
    }

    fn remote(
        &mut self,
        server: &Server,
        RemoteEndpoint { url, headers }: &RemoteEndpoint,
    ) -> Result<Value, String> {
        if self.client == ClientApp::ClaudeDesktop {
            return Err(
                "Claude Desktop supports only stdio servers in its file: add the URL as a connector".into()
            );
        }
        let mut entry = json!({ "type": server.transport.name(), "url": self.literal("its URL", url)? });
        let mut sent = Map::new();
        for (name, value) in headers {
            sent.insert(name.clone(), self.literal(&format!("the header `{name}`"), value)?);
        }
        let variable = format!("{}_TOKEN", self.slug.to_ascii_uppercase().replace('-', "_"));
        match (&server.settings.authentication, server.settings.credentials) {
            (Authentication::None, _) => {}
            (Authentication::OAuth { .. }, _) => {
                self.notes.push(format!("{} signs in to the server on its own", self.client.name()));
            }
            (_, CredentialMode::PerAgent) => {
                self.notes.push(
                    "the file does not contain a credential for the server, since each agent has its own: add one by hand"
                        .to_owned(),
                );
            }
            (Authentication::Basic { .. }, _) => {
                self.notes.push(
                    "the file does not contain the user name and password of the server: add them by hand"
                        .to_owned(),
                );
            }
            (Authentication::Bearer, _) => {
                sent.insert("Authorization".into(), format!("Bearer {}", self.placeholder(&variable)).into());
            }
            (Authentication::ApiKey { header }, _) => {
                sent.insert(header.clone(), self.placeholder(&variable).into());
            }
        }
        if !sent.is_empty() {
            entry["headers"] = sent.into();
        }
        Ok(entry)
    }
}

/// Returns the name of the environment variable in which the client holds a secret; it shows that the value is secret.
fn secret_variable(name: &str) -> String {
    if is_secret_name(name) { name.to_owned() } else { format!("{name}_SECRET") }
}
