//! Giving up a request.

use linchpin_jsonrpc::Id;

use super::Meta;
use crate::encode::model;

model! {
    /// The request that is no longer wanted.
    pub struct CancelledParams {
        /// Its id; one revision leaves it optional, for tasks.
        request_id: Option<Id<'static>> = "requestId",
        /// Why, for logs.
        reason: Option<String> = "reason",
        /// Metadata.
        meta: Option<Meta> = "_meta",
    }
}
