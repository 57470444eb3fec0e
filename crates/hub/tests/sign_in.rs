//! OAuth sign-in from the command line, with the authority of the test kit.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use linchpin::testing::authority::{Authority, Misbehaviour};
use support::LINCHPIN;

/// Separate home directory of one test.
struct Home(PathBuf);

impl Home {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path); // left by an earlier run
        std::fs::create_dir_all(&path).unwrap();
        Home(path)
    }

    fn linchpin(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(LINCHPIN);
        command
            .args(arguments)
            .env("HOME", &self.0)
            .env_remove("XDG_DATA_HOME")
            .env_remove("XDG_CONFIG_HOME");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs a command. Returns its exit code and its whole output.
    async fn run(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let mut command = self.linchpin(arguments);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        (output.status.code(), said.concat())
    }

    /// Returns all files below the home directory, as bytes.
    fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut folders = vec![self.0.clone()];
        let mut files = Vec::new();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    files.push((path.clone(), std::fs::read(&path).unwrap()));
                }
            }
        }
        files
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a command that requires a sign-in, and performs it.
async fn run_with_sign_in(home: &Home, authority: &Authority, arguments: &[&str]) -> (Option<i32>, String) {
    let mut child = home.linchpin(arguments).spawn().unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let url = tokio::task::spawn_blocking(move || {
        let mut lines = (&mut errors).lines().map(|line| line.unwrap());
        let url = lines.find(|line| line.trim().starts_with("http")).expect("a URL to open");
        std::thread::spawn(move || errors.lines().for_each(drop)); // read the rest, so that the command does not block
        url.trim().to_owned()
    });
    let redirect = authority.approve(&url.await.unwrap()).await.unwrap_or_else(|error| panic!("{error}"));
    let page = redirect.follow().await.unwrap_or_else(|error| panic!("{error}"));
    assert!(page.contains("Return to the application"), "{page}");
    let output = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()).await.unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_signs_in_once() {
    let (home, authority) = (Home::new("once"), Authority::start(Authority::conforming()).await.unwrap());
    let url = authority.mcp_url();
    let (code, said) = home.run(&["inspect", &url]).await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("sign-in required"), "{said}");

    let (code, said) = run_with_sign_in(&home, &authority, &["inspect", "--sign-in", &url]).await;
    assert_eq!(code, Some(0), "{said}");
    let visits = authority.observations().with_path("/authorize").count();
    let (code, said) = home.run(&["inspect", &url]).await;
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(
        authority.observations().with_path("/authorize").count(),
        visits,
        "no further authorization request"
    );

    let files = home.files();
    assert!(
        files.iter().any(|(path, _)| path.extension().is_some_and(|ending| ending == "sealed")),
        "{files:?}"
    );
    for secret in authority.secrets() {
        let leaks = |(_, bytes): &&(PathBuf, Vec<u8>)| {
            bytes.windows(secret.len()).any(|part| part == secret.as_bytes())
        };
        assert!(files.iter().find(leaks).is_none(), "a secret is stored in plain text");
    }

    let (code, said) = home.run(&["sign-out", &url]).await;
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = home.run(&["inspect", &url]).await;
    assert!(code == Some(1) && said.contains("sign-in required"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_shows_each_hop_of_signing_in() {
    let (home, authority) = (Home::new("hops"), Authority::start(Authority::conforming()).await.unwrap());
    let url = authority.mcp_url();
    let (code, said) = home.run(&["doctor", &url]).await;
    assert_eq!(code, Some(1), "{said}");
    for part in ["ok metadata", "ok authority", "!! sign-in", "--sign-in"] {
        assert!(said.contains(part), "{part} is missing in:\n{said}");
    }
    let (code, said) = run_with_sign_in(&home, &authority, &["doctor", "--sign-in", &url]).await;
    assert_eq!(code, Some(0), "{said}");
    for part in ["ok metadata", "ok authority", "ok registration", "ok sign-in", "ok token", "ok tools"] {
        assert!(said.contains(part), "{part} is missing in:\n{said}");
    }
}

/// Failed step of the doctor: name, reason and advice.
type Shown<'a> = (&'a str, &'a str, &'a str);

/// Asserts that only this step failed. Lines are wrapped, and the step may appear several times, once per URL.
#[track_caller]
fn assert_failed_at((step, reason, fix): Shown<'_>, said: &str) {
    let failed: Vec<_> = said.lines().filter_map(|line| line.trim_start().strip_prefix("!! ")).collect();
    assert!(!failed.is_empty() && failed.iter().all(|line| line.starts_with(step)), "{step}: {said}");
    let text = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, advice) = text.split_once("→ ").unwrap_or_else(|| panic!("no advice: {said}"));
    assert!(text.contains(reason), "{reason} is missing in:\n{said}");
    assert!(advice.contains(fix), "{fix} is missing in:\n{said}");
}

