//! Secrets do not leak: every sign-in method and failure, with everything that is logged, reported, printed by `Debug`
//! or shown in an error or a panic searched for every secret, in every encoding.
#![cfg(feature = "http")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::BTreeSet;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use http::HeaderMap;
use linchpin::auth::{
    Algorithm, ApiKey, AuthFuture, AuthRejection, Authorize, Basic, Bearer, Credentials, FileStore,
    IdentityProvider, OAuth, PrivateKey, Request, Secret, TokenStore,
};
use linchpin::egress::Egress;
use linchpin::testing::authority::{Authority, Behaviour, KnownClient, Misbehaviour};
use linchpin::{Client, ClientBuilder};
use serde_json::json;

#[path = "support/log_capture.rs"]
mod log_capture;
#[path = "support/signing_in.rs"]
mod signing_in;

use log_capture::LogCapture;

const DOCUMENT: &str = "https://app.example/client.json";

/// Creates a client with one sign-in method.
type Make = fn(&Arc<Authority>) -> OAuth;

fn public(authority: &Arc<Authority>) -> OAuth {
    signing_in::oauth(authority).client(KnownClient::Public.id())
}

fn basic(authority: &Arc<Authority>) -> OAuth {
    signing_in::oauth(authority).client_secret(KnownClient::Basic.id(), authority.secret(KnownClient::Basic))
}

fn post(authority: &Arc<Authority>) -> OAuth {
    signing_in::oauth(authority).client_secret(KnownClient::Post.id(), authority.secret(KnownClient::Post))
}

fn key(authority: &Authority) -> PrivateKey {
    PrivateKey::from_pem(&authority.client_key(), Algorithm::Es256).unwrap()
}

fn signed(authority: &Arc<Authority>) -> OAuth {
    signing_in::oauth(authority).client_key(KnownClient::Signed.id(), key(authority))
}

fn document(authority: &Arc<Authority>) -> OAuth {
    signing_in::oauth(authority).client_metadata_url(DOCUMENT)
}

fn credentials(authority: &Arc<Authority>) -> OAuth {
    OAuth::client_credentials(KnownClient::Basic.id(), authority.secret(KnownClient::Basic))
        .clock(authority.clock())
}

fn signed_credentials(authority: &Arc<Authority>) -> OAuth {
    OAuth::private_key_jwt(KnownClient::Signed.id(), key(authority)).clock(authority.clock())
}

fn workload(authority: &Arc<Authority>) -> OAuth {
    let (platform, clock) = (authority.clone(), authority.clock());
    let assertion = move |_| {
        let token = platform.workload_token().unwrap();
        async move { Ok(Secret::from(token)) }
    };
    OAuth::workload(KnownClient::Public.id(), assertion).clock(clock)
}

fn enterprise(authority: &Arc<Authority>) -> OAuth {
    let company = authority.clone();
    let id_token = move || {
        let token = company.id_token().unwrap();
        async move { Ok(Secret::from(token)) }
    };
    let provider = IdentityProvider::new(format!("{}/token", authority.idp()), "idp-client", id_token);
    let oauth = OAuth::enterprise(provider).clock(authority.clock());
    oauth.client_secret(KnownClient::Basic.id(), authority.secret(KnownClient::Basic))
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("auth_secrets")
}

fn kept(authority: &Arc<Authority>) -> OAuth {
    let store = FileStore::open(folder().join("kept"), folder().join("key")).unwrap();
    signing_in::oauth(authority).store(store)
}

