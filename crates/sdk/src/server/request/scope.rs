//! Data of one request while it is dispatched to its handler. Everything is borrowed, so that a handler without a
//! context needs no allocation.

use std::cell::{Cell, OnceCell};
use std::sync::Arc;

use linchpin_jsonrpc::{Id, Params};
use linchpin_protocol::Revision;
use linchpin_protocol::model::RequestMeta;

use super::cancellation::Cancel;
use super::context::{ClientInfo, Context, CurrentRequest};
use crate::server::definitions::shared_state::StateMap;
use crate::server::definitions::tool::ToolEntry;
use crate::server::identity::Identity;
use crate::server::input::mailbox::ReplayLog;
use crate::server::{Connection, Service};

/// Everything that the server knows of a request while it is dispatched to its handler.
pub struct RequestScope<'a> {
    pub(crate) service: &'a Service,
    pub(crate) connection: &'a Arc<Connection>,
    pub(crate) id: &'a Id<'a>,
    pub(crate) method: &'a str,
    pub(crate) revision: Revision,
    pub(crate) client: &'a Arc<ClientInfo>,
    pub(crate) meta: Option<&'a RequestMeta>,
    pub(crate) meta_text: Option<&'a str>,
    /// Shared state of the mounted server that the called definition comes from, searched before that of the outer
    /// server.
    pub(crate) state: OnceCell<Arc<StateMap>>,
    pub(crate) cancel: OnceCell<Arc<Cancel>>,
    pub(crate) context: OnceCell<Context>,
    /// Name of the called tool or prompt, or URI of the resource, as registered; reported to hooks.
    pub(crate) target: OnceCell<Arc<str>>,
    /// Tool that is called.
    pub(crate) tool: OnceCell<Arc<ToolEntry>>,
    /// Replay log with the earlier responses and steps, if this request replays an interrupted call.
    pub(crate) log: Cell<Option<ReplayLog>>,
}

impl<'a> RequestScope<'a> {
    pub(crate) fn new(
        connection: &'a Arc<Connection>,
        (id, method, params): (&'a Id<'a>, &'a str, &Params<'a>),
        revision: Revision,
        client: &'a Arc<ClientInfo>,
        meta: Option<&'a RequestMeta>,
    ) -> Self {
        let meta_text = params.find("_meta");
        RequestScope::with(connection, id, method, revision, client, meta, meta_text)
    }

    /// Returns the request scope for a layer's request, which already has a context.
    pub(crate) fn from_context(
        cx: &'a Context,
        connection: &'a Arc<Connection>,
        route: &'a CurrentRequest,
        method: &'a str,
    ) -> Self {
        let scope = cx.scope(connection, route, method);
        let _ = scope.context.set(cx.clone());
        scope
    }

    pub(crate) fn with(
        connection: &'a Arc<Connection>,
        id: &'a Id<'a>,
        method: &'a str,
        revision: Revision,
        client: &'a Arc<ClientInfo>,
        meta: Option<&'a RequestMeta>,
        meta_text: Option<&'a str>,
    ) -> Self {
        RequestScope {
            service: connection.service(),
            connection,
            id,
            method,
            revision,
            client,
            meta,
            meta_text,
            state: OnceCell::new(),
            cancel: OnceCell::new(),
            context: OnceCell::new(),
            target: OnceCell::new(),
            tool: OnceCell::new(),
            log: Cell::default(),
        }
    }

    /// Returns a copy of the request scope with its own cancellation state.
    pub(crate) fn fork(&self) -> RequestScope<'a> {
        RequestScope::with(
            self.connection,
            self.id,
            self.method,
            self.revision,
            self.client,
            self.meta,
            self.meta_text,
        )
    }

    /// Returns the authenticated identity of the client that sent the request, if known.
    pub(crate) fn identity(&self) -> Option<&Identity> {
        self.connection.identity().map(|identity| &**identity)
    }

    pub(crate) fn cancel(&self) -> Arc<Cancel> {
        self.cancel.get_or_init(Arc::default).clone()
    }

    pub(crate) fn context(&self) -> Context {
        self.context.get_or_init(|| Context::new(self)).clone()
    }

    /// Returns the name or URI of the called tool, prompt or resource, if it is registered.
    pub(crate) fn target(&self) -> Option<&str> {
        let own_target = self.target.get().map(|target| &**target);
        own_target.or_else(|| self.context.get().and_then(Context::target))
    }

    /// Returns the called tool, once its name is resolved.
    pub(crate) fn tool(&self) -> Option<&Arc<ToolEntry>> {
        self.tool.get().or_else(|| self.context.get().and_then(Context::tool))
    }

    /// Sets the called tool, once its name is resolved.
    pub(crate) fn set_tool(&self, tool: &Arc<ToolEntry>) {
        self.set_target(&tool.name, tool.state.as_ref());
        let _ = self.tool.set(tool.clone());
        if let Some(context) = self.context.get() {
            context.set_tool(tool);
        }
    }

    /// Sets the name of the called tool, prompt or resource, once it is known to be registered.
    pub(crate) fn set_target(&self, name: &Arc<str>, state: Option<&Arc<StateMap>>) {
        let _ = self.target.set(name.clone());
        if let Some(state) = state {
            let _ = self.state.set(state.clone());
        }
        if let Some(context) = self.context.get() {
            context.set_target(name, state); // created earlier, for a layer or the visibility filter
        }
    }
}
