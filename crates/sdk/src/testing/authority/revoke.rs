//! Revocation endpoint (RFC 7009).

use super::clients;
use super::form;
use super::http::{Reply, html, reply};
use super::misbehavior::Switch::RevocationFails;
use super::observed::SeenRequest;
use super::shared::{Issuer, Shared};

pub(super) fn answer(shared: &Shared, issuer: Issuer, request: &SeenRequest) -> Reply {
    let mut state = shared.lock();
    if state.behaviour.has(RevocationFails) {
        return html(503);
    }
    let client = match clients::authenticate(shared, &mut state, issuer, request) {
        Ok((client, _)) => client,
        Err(fault) => return fault.reply(),
    };
    let form = request.form();
    let token = form::find(&form, "token").unwrap_or_default();
    let refresh = state.refresh.get(token).map(|refresh| refresh.grant.clone());
    let grant = refresh.or_else(|| state.access.get(token).map(|access| access.grant.clone()));
    // Unknown tokens, and tokens of other clients, are ignored.
    if let Some(grant) = grant.filter(|grant| grant.client == client) {
        state.families[grant.family] = true;
        state.seen.revocations += 1;
    }
    reply(200, "text/plain", "")
}
