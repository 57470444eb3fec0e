//! Handling of notifications from the client, and sending of notifications to it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{self, Waker};

use linchpin_jsonrpc::{Id, Params};
use linchpin_protocol::model::CancelledParams;
use linchpin_protocol::wire::{self, InvalidValue, stateless_era};
use linchpin_protocol::{Method, Revision};

use super::super::BoxFuture;
use super::super::session::Session;
use super::client_state::notify;
use super::{Connection, UNKNOWN_CLIENT};
use crate::lock::lock;
use crate::server::request::scope::RequestScope;
use crate::server::request::work::{catch_panic, run_unit_catching_panics};

impl Connection {
    pub(super) fn notification(self: &Arc<Self>, method: &str, params: &Params<'_>) -> Option<BoxFuture<()>> {
        let known_method = Method::find(method);
        match known_method {
            Some(Method::Initialized) => self.session().into_iter().for_each(Session::set_initialized),
            Some(Method::Cancelled) => self.cancel(params),
            _ => {}
        }
        let method = known_method.map_or(method, |known_method| known_method.name());
        let handler = self.service().settings().notifications.get(method)?;
        let meta = stateless_era::request_meta(params).ok().flatten();
        let revision = self.session().map_or(Revision::LATEST, Session::revision);
        let client = self.session().map_or(&*UNKNOWN_CLIENT, Session::client).clone();
        let id = Id::Number(0);
        let scope = RequestScope::new(self, (&id, method, params), revision, &client, meta.as_ref());
        match catch_panic(|| handler.call(params.text().unwrap_or("{}"), &scope)) {
            Ok(Ok(work)) => {
                let (service, method) = (self.service().clone(), method.to_owned());
                let mut work: BoxFuture<()> = Box::pin(async move {
                    if let Err(panicked) = run_unit_catching_panics(work).await {
                        service.report(&panicked, &method, None);
                    }
                });
                let done = work.as_mut().poll(&mut task::Context::from_waker(Waker::noop())).is_ready();
                let limit = self.service().settings().max_in_flight;
                if !done && self.caller.active.load(Ordering::Acquire) >= limit {
                    tracing::warn!("notification dropped: too many requests in flight");
                    return None;
                }
                (!done).then_some(work)
            }
            Ok(Err(InvalidValue { path, reason })) => {
                tracing::warn!(method, path, reason, "malformed notification");
                None
            }
            Err(panicked) => {
                self.service().report(&panicked, method, None);
                None
            }
        }
    }

    fn cancel(&self, params: &Params<'_>) {
        // The specification requires that malformed, late and unknown cancellations are ignored.
        let Ok(params) = wire::decode::<CancelledParams>(params.text().unwrap_or("{}")) else { return };
        let Some(id) = params.request_id else { return };
        if let Some(pending) = lock(&self.caller.in_flight).get(&id) {
            tracing::debug!(%id, reason = params.reason, "request cancelled");
            pending.cancel.cancel();
        }
    }

    /// Sends a notification, unless the client reads too slowly or cannot receive notifications.
    pub(crate) fn notify(&self, message: impl FnOnce(&mut Vec<u8>)) {
        if !self.is_one_shot() {
            notify(self.outgoing(), message);
        }
    }
}