const ADVICE_SERVER: &str = "ask the operator of the MCP server";
const ADVICE_AUTHORITY: &str = "ask the operator of the authorization server";
const CLIENT_ID_OPTION: &str = "--client-id";

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_says_what_is_wrong_before_anybody_is_asked() {
    let home = Home::new("wrong");
    for (switch, shown) in [
        (Misbehaviour::ResourceMetadataHtml, ("metadata", "does not conform to RFC 9728", ADVICE_SERVER)),
        (
            Misbehaviour::ResourceElsewhere,
            ("metadata", "describes the resource `https://stranger.example/mcp`", "check the URL"),
        ),
        (
            Misbehaviour::NoAuthorizationServers,
            ("metadata", "the field `authorization_servers` is missing", ADVICE_SERVER),
        ),
        (
            Misbehaviour::ResourceMetadataRedirects,
            ("metadata", "another origin are not followed", ADVICE_SERVER),
        ),
        (Misbehaviour::IssuerWrong, ("authority", "must be exactly", ADVICE_AUTHORITY)),
        (Misbehaviour::MetadataHtml, ("authority", "does not conform to RFC 8414", ADVICE_AUTHORITY)),
        (
            Misbehaviour::TokenEndpointMissing,
            ("authority", "the field `token_endpoint` is missing", ADVICE_AUTHORITY),
        ),
        (Misbehaviour::PkceMissing, ("authority", "`S256`", ADVICE_AUTHORITY)),
        (Misbehaviour::MetadataRedirectLoop, ("authority", "too many redirects", ADVICE_AUTHORITY)),
        (
            Misbehaviour::RegistrationMissing,
            ("registration", "does not support dynamic registration", CLIENT_ID_OPTION),
        ),
        (Misbehaviour::RegistrationRefused, ("registration", "`invalid_redirect_uri`", CLIENT_ID_OPTION)),
        (
            Misbehaviour::RegistrationEndpointPrivate,
            ("registration", "10.0.0.1 is a private address", ADVICE_AUTHORITY),
        ),
    ] {
        let authority = Authority::start(Authority::conforming().with(switch)).await.unwrap();
        let (code, said) = home.run(&["doctor", "--sign-in", &authority.mcp_url()]).await;
        assert_eq!(code, Some(1), "{said}");
        assert_failed_at(shown, &said);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_shows_an_authority_that_is_down() {
    let authority = Authority::start(Authority::conforming()).await.unwrap();
    let down = authority.issuer().replace("/tenant", "/broken");
    authority.set_behaviour(Authority::conforming().resource_metadata("authorization_servers", vec![down]));
    let (code, said) = Home::new("down").run(&["doctor", "--sign-in", &authority.mcp_url()]).await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("ok metadata"), "{said}");
    assert_eq!(said.matches("!! authority").count(), 3, "all metadata URLs fail: {said}");
    assert_failed_at(("authority", "is unavailable (HTTP 500): try again later", ADVICE_AUTHORITY), &said);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_says_what_is_wrong_after_somebody_signed_in() {
    for (switch, shown) in [
        (Misbehaviour::AccessDenied, ("sign-in", "error `access_denied`", "an account with permission")),
        (Misbehaviour::IssWrong, ("sign-in", "comes from another authorization server", ADVICE_AUTHORITY)),
        (
            Misbehaviour::TokenHtmlError,
            ("token", "it responded with HTTP 500 and an HTML page", ADVICE_AUTHORITY),
        ),
        (
            Misbehaviour::TokenTypeUnknown,
            ("token", "its token has the unsupported type `mac`", ADVICE_AUTHORITY),
        ),
        (Misbehaviour::TokenEndpointPrivate, ("token", "10.0.0.1 is a private address", ADVICE_AUTHORITY)),
        (Misbehaviour::UnauthorizedForever, ("token", "the server rejected the token", ADVICE_SERVER)),
    ] {
        let authority = Authority::start(Authority::conforming().with(switch)).await.unwrap();
        let home = Home::new("refused"); // without a stored sign-in
        let (code, said) =
            run_with_sign_in(&home, &authority, &["doctor", "--sign-in", &authority.mcp_url()]).await;
        assert_eq!(code, Some(1), "{said}");
        for part in ["ok metadata", "ok authority", "ok registration"] {
            assert!(said.contains(part), "{part} is missing in:\n{said}");
        }
        assert_failed_at(shown, &said);
    }
}