fn ways() -> Vec<(&'static str, Behaviour, Make)> {
    let honest = Authority::conforming;
    let about = json!({ "client_id": DOCUMENT, "client_name": "A test", "redirect_uris": [signing_in::REDIRECT_URL] });
    vec![
        ("registered", honest(), signing_in::oauth),
        ("public", honest(), public),
        ("basic", honest(), basic),
        (
            "post",
            honest().metadata("token_endpoint_auth_methods_supported", json!(["client_secret_post"])),
            post,
        ),
        ("signed", honest(), signed),
        ("document", honest().document(DOCUMENT, about), document),
        ("client credentials", honest(), credentials),
        ("signed client credentials", honest(), signed_credentials),
        ("workload", honest(), workload),
        ("enterprise", honest(), enterprise),
        ("kept in files", honest(), kept),
        ("bound", honest().with(Misbehaviour::Dpop), basic),
        ("bound with nonces", honest().with(Misbehaviour::DpopNonce), signed),
        ("as of old", honest().with(Misbehaviour::NoMetadata), public),
    ]
}

/// Prints everything that passes between a client and its authorization scheme.
struct Tap {
    oauth: OAuth,
    ears: LogCapture,
}

impl Authorize for Tap {
    fn credentials<'a>(&'a self, request: Request<'a>) -> AuthFuture<'a, Credentials> {
        Box::pin(async move {
            let credentials = self.oauth.credentials(request).await;
            self.ears.append(&format!("{request:?} {credentials:?}"));
            credentials
        })
    }

    fn on_rejected<'a>(&'a self, request: Request<'a>, refusal: AuthRejection) -> AuthFuture<'a, bool> {
        self.ears.append(&format!("{request:?} {refusal:?}"));
        self.oauth.on_rejected(request, refusal)
    }

    fn on_response(&self, request: Request<'_>, mark: u64, status: u16, headers: &HeaderMap) {
        self.oauth.on_response(request, mark, status, headers);
    }
}

/// Records the text of an error and of its sources.
fn hear_error(ears: &LogCapture, error: &(dyn Error + 'static)) {
    ears.append(&format!("{error} {error:?} {error:#?}"));
    if let Some(source) = error.source() {
        hear_error(ears, source);
    }
}

/// Runs a lifecycle with an authority; returns the authority and the final outcome.
async fn live(behaviour: Behaviour, make: Make, ears: &LogCapture) -> (Arc<Authority>, String) {
    let authority = signing_in::start(behaviour).await;
    let step = ears.clone();
    let oauth = make(&authority).on_step(move |told| step.append(&format!("{told:?}")));
    let hop = ears.clone();
    let egress =
        Egress::builder().on_connect_step(move |told| hop.append(&format!("{told:?}"))).build().unwrap();
    let (line, message) = (ears.clone(), ears.clone());
    let tap = Tap { oauth: oauth.clone(), ears: ears.clone() };
    let set_up = |client: ClientBuilder<_>| {
        let client = client.auth(tap).egress(egress);
        client.on_diagnostic(move |text| line.append(text)).on_message(move |_, text| message.append(text))
    };
    let lived = signing_in::run_lifecycle_with(&authority, &oauth, set_up).await;
    ears.append(&format!("{oauth:?}"));
    let end = match lived {
        Ok(()) => "fine".to_owned(),
        Err(failure) => {
            hear_error(ears, &*failure.error);
            format!("{}: {}", failure.step, failure.error)
        }
    };
    (authority, end)
}

/// Returns all secrets that passed through an authority, and the key of its client.
fn secrets(authority: &Authority) -> BTreeSet<String> {
    let mut secrets: BTreeSet<_> = authority.secrets().into_iter().collect();
    for request in authority.observations().requests {
        let headers = ["authorization", "dpop"].map(|name| request.header(name).to_owned());
        let words = headers.iter().filter_map(|text| text.split(' ').next_back()).map(str::to_owned);
        secrets.extend(words.filter(|word| !word.is_empty()));
        let parameters = ["state", "code", "code_verifier", "client_secret", "refresh_token", "token"];
        secrets.extend(parameters.iter().filter_map(|name| request.parameter(name)));
    }
    secrets.extend(authority.client_key().lines().filter(|line| !line.starts_with('-')).map(str::to_owned));
    secrets
}

/// Returns the encodings of a secret. Base64 differs by the position at which the secret starts.
fn spellings(secret: &str) -> Vec<String> {
    let mut all = vec![secret.to_owned()];
    // A character has six bits: characters shared with neighbouring bytes are left out.
    for (shift, skipped) in [(0, 0), (1, 2), (2, 3)] {
        let shifted = [&b"xx"[..shift], secret.as_bytes()].concat();
        let whole = shifted.len() / 3 * 3;
        for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
            all.push(engine.encode(&shifted[..whole])[skipped..].to_owned());
        }
    }
    let bytes = |format: fn(u8) -> String| secret.bytes().map(format).collect::<Vec<_>>().concat();
    all.push(bytes(|byte| format!("{byte:02x}")));
    all.push(bytes(|byte| format!("{byte:02X}")));
    all.push(bytes(|byte| format!("%{byte:02x}")));
    all.push(bytes(|byte| format!("%{byte:02X}")));
    all.push(bytes(|byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    }));
    all.push(bytes(|byte| format!("{byte}, ")).trim_end_matches(", ").to_owned());
    all
}

