//! Identity provider of the test authority: exchanges ID tokens for assertions that another authority accepts.

use serde_json::json;

use crate::server::random_id;
use crate::testing::authority::clients::OAuthFault;
use crate::testing::authority::form;
use crate::testing::authority::http::{AuthorityReply, json as json_reply};
use crate::testing::authority::jwt::ParsedToken;
use crate::testing::authority::observed::RecordedRequest;
use crate::testing::authority::shared::{AuthorityShared, IDP_CLIENT};

pub(in crate::testing::authority) const ID_JAG: &str = "urn:ietf:params:oauth:token-type:id-jag";
const ID_TOKEN: &str = "urn:ietf:params:oauth:token-type:id_token";
const TOKEN_EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";

/// Lifetime of the tokens of the test identity provider, in seconds.
const LIFETIME: u64 = 300;

/// Exchanges an ID token for an assertion that another authority accepts.
pub(in crate::testing::authority) fn exchange(
    shared: &AuthorityShared,
    request: &RecordedRequest,
) -> AuthorityReply {
    try_exchange(shared, request).unwrap_or_else(|fault| fault.reply())
}

fn try_exchange(shared: &AuthorityShared, request: &RecordedRequest) -> Result<AuthorityReply, OAuthFault> {
    let mut state = shared.lock();
    let form = request.form();
    let parameter = |name| form::find(&form, name);
    let subject = parameter("subject_token").unwrap_or_default();
    state.record_secret(Some(subject));
    if parameter("grant_type") != Some(TOKEN_EXCHANGE) {
        return Err(OAuthFault::new("unsupported_grant_type", "only token exchange is supported"));
    }
    let kinds = (parameter("requested_token_type"), parameter("subject_token_type"));
    let (Some(audience), Some(resource)) = (parameter("audience"), parameter("resource")) else {
        return Err(OAuthFault::new("invalid_request", "audience and resource are required"));
    };
    if kinds != (Some(ID_JAG), Some(ID_TOKEN)) {
        return Err(OAuthFault::new("invalid_request", "only an ID token can be exchanged, for an ID-JAG"));
    }
    let now = state.now().as_secs();
    let is_valid = |token: &ParsedToken<'_>| {
        token.is_signed_by(&shared.key.jwk())
            && token.claim("iss") == shared.idp()
            && token.has_audience(&[IDP_CLIENT])
            && token.is_unexpired(now)
    };
    let Some(token) = ParsedToken::parse(subject).filter(is_valid) else {
        return Err(OAuthFault::new("invalid_grant", "the ID token is invalid or has expired"));
    };
    let claims = json!({
        "iss": shared.idp(), "sub": token.claim("sub"), "aud": audience, "resource": resource,
        "client_id": crate::testing::authority::KnownClient::Basic.id(), "scope": parameter("scope"),
        "jti": random_id(), "iat": now, "exp": now + LIFETIME,
    });
    let failed = |_| OAuthFault::new("server_error", "the token cannot be signed");
    let token = shared.key.sign("oauth-id-jag+jwt", &claims).map_err(failed)?;
    state.record_secret(Some(&token));
    let body = json!({ "issued_token_type": ID_JAG, "access_token": token, "token_type": "N_A",
        "expires_in": LIFETIME });
    Ok(json_reply(200, &body))
}
