//! Types of the callbacks with which the connection pool reports what servers and the egress policy do.

use std::sync::Arc;

use linchpin::client::ListChanged;
use linchpin::egress::Denial;

use crate::actor::{Actor, Subject};
use crate::id::{ServerId, TenantId};

/// Callback for changes of the lists of a server.
pub type OnListChanged = Arc<dyn Fn(TenantId, ServerId, ListChanged) + Send + Sync>;

/// Callback for updates of a resource that a subject is subscribed to, with its URI.
pub type OnResourceUpdated = Arc<dyn Fn(TenantId, Subject, ServerId, &str) + Send + Sync>;

/// Callback for completed URL elicitations, with the subject of the connection and the id of the elicitation.
pub type OnElicitationCompleted = Arc<dyn Fn(TenantId, Subject, ServerId, &str) + Send + Sync>;

/// Callback for requests that the egress policy denies, with the actor and the server.
pub type OnDenied = Arc<dyn Fn(Actor, ServerId, &Denial<'_>) + Send + Sync>;
