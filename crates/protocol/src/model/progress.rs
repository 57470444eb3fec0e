//! How far a long request has come.

use linchpin_jsonrpc::Id;

use super::Meta;
use crate::encode::model;

model! {
    /// One step of progress.
    pub struct ProgressParams {
        /// The token of the request.
        progress_token: Id<'static> = "progressToken",
        /// How much is done; grows with each notification.
        progress: f64 = "progress",
        /// How much there is to do, if known.
        total: Option<f64> = "total",
        /// What is being done.
        message: Option<String> = "message" since ProgressMessage,
        /// Metadata.
        meta: Option<Meta> = "_meta",
    }
}
