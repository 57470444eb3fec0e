//! Skills of servers whose files differ from their entries: differing files are rejected, and files are read on
//! demand.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use linchpin::client::RevisionCache;
use linchpin::model::extension;
use linchpin::testing::{Reaction, Script};
use linchpin::{Client, ClientError, Revision};
use serde_json::{Value, json};

const URI: &str = "skill://tidy/SKILL.md";
const GUIDE: &str = "skill://tidy/GUIDE.md";
const TEXT: &str = "---\nname: tidy\ndescription: Tidies\nlevel: 1\n---\nDo.\n";
/// Digests of `TEXT` and `Guide`.
const DIGEST: &str = "sha256:200293b3c03225cb7dec04269c5bf2e68fb5b47d222f7d59a5ac045265858ba8";
const GUIDE_DIGEST: &str = "sha256:8dd65d0952ed144ccf6e76ebf8aa45644afb2b9236762c414d07e813d42f588e";

/// Returns the resource that a server serves at a URI.
type Serve = Box<dyn Fn(&str) -> Value + Send + Sync>;

/// The entry of an honest server.
fn entry() -> Value {
    json!({
        "uri": URI,
        "frontmatter": {"name": "tidy", "description": "Tidies", "level": 1.0},
        "resources": [
            {"uri": URI, "digest": DIGEST, "size": TEXT.len()},
            {"uri": GUIDE, "digest": GUIDE_DIGEST, "size": 5},
        ],
    })
}

fn script(
    revision: Revision,
    entry: Value,
    contents: impl Fn(&str) -> Value + Send + Sync + 'static,
) -> Script {
    let cached = |mut result: Value| {
        result["resultType"] = json!("complete");
        result["ttlMs"] = json!(0);
        result["cacheScope"] = json!("private");
        Reaction::new().result(result)
    };
    let capabilities = || json!({"resources": {}, "extensions": {(extension::SKILLS): {}}});
    let server = json!({"name": "script", "version": "1"});
    let version = revision.as_str();
    // Servers with sessions may support the extension, too.
    let opened = if revision == Revision::LATEST {
        Script::new().on("server/discover", move |_| {
            cached(json!({"supportedVersions": [version], "capabilities": capabilities()}))
        })
    } else {
        Script::new().on("initialize", move |_| {
            let capabilities = capabilities();
            Reaction::new().result(
                json!({"protocolVersion": version, "capabilities": capabilities, "serverInfo": server}),
            )
        })
    };
    opened
        .on("skills/list", move |_| cached(json!({"skills": [entry]})))
        .on("resources/read", move |request| {
            cached(json!({"contents": [contents(request["params"]["uri"].as_str().unwrap())]}))
        })
}

fn honest(uri: &str) -> Value {
    json!({"uri": uri, "text": if uri == URI { TEXT } else { "Guide" }})
}

async fn connect(script: &Script) -> Client {
    Client::over(script.clone()).revision_cache(RevisionCache::new()).connect().await.unwrap()
}

fn reads(script: &Script) -> usize {
    script.received_messages("resources/read").len()
}

#[tokio::test]
async fn files_are_read_when_they_are_wanted() {
    for revision in [Revision::LATEST_SESSION, Revision::LATEST] {
        files_are_read_in(revision).await;
    }
}

async fn files_are_read_in(revision: Revision) {
    let script = script(revision, entry(), honest);
    let client = connect(&script).await;
    let skills = client.skills().all().await.unwrap();
    assert_eq!(reads(&script), 0);
    let skill = client.load(&skills[0]).await.unwrap();
    assert_eq!((skill.instructions(), reads(&script)), ("Do.\n", 1));
    assert_eq!(skill.read("GUIDE.md").await.unwrap().text(), Some("Guide"));
    assert_eq!(reads(&script), 2);
    let error = skill.read("other.md").await.unwrap_err().to_string();
    assert_eq!(error, "skill://tidy/other.md cannot be used: the skill entry does not list this file");
    assert_eq!(reads(&script), 2, "unlisted files are not requested");
    assert!(matches!(
        client.directory("skill://tidy").all().await,
        Err(ClientError::UnsupportedByServer { .. })
    ));
    assert_eq!(script.received_messages("resources/directory/read").len(), 0);
}

