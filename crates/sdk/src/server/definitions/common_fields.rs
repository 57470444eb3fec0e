//! Builder methods that tools, resources, templates and prompts have in common: title, description, icons and metadata.

/// Generates the methods for a builder with a field `definition`.
macro_rules! describe {
    () => {
        /// Sets the display name of the tool, resource, template or prompt.
        pub fn title(mut self, title: impl Into<String>) -> Self {
            self.definition.title = Some(title.into());
            self
        }

        /// Sets the description of the tool, resource, template or prompt; that of a tool is for the model.
        pub fn description(mut self, description: impl Into<String>) -> Self {
            self.definition.description = Some(description.into());
            self
        }

        /// Sets the icons of the tool, resource, template or prompt that clients can display.
        pub fn icons(mut self, icons: impl IntoIterator<Item = linchpin_protocol::model::Icon>) -> Self {
            self.definition.icons = Some(icons.into_iter().collect());
            self
        }

        /// Sets the `_meta` of the tool, resource, template or prompt.
        pub fn meta(mut self, meta: linchpin_protocol::model::Meta) -> Self {
            self.definition.meta = Some(meta);
            self
        }
    };
}

pub(crate) use describe;
