//! Stands in for `rounds` when the feature of that name is off: no call asks between two requests.

use std::sync::Arc;
use std::time::Instant;

use linchpin_jsonrpc::{Id, Params};
use linchpin_protocol::Revision;
use linchpin_protocol::model::RequestMeta;

use super::BoxFuture;
use super::connection::{Connection, Invocation};
use super::context::Client;
use super::request::Outcome;
use super::scope::Scope;

/// There is none.
pub(crate) enum Binding {}

/// There is none.
pub(crate) enum Round {}

#[derive(Default)]
pub(crate) struct Parking {}

impl Parking {
    #[expect(clippy::unused_self, reason = "the same face with and without the feature")]
    pub(crate) fn clear(&self) {}
}

pub(super) struct Fresh;

pub(super) struct Retry<'a> {
    pub(super) id: &'a Id<'a>,
    pub(super) method: &'a str,
    pub(super) params: &'a Params<'a>,
    pub(super) revision: Revision,
    pub(super) client: &'a Arc<Client>,
    pub(super) meta: Option<&'a RequestMeta>,
    pub(super) begun: Option<Instant>,
}

#[expect(clippy::unused_self, reason = "the same face with and without the feature")]
impl Connection {
    pub(super) fn binding(&self, _: &Scope<'_>, _: &Params<'_>) -> Option<Binding> {
        None
    }

    pub(super) fn ask_round(&self, call: Invocation, _: Option<Instant>, _: Option<Round>) -> Outcome {
        drop(call);
        Outcome::from(Err(crate::Error::setup("the feature `rounds` is off")))
    }

    pub(super) fn round_done(&self, outcome: Outcome, _: Revision, _: Option<Round>) -> Outcome {
        outcome
    }

    pub(super) fn resume(&self, _: &Retry<'_>) -> Result<Option<BoxFuture<()>>, Fresh> {
        Err(Fresh)
    }
}
