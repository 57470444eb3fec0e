//! Client registration, in this order: preregistered, client ID metadata document, or dynamic registration (RFC 7591).

use serde::Deserialize;
use serde_json::{Value, json};

use super::client_identity::{ClientAuthMethod, ClientIdentity};
use super::http::{FlowRequest, FlowResponse, Purpose};
use super::oauth_error::oauth_error;
use super::server_metadata::ServerMetadata;
use crate::auth::error::{AuthError, AuthErrorKind, error_position, sanitize};
use crate::auth::oauth::{OAuthConfig, PreregisteredClient};
use crate::auth::scopes::Scopes;
use crate::auth::secret::Secret;
use crate::egress::Target;

/// Maximum length of a client id or secret, in bytes.
const MAX_CLIENT_FIELD_LEN: usize = 4 << 10;

/// How many seconds before its secret expires a client registers again.
const REREGISTRATION_MARGIN: u64 = 60;

/// How the client gets its identity: it is already known, or it must register itself.
pub(in crate::auth) enum RegistrationMethod {
    Known(ClientIdentity),
    /// Dynamic registration with this request.
    Register(FlowRequest),
}

/// Selects how the client gets a client id: preregistered, metadata document, earlier or dynamic registration.
/// `earlier` is the client registered earlier at this authorization server, `scopes` are the scopes to register (`None`
/// to omit them), and `bound_to` is the issuer that received the client secret before.
pub(in crate::auth) fn select_method(
    profile: &OAuthConfig,
    server: &ServerMetadata,
    redirect_uri: Option<&str>,
    scopes: Option<&Scopes>,
    earlier: Option<ClientIdentity>,
    bound_to: Option<&str>,
    now: u64,
) -> Result<RegistrationMethod, AuthError> {
    if let Some(client) = &profile.client {
        let expected_issuer = profile.issuer.as_deref().or(bound_to);
        return preregistered(client, expected_issuer, server).map(RegistrationMethod::Known);
    }
    if let Some(url) = profile.document_url.as_ref().filter(|_| server.supports_client_id_documents) {
        return Ok(RegistrationMethod::Known(ClientIdentity::new(url, None, ClientAuthMethod::None)));
    }
    let still_good = |registered: &ClientIdentity| {
        registered.redirect_uri.as_deref() == redirect_uri
            && registered.expires_at.is_none_or(|end| end > now + REREGISTRATION_MARGIN)
            && registered
                .scopes
                .as_ref()
                .zip(scopes)
                .is_none_or(|(granted, required)| Scopes::parse(granted).covers(required))
    };
    if let Some(registered) = earlier.filter(still_good) {
        return Ok(RegistrationMethod::Known(registered));
    }
    match (&server.registration_endpoint, redirect_uri) {
        (Some(endpoint), Some(redirect_uri)) => {
            let document = client_metadata(profile, server, redirect_uri, scopes);
            Ok(RegistrationMethod::Register(FlowRequest::json(Purpose::Registration, endpoint, &document)))
        }
        _ => Err(AuthError::new(
            AuthErrorKind::Registration,
            format!(
                "`{}` does not know this client and does not support dynamic registration: register it \
                 there manually and set its client id",
                sanitize(&server.issuer)
            ),
        )),
    }
}

fn preregistered(
    client: &PreregisteredClient,
    issuer: Option<&str>,
    server: &ServerMetadata,
) -> Result<ClientIdentity, AuthError> {
    if let Some(issuer) = issuer.filter(|issuer| *issuer != server.issuer) {
        let text = format!(
            "the client id is registered at `{issuer}`, but the server now uses `{}`: register the client \
             there, too, and set its new id",
            sanitize(&server.issuer)
        );
        return Err(AuthError::new(AuthErrorKind::Registration, text));
    }
    let preferred: &[ClientAuthMethod] = match (&client.secret, client.has_key) {
        (_, true) => &[ClientAuthMethod::PrivateKey],
        (Some(_), false) => &[ClientAuthMethod::Basic, ClientAuthMethod::Post],
        (None, false) => &[ClientAuthMethod::None],
    };
    // A server that lists none of them may still accept one.
    let method = ClientAuthMethod::choose(preferred, server).unwrap_or(preferred[0]);
    Ok(ClientIdentity::new(&client.id, client.secret.clone(), method))
}

