//! Input that a handler requests from its client: elicitation, sampling, roots, and multi round-trip requests.

pub(super) mod ask;
pub(super) mod elicitation_form;
pub(super) mod mailbox;
#[cfg(feature = "rounds")]
pub(super) mod rounds;
#[cfg(not(feature = "rounds"))]
#[path = "no_rounds.rs"]
pub(super) mod rounds;
pub(super) mod url_elicitation;
