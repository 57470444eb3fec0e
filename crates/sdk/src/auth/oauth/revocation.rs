//! Token revocation at sign-out (RFC 7009).

use super::OAuthConfig;
use super::runner::{now, send};
use crate::auth::error::{AuthError, AuthErrorKind, sanitize};
use crate::auth::flow::http::{FlowRequest, Purpose};
use crate::auth::flow::oauth_error::oauth_error;
use crate::auth::store::record::TokenRecord;
use crate::egress::{Egress, Target};

/// Revokes the refresh token, or else the access token. Does nothing if the server has no revocation endpoint.
pub(in crate::auth) async fn revoke(
    record: &TokenRecord,
    profile: &OAuthConfig,
    server: &Target,
    egress: &Egress,
) -> Result<(), AuthError> {
    let Some(endpoint) = &record.revocation_endpoint else { return Ok(()) };
    let (token, kind) = match (&record.refresh_token, &record.access_token) {
        (Some(token), _) => (token, "refresh_token"),
        (None, Some(token)) => (token, "access_token"),
        (None, None) => return Ok(()),
    };
    let mut request = FlowRequest::form(Purpose::Revocation, endpoint);
    request.secret_field("token", token.expose());
    request.field("token_type_hint", kind);
    record.identity.authenticate(&mut request, profile.key.as_ref(), &record.issuer, now(profile))?;
    let reply = send(&request, profile, server, egress).await?;
    if reply.is_success() {
        return Ok(());
    }
    let (_, description) = oauth_error(&reply);
    let text = format!(
        "the stored token is deleted, but `{}` did not revoke it: {description}",
        sanitize(&record.issuer)
    );
    Err(AuthError::new(AuthErrorKind::Token, text))
}
