//! URL elicitations that a client has accepted, until their server reports that the user has finished on the page.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use jiff::{SignedDuration, Timestamp};

use crate::actor::Subject;
use crate::hub::calls::calling_client::CallingClient;
use crate::id::{ServerId, TenantId};
use crate::lock::lock;

/// Time after which the completion of an elicitation is not reported any more.
const LIFETIME: SignedDuration = SignedDuration::from_hours(1);
/// Maximum number of open elicitations.
const MAX_ELICITATIONS: usize = 10_000;

/// Connection and id of an elicitation: the id is chosen by the server, so that it is unique only there.
type ElicitationKey = (TenantId, Subject, ServerId, String);

/// Accepted URL elicitations, with the clients whose users were sent to the pages.
#[derive(Default)]
pub(in crate::hub) struct UrlElicitations(Mutex<HashMap<ElicitationKey, OpenElicitation>>);

/// Time until which the completion is reported, and the client that receives it.
type OpenElicitation = (Timestamp, Arc<dyn CallingClient>);

impl UrlElicitations {
    /// Adds an elicitation that is sent to a client.
    pub(in crate::hub) fn insert(&self, key: ElicitationKey, client: Arc<dyn CallingClient>, now: Timestamp) {
        let mut open = lock(&self.0);
        open.retain(|_, (expires, _)| *expires > now);
        if open.len() < MAX_ELICITATIONS {
            open.insert(key, (now.saturating_add(LIFETIME).unwrap_or(Timestamp::MAX), client));
        }
    }

    /// Notifies the client of an elicitation that its user has finished on the page.
    pub(super) fn complete(&self, tenant: TenantId, subject: Subject, server: ServerId, elicitation: &str) {
        let found = lock(&self.0).remove(&(tenant, subject, server, elicitation.to_owned()));
        if let Some((_, client)) = found {
            client.elicitation_completed(elicitation);
        }
    }
}
