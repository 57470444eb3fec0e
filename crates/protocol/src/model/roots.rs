//! Roots of the client: the directories that it works in.

use super::Meta;
use crate::encode::model;

model! {
    /// Directory or file of the client that a server may work on.
    pub struct Root {
        /// `file://` URI of the root folder.
        uri: String = "uri",
        /// Display name.
        name: Option<String> = "name",
        /// Metadata of the root (`_meta`).
        meta: Option<Meta> = "_meta" since ItemMeta,
    }
}

model! {
    /// Result of `roots/list`.
    pub struct ListRootsResult {
        /// All roots of the client.
        roots: Vec<Root> = "roots",
        /// Metadata of the result (`_meta`).
        meta: Option<Meta> = "_meta" since Sessions,
    }
}