/// Returns the secrets that occur in a text, as they are encoded there.
fn found(text: &str, secrets: &BTreeSet<String>) -> Vec<String> {
    let find = |secret: &String| spellings(secret).into_iter().find(|spelling| text.contains(spelling));
    secrets.iter().filter_map(find).collect()
}

#[test]
fn every_spelling_is_found() {
    let secret = "0123456789abcdef.~/+fedcba9876543210".to_owned();
    let secrets = BTreeSet::from([secret.clone()]);
    let is_found = |text: &str| found(text, &secrets).len() == 1;
    for text in ["", "a", "ab", "user:", "some-client:"].map(|before| format!("{before}{secret} after")) {
        for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
            assert!(is_found(&engine.encode(&text)), "{text}");
        }
        assert!(is_found(&text) && is_found(&format!("{:?}", text.as_bytes())), "{text}");
    }
    let digits = secret.bytes().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>();
    assert!(is_found(&digits.concat()) && is_found(&digits.concat().to_uppercase()));
    assert!(is_found(&format!("%{}", digits.join("%"))));
    assert!(is_found("code=0123456789abcdef.~%2F%2Bfedcba9876543210&"));
    assert!(!is_found("nothing of the kind"));
}

/// Runs clients with static credentials that are rejected.
async fn fixed(ears: &LogCapture) -> BTreeSet<String> {
    let authority = signing_in::start(Authority::conforming()).await;
    let secrets =
        ["bearer", "key", "word"].map(|name| format!("{name}-{}", authority.secret(KnownClient::Basic)));
    let [bearer, key, word] = secrets.clone();
    let (bearer, key, word) = (Bearer::new(bearer), ApiKey::new("x-api-key", key), Basic::new("user", word));
    ears.append(&format!("{bearer:?} {key:?} {word:?} {:?}", (bearer.clone(), key.clone(), word.clone())));
    let client = || Client::http(authority.mcp_url());
    for refused in [client().auth(bearer), client().auth(key), client().auth(word)] {
        hear_error(ears, &refused.connect().await.unwrap_err());
    }
    secrets.into()
}

/// Store that panics on save.
struct Falling;

impl TokenStore for Falling {
    fn load<'a>(&'a self, _: &'a str) -> AuthFuture<'a, Option<Secret>> {
        Box::pin(async { Ok(None) })
    }

    fn save<'a>(&'a self, key: &'a str, record: Secret) -> AuthFuture<'a, ()> {
        Box::pin(async move { panic!("the store fell over {key} {record:?}") })
    }

    fn remove<'a>(&'a self, _: &'a str) -> AuthFuture<'a, ()> {
        Box::pin(async { Ok(()) })
    }
}

/// User who signs in, while the redirect handler panics.
fn fainting(authority: &Arc<Authority>) -> OAuth {
    let person = authority.clone();
    let visit = move |url: String| {
        let person = person.clone();
        async move {
            person.approve(&url).await.unwrap();
            panic!("the person fainted")
        }
    };
    basic(authority).redirect(signing_in::REDIRECT_URL, visit)
}

