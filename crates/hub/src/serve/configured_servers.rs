//! Servers that the running hub takes from the configuration file, with the environment of each stdio server, and the
//! demo server.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use linchpin_hub_core::hub::Hub;
use linchpin_hub_core::server::{BASE_ENV_VARS, ConfiguredServer, ProgramSpec, ServerSettings, Transport};
use linchpin_hub_core::tool::names::Slug;

use super::TENANT;
use crate::config::{Config, WatchedConfig, env_variable};
use crate::error::CliError;

/// Slug of the demo server.
pub(crate) const DEMO: &str = "demo";

/// Applies the servers of the configuration file to the hub.
pub(super) async fn apply_servers(hub: &Hub, watched: &WatchedConfig) -> Result<(), CliError> {
    let servers = servers(&watched.config(), &|name| env_variable(name)?.into_string().ok())?;
    let conflicts = hub.registry().apply_config(TENANT, servers).await?;
    for slug in &conflicts {
        tracing::warn!(slug, "configured server skipped: another server has its slug");
    }
    watched.set_slug_conflicts(conflicts);
    Ok(())
}

/// Returns the configured servers, and the demo server unless the file configures another one with its slug.
fn servers(
    config: &Config,
    variables: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<ConfiguredServer>, CliError> {
    let mut servers = config.servers.clone();
    if !servers.iter().any(|server| server.slug.as_str() == DEMO) {
        servers.push(demo(config.demo)?);
    }
    for server in &mut servers {
        let Transport::Stdio(program) = &mut server.transport else { continue };
        let inherited = BASE_ENV_VARS.into_iter().chain(server.inherit.iter().map(String::as_str));
        let inherited = inherited.filter_map(|name| Some((name.to_owned(), variables(name)?)));
        let mut env: BTreeMap<_, _> = inherited.collect();
        if let Some(missing) = server.inherit.iter().find(|name| !env.contains_key(*name)) {
            tracing::warn!(
                server = server.slug.as_str(),
                variable = missing,
                "inherited environment variable is not set"
            );
        }
        program.inherited = env.keys().filter(|name| !program.env.contains_key(*name)).cloned().collect();
        env.append(&mut program.env);
        program.env = env;
    }
    Ok(servers)
}

/// Returns the demo server, which runs this executable.
fn demo(enabled: bool) -> Result<ConfiguredServer, CliError> {
    // Cache the path of the first start: the executable may be replaced while the hub runs.
    static OWN_EXECUTABLE: OnceLock<String> = OnceLock::new();
    let now = std::env::current_exe()?.to_string_lossy().into_owned();
    let command = OWN_EXECUTABLE.get_or_init(|| now).clone();
    let settings = ServerSettings {
        enabled,
        description: Some("Demonstrates the features of a server, without external effects".to_owned()),
        ..ServerSettings::with_name("Demo")
    };
    let transport = Transport::Stdio(ProgramSpec::new(command, &["demo"]));
    Ok(ConfiguredServer { slug: Slug::new(DEMO)?, settings, transport, inherit: Vec::new() })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn read(text: &str) -> Vec<ConfiguredServer> {
        let config = Config::parse(Path::new("linchpin.toml"), text).unwrap();
        let variables = |name: &str| match name {
            "PATH" | "TOKEN" | "SECRET" => Some(format!("the {name} of the hub")),
            _ => None,
        };
        servers(&config, &variables).unwrap()
    }

    #[test]
    fn a_program_gets_what_it_needs_and_what_was_said() {
        let servers = read(
            "[servers.a]\ncommand = \"x\"\nenv = { A = \"1\", PATH = \"/bin\" }\ninherit = [\"TOKEN\", \"MISSING\"]",
        );
        let Transport::Stdio(program) = &servers[0].transport else { panic!("{:?}", servers[0]) };
        let env: Vec<_> = program.env.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(env, [("A", "1"), ("PATH", "/bin"), ("TOKEN", "the TOKEN of the hub")]);
    }

    #[test]
    fn the_demo_server_is_there_beside_those_of_the_file() {
        let slugs =
            |text: &str| read(text).iter().map(|server| server.slug.as_str().to_owned()).collect::<Vec<_>>();
        assert_eq!(slugs(""), ["demo"]);
        assert!(read("")[0].settings.enabled && !read("demo = false")[0].settings.enabled);
        assert_eq!(slugs("[servers.demo]\nurl = \"https://a.example/mcp\""), ["demo"]);
        assert!(matches!(&read("")[0].transport, Transport::Stdio(program) if program.args == ["demo"]));
    }
}
