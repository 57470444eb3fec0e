//! Who somebody is: name, version and what to show of it.

use crate::encode::{model, words};

model! {
    /// The program on one side.
    #[derive(Default)]
    pub struct Implementation {
        /// The name for programs.
        name: String = "name",
        /// The name for people.
        title: Option<String> = "title" since Titles,
        /// Its version.
        version: String = "version",
        /// What it is, in a sentence.
        description: Option<String> = "description" since Icons,
        /// Where to read about it.
        website_url: Option<String> = "websiteUrl" since Icons,
        /// Pictures of it.
        icons: Option<Vec<Icon>> = "icons" since Icons,
    }

    /// A picture to show beside a name.
    pub struct Icon {
        /// An HTTPS or `data:` URI.
        src: String = "src",
        /// Its type, if the server's is missing or too general.
        mime_type: Option<String> = "mimeType",
        /// Sizes such as `48x48`, or `any`.
        sizes: Option<Vec<String>> = "sizes",
        /// The background it is made for.
        theme: Option<IconTheme> = "theme",
    }
}

words! {
    /// The background that an icon is made for.
    pub enum IconTheme {
        /// A light one.
        Light = "light",
        /// A dark one.
        Dark = "dark",
    }
}

impl Implementation {
    /// A name and a version.
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        Self { name: name.into(), version: version.into(), ..Self::default() }
    }
}
