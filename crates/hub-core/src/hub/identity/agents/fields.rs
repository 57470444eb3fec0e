//! Fields of an agent: reading from a request body, and validation.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::agent::{Agent, ApprovalMode, ServerAccess};
use crate::error::{Error, Result};
use crate::hub::identity::Identity;
use crate::hub::identity::authenticator::check_name;
use crate::id::{ServerId, TenantId};
use crate::object_reader::ObjectReader;
use crate::server::{CONCURRENCY_RANGE, CredentialMode, RATE_RANGE};
use crate::store::DocumentKind;
use crate::text::shorten;
use crate::tool::ToolRecord;
use crate::uri_pattern;

const MAX_AGENT_NAME_LEN: usize = 100;
const MAX_INSTRUCTIONS_LEN: usize = 100_000;
const MAX_MODEL_LEN: usize = 200;
const MAX_AGENT_SERVERS: usize = 500;
/// Maximum number of tools that an agent may select, of all servers together.
const MAX_SELECTED_TOOLS: usize = 10_000;
const MAX_TOOL_NAME_LEN: usize = 1_000;
/// Maximum number of selected resources, and of selected prompts, of one server.
const MAX_SELECTED_FEATURES: usize = 100;
/// Minimum similarity of a suggested name, from 0 to 1.
const MIN_SIMILARITY: f64 = 0.6;
/// Maximum number of known names that an unknown name is compared with, for suggestions.
const MAX_COMPARED: usize = 1_000;
/// Maximum length, in characters, of tool names that are compared for suggestions.
const MAX_COMPARED_LEN: usize = 100;
/// Maximum number of similar names that the error of an unknown name suggests.
const MAX_SUGGESTIONS: usize = 3;
/// Maximum number of tool names that the error lists if no name is similar.
const MAX_LISTED_TOOLS: usize = 10;

impl Identity {
    /// Applies the fields of a request to an agent.
    pub(super) async fn read_agent(&self, tenant: TenantId, mut agent: Agent, value: Value) -> Result<Agent> {
        let mut form = ObjectReader::new(value)?;
        let is_present = |form: &ObjectReader, field: &str| form.members.contains_key(field);
        if is_present(&form, "name") || agent.name.is_empty() {
            let text = form.string("name", MAX_AGENT_NAME_LEN)?;
            agent.name = check_name(
                &text.ok_or_else(|| Error::invalid("name", "must be set: the name of the agent"))?,
            )?;
        }
        if is_present(&form, "instructions") {
            agent.instructions = form.string("instructions", MAX_INSTRUCTIONS_LEN)?.unwrap_or_default();
        }
        if is_present(&form, "model") {
            agent.model = form.string("model", MAX_MODEL_LEN)?.filter(|model| !model.trim().is_empty());
        }
        if is_present(&form, "approval") {
            agent.approval = match form.string("approval", 20)?.as_deref() {
                None | Some("always-ask") => ApprovalMode::AlwaysAsk,
                Some("auto") => ApprovalMode::Auto,
                Some("trusted-only") => ApprovalMode::TrustedOnly,
                Some(_) => {
                    return Err(Error::invalid("approval", "must be `auto`, `always-ask` or `trusted-only`"));
                }
            };
        }
        if is_present(&form, "enabled") {
            agent.enabled = form.boolean("enabled")?.unwrap_or(true);
        }
        if is_present(&form, "client_approvals") {
            agent.client_approvals = form.boolean("client_approvals")?.unwrap_or(true);
        }
        let limits = [
            ("calls_per_minute", RATE_RANGE, &mut agent.calls_per_minute),
            ("max_concurrent_calls", CONCURRENCY_RANGE, &mut agent.max_concurrent_calls),
        ];
        for (field, range, limit) in limits {
            form.also_accepts(field);
            if is_present(&form, field) {
                *limit = form.number(field, range)?.and_then(|number| u32::try_from(number).ok());
            }
        }
        if is_present(&form, "servers") {
            let servers = form.object("servers")?;
            agent.servers = match servers {
                Some(servers) => self.read_servers(tenant, servers, &agent.servers).await?,
                None => BTreeMap::new(),
            };
        }
        form.finish()?;
        Ok(agent)
    }

    /// Parses the tool selection of an agent. `before` is the selection that it replaces.
    async fn read_servers(
        &self,
        tenant: TenantId,
        form: ObjectReader,
        before: &BTreeMap<ServerId, ServerAccess>,
    ) -> Result<BTreeMap<ServerId, ServerAccess>> {
        if form.members.len() > MAX_AGENT_SERVERS {
            return Err(Error::invalid("servers", format!("must have at most {MAX_AGENT_SERVERS} servers")));
        }
        let (mut read, mut count) = (BTreeMap::new(), 0);
        for (name, mut inner) in form.objects()? {
            let field = format!("servers.{}", shorten(&name));
            let Some(server) = self.servers.find_server_id(tenant, &name).await? else {
                let text = "unknown server: use the id or the slug of a server";
                return Err(Error::invalid(field, text));
            };
            let has = |field| inner.has(field);
            let (has_tools, has_resources, has_prompts) = (has("tools"), has("resources"), has("prompts"));
            let selection = ServerAccess {
                tools: Some(tool_names(&mut inner, "tools")?).filter(|_| has_tools),
                resources: Some(resource_patterns(&mut inner)?).filter(|_| has_resources),
                prompts: Some(prompt_names(&mut inner)?).filter(|_| has_prompts),
                trusted: tool_names(&mut inner, "trusted")?,
            };
            inner.finish()?;
            count += selection.tools.as_ref().map_or(0, Vec::len) + selection.trusted.len();
            if count > MAX_SELECTED_TOOLS {
                return Err(Error::invalid(
                    "servers",
                    format!("must name at most {MAX_SELECTED_TOOLS} tools"),
                ));
            }
            self.check_tools(tenant, server, &selection, before.get(&server))
                .await
                .map_err(|error| error.with_field(&*field))?;
            if read.insert(server, selection).is_some() {
                return Err(Error::invalid(field, "must name each server once, by its id or its slug"));
            }
        }
        Ok(read)
    }