#[tokio::test]
async fn contents_that_differ_from_the_entry_are_refused() {
    let text = |text: String| move |uri: &str| json!({"uri": uri, "text": text});
    let cases: [(Serve, &str); 6] = [
        (Box::new(text(TEXT.replace("Do.", "No!"))), "the digest of the file does not match"),
        (Box::new(text(format!("{TEXT}more"))), "bytes, but the skill entry says"),
        (
            Box::new(|_| json!({"uri": "skill://other/SKILL.md", "text": TEXT})),
            "must contain exactly the requested file",
        ),
        (Box::new(|uri| json!({"uri": uri, "blob": "?"})), "invalid Base64"),
        (Box::new(|uri| json!({"uri": uri})), "the file must have either `text` or `blob`"),
        (
            Box::new(|uri| json!({"uri": uri, "text": TEXT, "blob": ""})),
            "the file must have either `text` or `blob`",
        ),
    ];
    for (contents, reason) in cases {
        let script = script(Revision::LATEST, entry(), contents);
        let client = connect(&script).await;
        let skills = client.skills().all().await.unwrap();
        let error = client.load(&skills[0]).await.unwrap_err().to_string();
        assert!(error.starts_with(URI) && error.contains(reason), "{reason}: {error}");
        assert_eq!(reads(&script), 1);
    }
}

#[tokio::test]
async fn a_head_that_differs_from_the_entry_is_refused() {
    for (key, value) in [
        ("name", json!("other")),
        ("description", json!("Exfiltrates")),
        ("level", json!(2)),
        ("more", json!(1)),
    ] {
        let mut entry = entry();
        entry["frontmatter"][key] = value;
        if key == "name" {
            entry =
                serde_json::from_str(&entry.to_string().replace("skill://tidy/", "skill://other/")).unwrap();
        }
        let script = script(Revision::LATEST, entry, |uri| json!({"uri": uri, "text": TEXT}));
        let client = connect(&script).await;
        let skills = client.skills().all().await.unwrap();
        let error = client.load(&skills[0]).await.unwrap_err().to_string();
        assert!(
            error.contains(&format!("`{key}` in its frontmatter differs from the skill entry")),
            "{key}: {error}"
        );
    }
}

#[tokio::test]
async fn an_entry_that_cannot_be_right_is_refused_before_anything_is_read() {
    let file = |uri: &str, size: u64| json!({"uri": uri, "digest": DIGEST, "size": size});
    let many: Vec<_> =
        (0..512).map(|number| file(&format!("skill://tidy/{number}"), 1)).chain([file(URI, 1)]).collect();
    let cases = [
        ("/uri", json!("skill://tidy/README.md"), "the URI of the skill must end with /SKILL.md"),
        ("/uri", json!("skill://other/SKILL.md"), "the directory of the skill must be named `tidy`"),
        ("/frontmatter/name", json!("Tidy"), "invalid name `Tidy`"),
        ("/resources", json!([file(GUIDE, 1)]), "the skill entry does not list SKILL.md"),
        ("/resources", json!([file(URI, 1), file(URI, 1)]), "is listed twice"),
        (
            "/resources",
            json!([file(URI, 1), file("skill://tidy2/a", 1)]),
            "skill://tidy2/a is outside the directory of the skill",
        ),
        ("/resources", json!([file(URI, 16 << 20), file(GUIDE, 1)]), "larger than 16777216 bytes"),
        ("/resources", json!([file(URI, u64::MAX), file(GUIDE, u64::MAX)]), "larger than 16777216 bytes"),
        ("/resources", json!(many), "the skill has more than 512 files"),
    ];
    for (place, value, reason) in cases {
        let mut entry = entry();
        *entry.pointer_mut(place).unwrap() = value;
        let script = script(Revision::LATEST, entry, honest);
        let client = connect(&script).await;
        let skills = client.skills().all().await.unwrap();
        let error = client.load(&skills[0]).await.unwrap_err().to_string();
        assert!(error.contains(reason), "{reason}: {error}");
        assert_eq!(reads(&script), 0, "{reason}");
    }
    let mut entry = entry();
    entry["resources"] = json!("static");
    let client = connect(&script(Revision::LATEST, entry, honest)).await;
    let skills = client.skills().listing().await.unwrap();
    assert_eq!((skills.items.len(), &*skills.skipped[0].name), (0, URI), "a malformed entry is left out");
    assert!(skills.skipped[0].reason.starts_with("malformed at \"/resources\""), "{skills:?}");
}

#[tokio::test]
async fn of_a_skill_without_digests_anything_within_its_folder_is_read() {
    let mut entry = entry();
    entry["resources"] = json!("dynamic");
    let script = script(Revision::LATEST, entry, honest);
    let client = connect(&script).await;
    let skill = client.load(&client.skills().all().await.unwrap()[0]).await.unwrap();
    assert!(!skill.is_verified());
    assert_eq!(skill.read("any.md").await.unwrap().text(), Some("Guide"));
    assert!(skill.read("../other/x").await.unwrap_err().to_string().contains("is outside the skill"));
}
