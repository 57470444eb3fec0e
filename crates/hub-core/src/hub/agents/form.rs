//! What may stand in the fields of an agent.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::agent::{Agent, ApprovalMode, Selection};
use crate::error::{Error, Result};
use crate::form::Form;
use crate::hub::Hub;
use crate::hub::people::name;
use crate::id::{ServerId, TenantId};
use crate::server::{AT_ONCE, RATES};
use crate::text::shortened;

const LONGEST_NAME: usize = 100;
const LONGEST_INSTRUCTIONS: usize = 100_000;
const LONGEST_MODEL: usize = 200;
const MOST_SERVERS: usize = 500;
/// Of tools, of all servers together.
const MOST_NAMES: usize = 10_000;
const LONGEST_TOOL: usize = 1_000;

impl Hub {
    /// An agent with what somebody sent of it.
    pub(super) async fn read_agent(&self, tenant: TenantId, mut agent: Agent, value: Value) -> Result<Agent> {
        let mut form = Form::new(value)?;
        let is_given = |form: &Form, field: &str| form.members.contains_key(field);
        if is_given(&form, "name") || agent.name.is_empty() {
            let text = form.text("name", LONGEST_NAME)?;
            agent.name = name(&text.ok_or_else(|| Error::invalid("name", "an agent has a name"))?)?;
        }
        if is_given(&form, "instructions") {
            agent.instructions = form.text("instructions", LONGEST_INSTRUCTIONS)?.unwrap_or_default();
        }
        if is_given(&form, "model") {
            agent.model = form.text("model", LONGEST_MODEL)?.filter(|model| !model.trim().is_empty());
        }
        if is_given(&form, "approval") {
            agent.approval = match form.text("approval", 20)?.as_deref() {
                None | Some("always-ask") => ApprovalMode::AlwaysAsk,
                Some("auto") => ApprovalMode::Auto,
                Some("trusted-only") => ApprovalMode::TrustedOnly,
                Some(_) => {
                    return Err(Error::invalid("approval", "it is `auto`, `always-ask` or `trusted-only`"));
                }
            };
        }
        if is_given(&form, "enabled") {
            agent.enabled = form.flag("enabled")?.unwrap_or(true);
        }
        let limits = [
            ("calls_per_minute", RATES, &mut agent.calls_per_minute),
            ("calls_at_once", AT_ONCE, &mut agent.calls_at_once),
        ];
        for (field, range, limit) in limits {
            if is_given(&form, field) {
                *limit = form.number(field, range)?.and_then(|number| u32::try_from(number).ok());
            }
        }
        if is_given(&form, "servers") {
            let servers = form.object("servers")?;
            agent.servers = match servers {
                Some(servers) => self.read_servers(tenant, servers).await?,
                None => BTreeMap::new(),
            };
        }
        form.end()?;
        Ok(agent)
    }

    async fn read_servers(&self, tenant: TenantId, form: Form) -> Result<BTreeMap<ServerId, Selection>> {
        if form.members.len() > MOST_SERVERS {
            return Err(Error::invalid("servers", format!("an agent uses at most {MOST_SERVERS} servers")));
        }
        let (mut read, mut count) = (BTreeMap::new(), 0);
        for (name, mut inner) in form.objects()? {
            let field = format!("servers.{}", shortened(&name));
            let Some(server) = self.find_server_id(tenant, &name).await? else {
                let text = "there is no such server: its id or its slug stands here";
                return Err(Error::invalid(field, text));
            };
            let selection = Selection {
                tools: if inner.has("tools") { Some(tool_names(&mut inner, "tools")?) } else { None },
                trusted: tool_names(&mut inner, "trusted")?,
            };
            inner.end()?;
            count += selection.tools.as_ref().map_or(0, Vec::len) + selection.trusted.len();
            if count > MOST_NAMES {
                return Err(Error::invalid("servers", format!("at most {MOST_NAMES} tools can be named")));
            }
            if read.insert(server, selection).is_some() {
                return Err(Error::invalid(
                    field,
                    "the same server stands here twice, by its id and its slug",
                ));
            }
        }
        Ok(read)
    }
}

/// A list of tools, each once.
fn tool_names(form: &mut Form, field: &'static str) -> Result<Vec<String>> {
    let mut names = form.texts(field, MOST_NAMES, LONGEST_TOOL)?;
    if names.iter().any(String::is_empty) {
        return Err(form.error(field, format!("1 to {LONGEST_TOOL} characters are the name of a tool")));
    }
    names.sort_unstable();
    names.dedup();
    Ok(names)
}
