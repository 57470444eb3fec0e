//! Tool definitions in the formats of model providers. Schemas are passed through unchanged.

use serde_json::{Value, json};

use super::tools::without_doubles;
use super::{Hub, ToolFilter, ToolView};
use crate::actor::Scope;
use crate::error::{Error, Result};
use crate::tool::names::{LONGEST, LONGEST_FOR_SOME, Slug, local};

/// Format of a model provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `OpenAI` chat completions.
    OpenAi,
    /// Anthropic messages.
    Anthropic,
    /// Gemini.
    Gemini,
}

impl Format {
    /// Returns the maximum length of a tool name that the provider accepts.
    fn longest_name(self) -> usize {
        match self {
            Format::Anthropic => LONGEST,
            Format::OpenAi | Format::Gemini => LONGEST_FOR_SOME,
        }
    }
}

impl std::str::FromStr for Format {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "openai" => Ok(Format::OpenAi),
            "anthropic" => Ok(Format::Anthropic),
            "gemini" => Ok(Format::Gemini),
            _ => Err(Error::not_one_of("format", text, "openai, anthropic or gemini")),
        }
    }
}

impl Hub {
    /// Returns the callable tools, sorted by name, as `tools` of a request to the provider.
    pub async fn export(&self, scope: Scope, format: Format, filter: ToolFilter) -> Result<Vec<Value>> {
        let filter = ToolFilter { callable: Some(true), ..filter };
        let mut tools = self.tools(scope, &filter).await?;
        for tool in &mut tools {
            tool.name = local(&Slug::new(&tool.server)?, &tool.tool, format.longest_name());
        }
        let mut tools = without_doubles(tools);
        tools.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        let all = tools.iter().map(|tool| described(tool, format));
        Ok(match format {
            Format::OpenAi | Format::Anthropic => all.collect(),
            // Gemini expects all functions in one tool.
            Format::Gemini if tools.is_empty() => Vec::new(),
            Format::Gemini => vec![json!({ "functionDeclarations": all.collect::<Vec<_>>() })],
        })
    }
}

fn described(tool: &ToolView, format: Format) -> Value {
    let schema = tool.definition.get("inputSchema").cloned().unwrap_or_else(|| json!({ "type": "object" }));
    let mut function = json!({ "name": tool.name });
    if let Some(text) = tool.definition.get("description").filter(|text| text.is_string()) {
        function["description"] = text.clone();
    }
    match format {
        Format::OpenAi => {
            function["parameters"] = schema;
            json!({ "type": "function", "function": function })
        }
        Format::Anthropic => {
            function["input_schema"] = schema;
            function
        }
        Format::Gemini => {
            function["parametersJsonSchema"] = schema;
            function
        }
    }
}
