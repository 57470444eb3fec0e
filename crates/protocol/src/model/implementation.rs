//! Identity of clients and servers: name, version and icons.

use crate::encode::{model, words};

model! {
    /// Name, version and display information of a client or server.
    #[derive(Default)]
    pub struct Implementation {
        /// Programmatic name.
        name: String = "name",
        /// Display name.
        title: Option<String> = "title" since Titles,
        /// Version of the client or server program.
        version: String = "version",
        /// Description.
        description: Option<String> = "description" since Icons,
        /// URL of the website of the client or server.
        website_url: Option<String> = "websiteUrl" since Icons,
        /// Icons to display.
        icons: Option<Vec<Icon>> = "icons" since Icons,
    }

    /// Icon of a server, client, tool, prompt or resource.
    pub struct Icon {
        /// HTTPS or `data:` URI of the image.
        src: String = "src",
        /// MIME type, to override a missing or generic one.
        mime_type: Option<String> = "mimeType",
        /// Sizes of the icon, such as `48x48`, or `any`.
        sizes: Option<Vec<String>> = "sizes",
        /// Theme that the icon is designed for.
        theme: Option<IconTheme> = "theme",
    }
}

words! {
    /// Theme that an icon is designed for.
    pub enum IconTheme {
        /// Light background.
        Light = "light",
        /// Dark background.
        Dark = "dark",
    }
}

impl Implementation {
    /// Creates an identity with a name and a version.
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        Self { name: name.into(), version: version.into(), ..Self::default() }
    }
}
