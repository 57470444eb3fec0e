//! Elicitation in URL mode after the user's consent: the interaction happens on a web page and may end long after the
//! request.

use std::fmt;

use linchpin_protocol::Method;
use linchpin_protocol::model::ElicitationCompleteParams;
use linchpin_protocol::version::Feature;

use crate::server::Context;

/// Elicitation by URL that the user has accepted, see [`Context::elicit_url`]. [`Self::complete`] reports the end of
/// the interaction.
pub struct UrlElicitation {
    cx: Context,
    id: String,
}

impl UrlElicitation {
    pub(in crate::server) fn new(cx: &Context, id: String) -> Self {
        UrlElicitation { cx: cx.clone(), id }
    }

    /// Notifies the client that the user has finished on the page (`notifications/elicitation/complete`), so that it
    /// can close its dialogue or repeat a request. May be called after the handler has returned.
    ///
    /// Only the last session-era revision has this notification; clients of other revisions receive none.
    pub fn complete(self) {
        if self.cx.revision().has(Feature::ElicitationIds) {
            let params = ElicitationCompleteParams { elicitation_id: self.id, meta: None };
            self.cx.send_after_end(Method::ElicitationComplete.name(), &params);
        }
    }
}

impl fmt::Debug for UrlElicitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UrlElicitation").field("id", &self.id).finish_non_exhaustive()
    }
}
