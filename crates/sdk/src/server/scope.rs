//! One request while it is being dispatched: everything borrowed, so that a handler that wants no context costs
//! no allocation.

use std::cell::{Cell, OnceCell};
use std::sync::Arc;

use linchpin_jsonrpc::{Id, Params};
use linchpin_protocol::Revision;
use linchpin_protocol::model::RequestMeta;

use super::cancel::Cancel;
use super::context::{Client, Context, Route};
use super::identity::Identity;
use super::questions::Log;
use super::state::StateMap;
use super::tool::ToolEntry;
use super::{Connection, Service};

/// A request on its way to its handler.
pub struct Scope<'a> {
    pub(crate) service: &'a Service,
    pub(crate) connection: &'a Arc<Connection>,
    pub(crate) id: &'a Id<'a>,
    pub(crate) method: &'a str,
    pub(crate) revision: Revision,
    pub(crate) client: &'a Arc<Client>,
    pub(crate) meta: Option<&'a RequestMeta>,
    pub(crate) meta_text: Option<&'a str>,
    /// State of a mounted server, in front of the server's own.
    pub(crate) state: OnceCell<Arc<StateMap>>,
    pub(crate) cancel: OnceCell<Arc<Cancel>>,
    pub(crate) context: OnceCell<Context>,
    /// The registered name of what is called, for those who watch.
    pub(crate) target: OnceCell<Arc<str>>,
    /// The tool that is called.
    pub(crate) tool: OnceCell<Arc<ToolEntry>>,
    /// What is known of a call that is done again.
    pub(crate) log: Cell<Option<Log>>,
}

impl<'a> Scope<'a> {
    pub(crate) fn new(
        connection: &'a Arc<Connection>,
        (id, method, params): (&'a Id<'a>, &'a str, &Params<'a>),
        revision: Revision,
        client: &'a Arc<Client>,
        meta: Option<&'a RequestMeta>,
    ) -> Self {
        let meta_text = params.find("_meta");
        Scope::with(connection, id, method, revision, client, meta, meta_text)
    }

    /// The scope of a request that has a context already, as layers need it.
    pub(crate) fn of_context(
        cx: &'a Context,
        connection: &'a Arc<Connection>,
        route: &'a Route,
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
        client: &'a Arc<Client>,
        meta: Option<&'a RequestMeta>,
        meta_text: Option<&'a str>,
    ) -> Self {
        Scope {
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

    /// The same request, with an end of its own.
    pub(crate) fn fork(&self) -> Scope<'a> {
        Scope::with(
            self.connection,
            self.id,
            self.method,
            self.revision,
            self.client,
            self.meta,
            self.meta_text,
        )
    }

    /// The identity of the sender, if it is known.
    pub(crate) fn identity(&self) -> Option<&Identity> {
        self.connection.identity().map(|identity| &**identity)
    }

    pub(crate) fn cancel(&self) -> Arc<Cancel> {
        self.cancel.get_or_init(Arc::default).clone()
    }

    pub(crate) fn context(&self) -> Context {
        self.context.get_or_init(|| Context::new(self)).clone()
    }

    /// What is called, if it is registered.
    pub(crate) fn target(&self) -> Option<&str> {
        let own = self.target.get().map(|target| &**target);
        own.or_else(|| self.context.get().and_then(Context::target))
    }

    /// The tool that is called, if it is resolved.
    pub(crate) fn tool(&self) -> Option<&Arc<ToolEntry>> {
        self.tool.get().or_else(|| self.context.get().and_then(Context::tool))
    }

    /// Notes the tool that is called, once it is resolved.
    pub(crate) fn set_tool(&self, tool: &Arc<ToolEntry>) {
        self.set_target(&tool.name, tool.state.as_ref());
        let _ = self.tool.set(tool.clone());
        if let Some(context) = self.context.get() {
            context.set_tool(tool);
        }
    }

    /// Notes what is called, once it is known to be registered.
    pub(crate) fn set_target(&self, name: &Arc<str>, state: Option<&Arc<StateMap>>) {
        let _ = self.target.set(name.clone());
        if let Some(state) = state {
            let _ = self.state.set(state.clone());
        }
        if let Some(context) = self.context.get() {
            context.set_target(name, state); // it was made before this was known, for a layer or `visible`
        }
    }
}
