//! Folders that the client works in.

use super::Meta;
use crate::encode::model;

model! {
    /// One folder.
    pub struct Root {
        /// A `file://` URI.
        uri: String = "uri",
        /// What to call it.
        name: Option<String> = "name",
        /// Metadata.
        meta: Option<Meta> = "_meta" since ItemMeta,
    }
}

model! {
    /// The client's folders.
    pub struct ListRootsResult {
        /// All of them.
        roots: Vec<Root> = "roots",
        /// Metadata.
        meta: Option<Meta> = "_meta" since Sessions,
    }
}
