//! What can be said of every tool, resource, template and prompt: the builder methods they share.

/// The methods, for a builder with a field `definition`.
macro_rules! describe {
    () => {
        /// The name for people.
        pub fn title(mut self, title: impl Into<String>) -> Self {
            self.definition.title = Some(title.into());
            self
        }

        /// What it is and does; of a tool, for the model.
        pub fn description(mut self, description: impl Into<String>) -> Self {
            self.definition.description = Some(description.into());
            self
        }

        /// Pictures to show.
        pub fn icons(mut self, icons: impl IntoIterator<Item = linchpin_protocol::model::Icon>) -> Self {
            self.definition.icons = Some(icons.into_iter().collect());
            self
        }

        /// Metadata of the definition.
        pub fn meta(mut self, meta: linchpin_protocol::model::Meta) -> Self {
            self.definition.meta = Some(meta);
            self
        }
    };
}

pub(crate) use describe;
