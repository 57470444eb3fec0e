//! Cancellation of requests: `notifications/cancelled`.

use linchpin_jsonrpc::Id;

use super::Meta;
use crate::encode::model;

model! {
    /// Parameters of `notifications/cancelled`.
    pub struct CancelledParams {
        /// Id of the request to cancel. One revision makes it optional, for tasks.
        request_id: Option<Id<'static>> = "requestId",
        /// Reason for the cancellation, for logs.
        reason: Option<String> = "reason",
        /// Metadata of the notification (`_meta`).
        meta: Option<Meta> = "_meta",
    }
}
