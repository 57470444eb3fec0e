//! Borrowed view of a registered definition, for visibility filters.

use linchpin_protocol::model;

/// Borrowed definition of a registered tool, resource, template, prompt or skill, for visibility filters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum DefinitionRef<'a> {
    /// Definition of a tool.
    Tool(&'a model::Tool),
    /// Definition of a resource.
    Resource(&'a model::Resource),
    /// Definition of a resource template.
    ResourceTemplate(&'a model::ResourceTemplate),
    /// Definition of a prompt.
    Prompt(&'a model::Prompt),
    /// Definition of a skill. If it is hidden, its files are hidden too.
    Skill(&'a model::Skill),
}

impl<'a> DefinitionRef<'a> {
    /// Returns the identifier of the definition: name of a tool or prompt, URI of a resource or skill, URI template of
    /// a template.
    pub fn name(&self) -> &'a str {
        match self {
            DefinitionRef::Tool(tool) => &tool.name,
            DefinitionRef::Resource(resource) => &resource.uri,
            DefinitionRef::ResourceTemplate(template) => &template.uri_template,
            DefinitionRef::Prompt(prompt) => &prompt.name,
            DefinitionRef::Skill(skill) => &skill.uri,
        }
    }
}