/// Runs clients whose application code panics in the middle of a sign-in.
async fn panics(ears: &LogCapture) -> BTreeSet<String> {
    let (heard, before) = (ears.clone(), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |panic| {
        heard.append(&panic.to_string());
        before(panic);
    }));
    let authority = signing_in::start(Authority::conforming()).await;
    for (oauth, is_fatal) in [
        (basic(&authority).on_step(|step| panic!("unexpected step {step:?}")), false),
        (basic(&authority).store(Falling), true),
        (fainting(&authority), true),
    ] {
        let tap = Tap { oauth, ears: ears.clone() };
        let connected = Client::http(authority.mcp_url()).auth(tap).connect().await;
        assert_eq!(connected.is_err(), is_fatal);
        connected.map_or_else(|error| hear_error(ears, &error), drop);
    }
    let _ = std::panic::take_hook(); // do not capture other tests
    let said = ears.take();
    for panic in ["unexpected step AuthStep {", "the store fell over", "the person fainted"] {
        assert!(said.contains(panic), "{panic}: {said}");
    }
    ears.append(&said);
    assert_eq!(authority.observations().authorizations, 3, "secrets were issued");
    secrets(&authority)
}

/// Returns the content of the files of a store after a sign-in.
async fn in_files(ears: &LogCapture) -> BTreeSet<String> {
    let authority = signing_in::start(Authority::conforming()).await;
    let oauth = kept(&authority);
    let client = Client::http(authority.mcp_url()).auth(oauth.clone()).connect().await.unwrap();
    client.call("greet", ()).await.unwrap();
    let files = std::fs::read_dir(folder().join("kept")).unwrap().map(|file| file.unwrap().path());
    let files: Vec<_> = files.filter(|path| path.is_file()).collect();
    let written: Vec<_> = files.iter().map(|path| std::fs::read(path).unwrap()).collect();
    assert!(written.concat().len() > 500, "{files:?}");
    for bytes in written {
        ears.append(&String::from_utf8_lossy(&bytes));
    }
    let secrets = secrets(&authority);
    signing_in::sign_out(&authority, &oauth).await.unwrap();
    secrets
}

#[tokio::test]
async fn no_secret_is_shown() {
    let ears = LogCapture::default();
    tracing::subscriber::set_global_default(ears.clone()).unwrap();
    let (mut flows, mut checked, mut bytes) = (0, 0, 0);
    let mut check = |secrets: &BTreeSet<String>, what: &str, is_whole: bool| {
        let said = ears.take();
        assert!(said.len() > 500, "{what}: too little output");
        (flows, checked, bytes) = (flows + 1, checked + secrets.len(), bytes + said.len());
        // The log, the steps, the connections, the credentials and the rejections are all covered.
        let sinks = [
            "purpose=",
            "AuthStep {",
            "ConnectStep {",
            "Credentials {",
            "AuthRejection {",
            "was rejected with",
        ];
        assert!(!is_whole || sinks.iter().all(|sink| said.contains(sink)), "{what}: {said}");
        assert_eq!(found(&said, secrets), [""; 0], "{what}: {said}");
    };
    for (name, behaviour, make) in ways() {
        let (authority, end) = live(behaviour, make, &ears).await;
        assert_eq!(end, "fine", "{name}");
        check(&secrets(&authority), name, true);
    }
    let loud = Misbehaviour::ALL.iter().filter(|switch| !format!("{switch:?}").ends_with("Silent"));
    for &switch in loud {
        let (authority, _) = live(Authority::conforming().with(switch), basic, &ears).await;
        check(&secrets(&authority), &format!("{switch:?}"), true);
    }
    check(&fixed(&ears).await, "fixed", false);
    check(&in_files(&ears).await, "in files", false);
    check(&panics(&ears).await, "panics", false);
    eprintln!("flows={flows} secrets={checked} bytes={bytes} leaked=0");
    assert!(flows > 100 && checked > 1_000);
}
