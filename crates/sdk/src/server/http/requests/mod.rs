//! HTTP requests by method: POST, GET, and the HTTP+SSE transport of the first revision.

pub(super) mod exchange;
pub(super) mod get;
pub(super) mod legacy_sse;
pub(super) mod post;
