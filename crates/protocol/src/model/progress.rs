//! Parameters of progress notifications for long-running requests.

use linchpin_jsonrpc::Id;

use super::Meta;
use crate::encode::model;

model! {
    /// Parameters of `notifications/progress`.
    pub struct ProgressParams {
        /// Progress token of the request.
        progress_token: Id<'static> = "progressToken",
        /// Progress so far. Increases with each notification.
        progress: f64 = "progress",
        /// Total amount of work, if known.
        total: Option<f64> = "total",
        /// Description of the current step.
        message: Option<String> = "message" since ProgressMessage,
        /// Metadata of the notification (`_meta`).
        meta: Option<Meta> = "_meta",
    }
}