    /// Rejects tools that the server does not have. Accepts tools that were selected before, and all names if the tools
    /// of the server are unknown: it was never synced, or each agent sees other tools.
    async fn check_tools(
        &self,
        tenant: TenantId,
        server: ServerId,
        selection: &ServerAccess,
        before: Option<&ServerAccess>,
    ) -> Result<()> {
        let named = || selection.tools.iter().flatten().chain(&selection.trusted);
        let was_selected = |name: &String| {
            before.is_some_and(|before| {
                before.tools.iter().flatten().chain(&before.trusted).any(|tool| tool == name)
            })
        };
        if named().all(was_selected) || self.servers.contact(tenant, server).await?.0.last_synced.is_none() {
            return Ok(());
        }
        let server = match self.servers.find_server(tenant, &server.to_string()).await {
            Ok(server) if server.settings.credentials == CredentialMode::Shared => server,
            _ => return Ok(()),
        };
        let existing = self
            .context
            .load_all::<ToolRecord>(tenant, DocumentKind::Tool, Some(&server.id.to_string()))
            .await?;
        let existing: BTreeSet<_> = existing.into_iter().map(|(tool, _)| tool.name).collect();
        let Some(name) = named().find(|name| !was_selected(name) && !existing.contains(*name)) else {
            return Ok(());
        };
        Err(unknown_tool(server.slug.as_str(), name, &existing))
    }
}

/// Builds the error for an unknown tool, with similar names.
fn unknown_tool(slug: &str, name: &str, existing: &BTreeSet<String>) -> Error {
    let similarity = |candidate: &str| strsim::normalized_damerau_levenshtein(name, candidate);
    // Each comparison takes the product of both lengths. Names of very different lengths cannot reach `MIN_SIMILARITY`.
    let length = name.chars().count();
    let is_comparable = |candidate: &&String| {
        let other = candidate.chars().count();
        length.max(other) <= MAX_COMPARED_LEN && 2 * length.min(other) >= length.max(other)
    };
    let close = existing.iter().filter(is_comparable).take(MAX_COMPARED);
    let mut close: Vec<_> = close.map(|candidate| (similarity(candidate), candidate)).collect();
    close.retain(|(similarity, _)| *similarity >= MIN_SIMILARITY);
    close.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    let list = |names: Vec<&String>| {
        let names: Vec<_> = names.into_iter().map(|name| format!("`{}`", shorten(name))).collect();
        names.join(", ")
    };
    let advice = match (close.is_empty(), existing.is_empty()) {
        (false, _) => {
            format!(
                "did you mean {}?",
                list(close.into_iter().take(MAX_SUGGESTIONS).map(|(_, name)| name).collect())
            )
        }
        (true, false) => {
            format!("its tools include {}", list(existing.iter().take(MAX_LISTED_TOOLS).collect()))
        }
        (true, true) => "the server has no tools".to_owned(),
    };
    let name = shorten(name);
    let text = format!(
        "the server `{slug}` has no tool `{name}`: {advice}; `linchpin server sync {slug}` finds new tools"
    );
    Error::invalid("servers", text)
}

/// Parses a list of tool names and removes duplicates.
fn tool_names(form: &mut ObjectReader, field: &'static str) -> Result<Vec<String>> {
    let mut names = form.strings(field, MAX_SELECTED_TOOLS, MAX_TOOL_NAME_LEN)?;
    if names.iter().any(String::is_empty) {
        return Err(
            form.error(field, format!("must contain tool names of 1 to {MAX_TOOL_NAME_LEN} characters"))
        );
    }
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// Parses the selected resources of a server.
fn resource_patterns(form: &mut ObjectReader) -> Result<Vec<String>> {
    let patterns = form.strings("resources", MAX_SELECTED_FEATURES, uri_pattern::MAX_PATTERN_LEN)?;
    for pattern in &patterns {
        uri_pattern::check(pattern).map_err(|text| form.error("resources", text))?;
    }
    Ok(patterns)
}

/// Parses the selected prompts of a server.
fn prompt_names(form: &mut ObjectReader) -> Result<Vec<String>> {
    let names = form.strings("prompts", MAX_SELECTED_FEATURES, MAX_TOOL_NAME_LEN)?;
    if names.iter().any(String::is_empty) {
        return Err(form.error("prompts", "must contain prompt names, or `*` for all"));
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_bounded_length_are_compared() {
        let advice = |name: &str, existing: &str| {
            unknown_tool("up", name, &[existing.to_owned()].into()).message().contains("did you mean")
        };
        assert!(advice("serch", "search"));
        assert!(!advice("s", "search"));
        assert!(advice(&"n".repeat(99), &"n".repeat(100)));
        assert!(!advice(&"n".repeat(100), &"n".repeat(101)));
        let existing = (0..10_000).map(|number| format!("{number:01000}")).collect();
        assert!(unknown_tool("up", &"n".repeat(1_000), &existing).message().contains("its tools include `"));
    }
}