/// Builds the client metadata of a registration request.
fn client_metadata(
    profile: &OAuthConfig,
    server: &ServerMetadata,
    redirect_uri: &str,
    scopes: Option<&Scopes>,
) -> Value {
    let method = ClientAuthMethod::choose(
        &[ClientAuthMethod::None, ClientAuthMethod::Basic, ClientAuthMethod::Post],
        server,
    )
    .unwrap_or(ClientAuthMethod::None);
    let native = Target::configured(redirect_uri).is_ok_and(|uri| uri.is_secure() && !uri.is_https())
        || !redirect_uri.starts_with("http");
    let mut document = json!({
        "client_name": profile.name,
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method.name(),
        "application_type": if native { "native" } else { "web" },
    });
    if let Some(url) = &profile.website {
        document["client_uri"] = json!(url);
    }
    if let Some(scopes) = scopes.filter(|scopes| !scopes.is_empty()) {
        document["scope"] = json!(scopes.to_string());
    }
    document
}

#[derive(Deserialize)]
struct RegistrationResponse {
    client_id: Option<String>,
    client_secret: Option<String>,
    client_secret_expires_at: Option<u64>,
    token_endpoint_auth_method: Option<String>,
    redirect_uris: Option<Vec<String>>,
}

/// Parses the response to a registration request.
pub(in crate::auth) fn parse_response(
    reply: &FlowResponse,
    server: &ServerMetadata,
    redirect_uri: Option<&str>,
    scopes: Option<&Scopes>,
) -> Result<ClientIdentity, AuthError> {
    let failed = |problem: &str| {
        let text = format!("`{}` did not register this client: {problem}", sanitize(&server.issuer));
        AuthError::new(AuthErrorKind::Registration, text)
    };
    let advice = "register it there manually and set its client id";
    if !reply.is_success() {
        let (code, problem) = oauth_error(reply);
        return Err(failed(&format!("{problem}; {advice}")).with_code(code));
    }
    let answer: RegistrationResponse = serde_json::from_slice(&reply.body).map_err(|error| {
        failed(&format!("its response does not conform to RFC 7591 ({}); {advice}", error_position(&error)))
    })?;
    let is_valid_text = |text: &String| {
        !text.is_empty() && text.len() <= MAX_CLIENT_FIELD_LEN && !text.contains(char::is_control)
    };
    let id = answer
        .client_id
        .filter(is_valid_text)
        .ok_or_else(|| failed(&format!("its response has no valid `client_id`; {advice}")))?;
    let registered = answer.redirect_uris.as_ref();
    if registered.is_some_and(|uris| !uris.is_empty() && !uris.iter().any(|uri| Some(&**uri) == redirect_uri))
    {
        return Err(failed(&format!("it did not register the requested redirect URI; {advice}")));
    }
    let secret = answer.client_secret.filter(is_valid_text).map(Secret::from);
    let method = match (answer.token_endpoint_auth_method.as_deref(), &secret) {
        (_, None) => ClientAuthMethod::None,
        (Some(name), Some(_)) => {
            ClientAuthMethod::find(name).filter(|method| *method != ClientAuthMethod::PrivateKey).ok_or_else(
                || failed(&format!("it requires the unrequested method `{}`; {advice}", sanitize(name))),
            )?
        }
        (None, Some(_)) => {
            ClientAuthMethod::choose(&[ClientAuthMethod::Basic, ClientAuthMethod::Post], server)
                .unwrap_or(ClientAuthMethod::Basic)
        }
    };
    let expires_at = answer.client_secret_expires_at.filter(|end| *end != 0 && secret.is_some());
    let scopes = scopes.map(Scopes::to_string);
    let redirect_uri = redirect_uri.map(str::to_owned);
    Ok(ClientIdentity { redirect_uri, scopes, expires_at, ..ClientIdentity::new(&id, secret, method) })
}
