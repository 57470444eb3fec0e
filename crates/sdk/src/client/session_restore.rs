//! Restoration of the log level and subscriptions in a new session, after the server lost the old one.

use std::sync::Arc;

use linchpin_protocol::Method;
use linchpin_protocol::encode::to_vec;
use linchpin_protocol::model::{SetLevelParams, SubscribeParams};

use super::core::{ClientCore, RequestOptions};
use crate::lock::lock;

/// Sets the log level and resource subscriptions again in a new session.
pub(super) async fn restore(core: Arc<ClientCore>) {
    let level = *lock(&core.log_level);
    if let Some(level) = level {
        let params = to_vec(&SetLevelParams { level, meta: None }, core.revision());
        resend(&core, Method::SetLevel, params).await;
    }
    let subscribed: Vec<String> = lock(&core.subscriptions).keys().cloned().collect();
    for uri in subscribed {
        let params = to_vec(&SubscribeParams { uri, meta: None }, core.revision());
        resend(&core, Method::Subscribe, params).await;
    }
}

async fn resend(core: &ClientCore, method: Method, params: Vec<u8>) {
    let method = method.name();
    if let Err(error) = core.request(core.revision(), method, &params, &RequestOptions::default()).await {
        let server = core.server_label();
        tracing::warn!(server, method, %error, "failed to restore the log level or a subscription in the new session");
    }
}
