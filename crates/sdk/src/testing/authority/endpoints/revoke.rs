//! Token revocation endpoint (RFC 7009) of the test authority.

use crate::testing::authority::clients;
use crate::testing::authority::form;
use crate::testing::authority::http::{AuthorityReply, html, reply};
use crate::testing::authority::misbehaviour::Misbehaviour::RevocationFails;
use crate::testing::authority::observed::RecordedRequest;
use crate::testing::authority::shared::{AuthorityShared, TestIssuer};

pub(in crate::testing::authority) fn revoke(
    shared: &AuthorityShared,
    issuer: TestIssuer,
    request: &RecordedRequest,
) -> AuthorityReply {
    let mut state = shared.lock();
    if state.behaviour.is_enabled(RevocationFails) {
        return html(503);
    }
    let client = match clients::authenticate(shared, &mut state, issuer, request) {
        Ok((client, _)) => client,
        Err(fault) => return fault.reply(),
    };
    let form = request.form();
    let token = form::find(&form, "token").unwrap_or_default();
    let refresh = state.refresh_tokens.get(token).map(|refresh| refresh.grant.clone());
    let grant = refresh.or_else(|| state.access_tokens.get(token).map(|access| access.grant.clone()));
    // Unknown tokens, and tokens of other clients, are ignored.
    if let Some(grant) = grant.filter(|grant| grant.client == client) {
        state.families[grant.family] = true;
        state.observed.revocations += 1;
    }
    reply(200, "text/plain", "")
}
