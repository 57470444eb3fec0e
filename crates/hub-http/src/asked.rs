//! One request, as its handler sees it: who asks, and what, already read and checked.

use std::sync::Arc;

use http::{HeaderMap, Method};
use linchpin_hub_core::Scope;
use linchpin_hub_core::form::Form;
use linchpin_hub_core::hub::Hub;
use linchpin_hub_core::hub::sessions::Remote;
use serde_json::Value;
use tokio::sync::Notify;

use crate::app::App;
use crate::problem::{Problem, Result};
use crate::query::Query;
use crate::session::Caller;

/// One request.
pub(crate) struct Asked {
    pub(crate) app: Arc<App>,
    pub(crate) caller: Option<Caller>,
    /// The client of the request.
    pub(crate) remote: Remote,
    /// The name of the session cookie.
    pub(crate) cookie: String,
    /// The parts of the path that are not always the same.
    pub(crate) path: Vec<(String, String)>,
    pub(crate) query: Query,
    /// What stands behind the `?`, as it was sent.
    pub(crate) raw_query: String,
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    /// What was sent; an empty object if nothing was.
    pub(crate) body: Value,
    /// Told when what was sent is not needed any more.
    pub(crate) is_read: Arc<Notify>,
}

impl Asked {
    pub(crate) fn hub(&self) -> &Arc<Hub> {
        &self.app.hub
    }

    /// Who asks.
    pub(crate) fn caller(&self) -> Result<&Caller> {
        self.caller.as_ref().ok_or_else(Problem::nobody)
    }

    /// Who asks, as the hub wants to know it.
    pub(crate) fn scope(&self) -> Result<Scope> {
        Ok(self.caller()?.scope)
    }

    /// A part of the path.
    pub(crate) fn path(&self, name: &str) -> &str {
        self.path.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    /// What was sent, field by field.
    pub(crate) fn form(&mut self) -> Result<Form> {
        Ok(Form::new(self.body.take())?)
    }
}
