//! Tool definitions in the formats of model providers. Schemas are passed through unchanged.

use serde_json::{Value, json};

use super::drop_ambiguous_names;
use crate::actor::Actor;
use crate::error::{Error, Result};
use crate::hub::registry::Registry;
use crate::hub::{ToolFilter, ToolView};
use crate::tool::names::{MAX_NAME_LEN, MAX_NAME_LEN_SHORT, Slug, qualified_name};

/// Model provider in whose format tool definitions are exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProviderFormat {
    /// Tools of `OpenAI` chat completions.
    OpenAi,
    /// Tools of the Anthropic Messages API.
    Anthropic,
    /// Function declarations of Gemini.
    Gemini,
}

impl ProviderFormat {
    /// Returns the maximum length of a tool name that the provider accepts.
    fn max_name_len(self) -> usize {
        match self {
            ProviderFormat::Anthropic => MAX_NAME_LEN,
            ProviderFormat::OpenAi | ProviderFormat::Gemini => MAX_NAME_LEN_SHORT,
        }
    }
}

impl std::str::FromStr for ProviderFormat {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "openai" => Ok(ProviderFormat::OpenAi),
            "anthropic" => Ok(ProviderFormat::Anthropic),
            "gemini" => Ok(ProviderFormat::Gemini),
            _ => Err(Error::unknown_value("format", text, "use openai, anthropic or gemini")),
        }
    }
}

impl Registry {
    /// Returns the callable tools, sorted by name, as `tools` of a request to the provider.
    pub async fn export(
        &self,
        actor: Actor,
        format: ProviderFormat,
        filter: ToolFilter,
    ) -> Result<Vec<Value>> {
        let filter = ToolFilter { callable: Some(true), ..filter };
        let mut tools = self.tools(actor, &filter).await?;
        for tool in &mut tools {
            tool.name = qualified_name(&Slug::new(&tool.server)?, &tool.tool, format.max_name_len());
        }
        let mut tools = drop_ambiguous_names(tools);
        tools.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        let all = tools.iter().map(|tool| tool_definition(tool, format));
        Ok(match format {
            ProviderFormat::OpenAi | ProviderFormat::Anthropic => all.collect(),
            // Gemini expects all functions in one tool.
            ProviderFormat::Gemini if tools.is_empty() => Vec::new(),
            ProviderFormat::Gemini => vec![json!({ "functionDeclarations": all.collect::<Vec<_>>() })],
        })
    }
}

fn tool_definition(tool: &ToolView, format: ProviderFormat) -> Value {
    let schema = tool.definition.get("inputSchema").cloned().unwrap_or_else(|| json!({ "type": "object" }));
    let mut function = json!({ "name": tool.name });
    if let Some(text) = tool.definition.get("description").filter(|text| text.is_string()) {
        function["description"] = text.clone();
    }
    match format {
        ProviderFormat::OpenAi => {
            function["parameters"] = schema;
            json!({ "type": "function", "function": function })
        }
        ProviderFormat::Anthropic => {
            function["input_schema"] = schema;
            function
        }
        ProviderFormat::Gemini => {
            function["parametersJsonSchema"] = schema;
            function
        }
    }
}
