//! Scenarios with OAuth. The user and the browser are simulated: the authorization server of the suite redirects at
//! once, whatever page it would show.

use anyhow::{Context, anyhow, ensure};
use linchpin::auth::{Algorithm, AuthError, AuthErrorKind, IdentityProvider, OAuth, PrivateKey, Secret};
use linchpin::egress::{Body, Egress, Target};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::Run;
use crate::scenarios::client;

const CLIENT_METADATA_URL: &str = "https://conformance-test.local/client-metadata.json";
const REDIRECT_URI: &str = "http://localhost:33418/callback";

pub(crate) async fn run_scenario(run: &Run) -> anyhow::Result<()> {
    let client = client(run).auth(oauth(run)?).connect().await?;
    let tools = client.tools().all().await?;
    ensure!(!tools.is_empty(), "the server has no tools");
    client.call("test-tool", json!({})).await?;
    client.close().await;
    Ok(())
}

#[derive(Deserialize)]
struct PreregisteredClient {
    client_id: String,
    client_secret: String,
}

#[derive(Deserialize)]
struct PrivateKeyClient {
    client_id: String,
    private_key_pem: String,
    signing_algorithm: String,
}

#[derive(Deserialize)]
struct Workload {
    client_id: String,
    valid_jwt: String,
}

#[derive(Deserialize)]
struct Enterprise {
    #[serde(rename = "idp_client_id")]
    client_id: String,
    #[serde(rename = "idp_id_token")]
    id_token: String,
    #[serde(rename = "idp_token_endpoint")]
    token_endpoint: String,
}

/// Parses the context that the scenario passes to its client.
fn parse_context<T: DeserializeOwned>(run: &Run) -> anyhow::Result<T> {
    T::deserialize(&run.context).context("invalid context of the scenario")
}

fn oauth(run: &Run) -> anyhow::Result<OAuth> {
    Ok(match &*run.scenario {
        "auth/client-credentials-basic" => {
            let known: PreregisteredClient = parse_context(run)?;
            OAuth::client_credentials(known.client_id, known.client_secret)
        }
        "auth/client-credentials-jwt" => {
            let keyed: PrivateKeyClient = parse_context(run)?;
            let algorithm: Algorithm = keyed.signing_algorithm.parse().map_err(|error| anyhow!("{error}"))?;
            OAuth::private_key_jwt(keyed.client_id, PrivateKey::from_pem(&keyed.private_key_pem, algorithm)?)
        }
        "auth/wif-jwt-bearer" => {
            let workload: Workload = parse_context(run)?;
            let assertion = Secret::new(workload.valid_jwt);
            OAuth::workload(workload.client_id, move |_| std::future::ready(Ok(assertion.clone())))
        }
        "auth/enterprise-managed-authorization" => {
            let (known, enterprise): (PreregisteredClient, Enterprise) =
                (parse_context(run)?, parse_context(run)?);
            let id_token = Secret::new(enterprise.id_token);
            let provider =
                IdentityProvider::new(enterprise.token_endpoint, enterprise.client_id, move || {
                    std::future::ready(Ok(id_token.clone()))
                });
            OAuth::enterprise(provider).client_secret(known.client_id, known.client_secret)
        }
        "auth/pre-registration" => {
            let known: PreregisteredClient = parse_context(run)?;
            oauth_with_user().client_secret(known.client_id, known.client_secret)
        }
        // Without a metadata URL: the document is not served, so its grant types could not be read.
        "auth/offline-access-scope" => oauth_with_user(),
        _ => oauth_with_user().client_metadata_url(CLIENT_METADATA_URL),
    })
}

fn oauth_with_user() -> OAuth {
    OAuth::new("conformance-client").redirect(REDIRECT_URI, follow_redirect)
}

/// Opens the authorization URL and returns the URL it redirects to.
async fn follow_redirect(url: String) -> Result<String, AuthError> {
    let failed = |what: String| AuthError::new(AuthErrorKind::UserAbandoned, what);
    let target = Target::configured(&url).map_err(|error| failed(error.to_string()))?;
    let request = http::Request::new(Body::empty());
    let response =
        Egress::default().send(request, &target).await.map_err(|error| failed(error.to_string()))?;
    let location = response.headers().get(http::header::LOCATION).and_then(|location| location.to_str().ok());
    location
        .map(str::to_owned)
        .ok_or_else(|| failed(format!("expected a redirect, got {}", response.status())))
}
