//! One request inside a server: dispatch, layers, context, cancellation and result.

pub(super) mod batch;
pub(super) mod cancellation;
pub(super) mod context;
pub(super) mod dispatch;
pub(super) mod layer;
pub(super) mod observe;
pub(super) mod result;
pub(super) mod scope;
pub(super) mod work;
