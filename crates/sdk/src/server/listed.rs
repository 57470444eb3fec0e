//! Something registered, as those see it who decide who may see it.

use linchpin_protocol::model;

/// A tool, resource, template, prompt or skill, by its definition.
#[derive(Debug, Clone, Copy)]
pub enum Listed<'a> {
    /// A tool.
    Tool(&'a model::Tool),
    /// A resource.
    Resource(&'a model::Resource),
    /// A resource template.
    ResourceTemplate(&'a model::ResourceTemplate),
    /// A prompt.
    Prompt(&'a model::Prompt),
    /// A skill. Without it its files are not seen either.
    Skill(&'a model::Skill),
}

impl<'a> Listed<'a> {
    /// What it is asked for by: the name of a tool or prompt, the URI of a resource or skill, the text of a template.
    pub fn name(&self) -> &'a str {
        match self {
            Listed::Tool(tool) => &tool.name,
            Listed::Resource(resource) => &resource.uri,
            Listed::ResourceTemplate(template) => &template.uri_template,
            Listed::Prompt(prompt) => &prompt.name,
            Listed::Skill(skill) => &skill.uri,
        }
    }
}
