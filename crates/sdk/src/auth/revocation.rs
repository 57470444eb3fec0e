//! Giving tokens back (RFC 7009), when somebody signs out.

use super::error::{AuthError, AuthErrorKind, quoted};
use super::exchange::{Exchange, Purpose};
use super::oauth::Profile;
use super::record::Record;
use super::refusal::oauth_error;
use super::run::{now, send};
use crate::egress::{Egress, Target};

/// Gives back the token that renews others, or the only one. Servers that take none back are left alone.
pub(super) async fn revoke(
    record: &Record,
    profile: &Profile,
    server: &Target,
    egress: &Egress,
) -> Result<(), AuthError> {
    let Some(endpoint) = &record.revocation_endpoint else { return Ok(()) };
    let (token, kind) = match (&record.refresh_token, &record.access_token) {
        (Some(token), _) => (token, "refresh_token"),
        (None, Some(token)) => (token, "access_token"),
        (None, None) => return Ok(()),
    };
    let mut request = Exchange::form(Purpose::Revocation, endpoint);
    request.secret("token", token.expose());
    request.field("token_type_hint", kind);
    record.identity.sign(&mut request, profile.key.as_ref(), &record.issuer, now(profile))?;
    let reply = send(&request, profile, server, egress).await?;
    if reply.is_success() {
        return Ok(());
    }
    let (_, what) = oauth_error(&reply);
    let text = format!(
        "the sign-in is forgotten here, but `{}` did not take the token back: {what}",
        quoted(&record.issuer)
    );
    Err(AuthError::new(AuthErrorKind::Token, text))
}
