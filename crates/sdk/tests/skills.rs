//! Skills of a server, in every revision and transport, and invalid skills.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::path::PathBuf;

use linchpin::client::{DirectoryEntry, ListChanged};
use linchpin::model::{SkillResources, extension};
use linchpin::server::DefinitionRef;
use linchpin::testing::matrix;
use linchpin::{Client, ClientError, Context, Error, Resource, Server, Skill};
use serde_json::{Value, json};
use support::{Peer, STATELESS};
use tokio::sync::mpsc;

const PDF: &str = "skill://pdf-processing/SKILL.md";
const REFUNDS: &str = "skill://acme/billing/refunds/SKILL.md";
const LIVE: &str = "skill://live/SKILL.md";
const SKILL_MD: &str = "---\nname: pdf-processing\ndescription: Extracts and fills\nmetadata:\n  version: 2.1\n---\n\
                        Read references/FORMS.md first.\n";

fn pdf() -> Skill {
    Skill::from_text(SKILL_MD)
        .file("references/FORMS.md", "# Forms\n")
        .file("templates/invoice.md", "Invoice")
        .file("templates/regional/eu invoice.md", "EU")
        .file("logo.bin", [0xff, 0x00, 0x01])
}

fn refunds() -> Skill {
    Skill::new("refunds", "Refunds: \"how\" to")
        .under("acme/billing")
        .field("license", "MIT")
        .instructions("Be kind.\n")
        .unlisted()
}

fn live() -> Skill {
    Skill::new("live", "Changes all the time")
        .file_with("now.md", |cx: Context| async move { format!("client: {}", cx.client().is_some()) })
}

fn server() -> Server {
    Server::new("skills", "1").add(pdf()).add(refunds()).add(live())
}

fn code(error: &ClientError) -> i64 {
    let ClientError::Call(linchpin::CallError::Rejected(error)) = error else { panic!("{error}") };
    error.code
}

fn names(children: &[DirectoryEntry]) -> Vec<(&str, bool)> {
    children
        .iter()
        .map(|child| (&*child.resource().name, matches!(child, DirectoryEntry::Directory(_))))
        .collect()
}

#[test]
fn files_are_resources_everywhere_and_skills_where_the_revision_has_extensions() {
    matrix(&server().build().unwrap(), |case| async move {
        let client = case.client().connect().await?;
        let resources = client.resources().all().await?;
        let skill_md = resources.iter().find(|resource| resource.uri == PDF).unwrap();
        assert_eq!(
            (&*skill_md.name, skill_md.description.as_deref()),
            ("pdf-processing", Some("Extracts and fills"))
        );
        assert_eq!(
            (skill_md.mime_type.as_deref(), skill_md.size),
            (Some("text/markdown"), Some(SKILL_MD.len() as u64))
        );
        assert_eq!(client.read(PDF).await?.contents[0].text.as_deref(), Some(SKILL_MD));
        let bytes = client.read("skill://pdf-processing/logo.bin").await?;
        assert_eq!(
            (bytes.contents[0].blob.as_deref(), bytes.contents[0].mime_type.as_deref()),
            (Some("/wAB"), Some("application/octet-stream"))
        );
        if case.revision() == STATELESS { with_extension(&client).await } else { without(&client).await }
    });
}

async fn without(client: &Client) -> Result<(), ClientError> {
    assert!(!client.has_extension(extension::SKILLS));
    let error = client.skills().all().await.unwrap_err();
    assert_eq!(error.to_string(), "the server does not support skills/list");
    assert_eq!(code(&client.skill(PDF).await.unwrap_err()), -32601);
    assert!(matches!(
        client.directory("skill://pdf-processing").all().await,
        Err(ClientError::UnsupportedByServer { .. })
    ));
    Ok(())
}

async fn with_extension(client: &Client) -> Result<(), ClientError> {
    assert_eq!(
        client.capabilities().extensions.as_ref().unwrap()[extension::SKILLS],
        json!({"directoryRead": true})
    );
    let skills = client.skills().all().await?;
    assert_eq!(skills.iter().map(|skill| &*skill.uri).collect::<Vec<_>>(), [PDF, LIVE], "one is not listed");
    assert_eq!(skills[0].frontmatter.other_members["metadata"], json!({"version": 2.1}));
    let SkillResources::Files(files) = &skills[0].resources else { panic!("it is not dynamic") };
    let uris: Vec<_> = files.iter().map(|file| &*file.uri).collect();
    assert_eq!(
        uris,
        [
            PDF,
            "skill://pdf-processing/logo.bin",
            "skill://pdf-processing/references/FORMS.md",
            "skill://pdf-processing/templates/invoice.md",
            "skill://pdf-processing/templates/regional/eu%20invoice.md",
        ]
    );
    assert_eq!((files[2].size, files[2].digest.len()), (8, 71));

    let pdf = client.load(&client.skill(PDF).await?).await?;
    assert_eq!((pdf.name(), pdf.instructions()), ("pdf-processing", "Read references/FORMS.md first.\n"));
    assert!(pdf.is_verified());
    assert_eq!(pdf.read("references/FORMS.md").await?.text(), Some("# Forms\n"));
    assert_eq!(pdf.read("./templates/../logo.bin").await?.bytes, [0xff, 0, 1]);
    assert_eq!(pdf.read("templates/regional/eu invoice.md").await?.text(), Some("EU"));
    for path in ["missing.md", "../live/now.md", "templates"] {
        assert!(matches!(pdf.read(path).await, Err(ClientError::BadSkill { .. })), "{path}");
    }

    let refunds = client.load(&client.skill(REFUNDS).await?).await?;
    assert_eq!(refunds.entry().frontmatter.description, "Refunds: \"how\" to");
    assert_eq!(refunds.entry().frontmatter.other_members["license"], "MIT");
    assert_eq!(refunds.instructions(), "\nBe kind.\n");

    let live = client.load(&skills[1]).await?;
    assert!(!live.is_verified());
    assert_eq!(live.read("now.md").await?.text(), Some("client: true"));
    assert_eq!(code(&live.read("other.md").await.unwrap_err()), -32602);
    folders(client).await
}

async fn folders(client: &Client) -> Result<(), ClientError> {
    let root = client.directory("skill://pdf-processing").all().await?;
    assert_eq!(
        names(&root),
        [("pdf-processing", false), ("logo.bin", false), ("references", true), ("templates", true)]
    );
    let templates = client.directory(&*root[3].resource().uri).all().await?;
    assert_eq!(names(&templates), [("invoice.md", false), ("regional", true)]);
    assert_eq!(templates[0].resource().mime_type.as_deref(), Some("text/markdown"));
    assert_eq!(names(&client.directory("skill://acme").all().await?), [("billing", true)]);
    assert_eq!(names(&client.directory("skill://live").all().await?), [("live", false), ("now.md", false)]);
    for uri in [
        PDF,
        "skill://pdf-processing/",
        "skill://pdf",
        "skill://nothing",
        "skill://",
        "skill:/",
        "skill:",
        "",
    ] {
        assert_eq!(code(&client.directory(uri).all().await.unwrap_err()), -32602, "{uri}");
    }
    for uri in
        ["skill://nothing/SKILL.md", "skill://pdf-processing/references/FORMS.md", "skill://pdf-processing"]
    {
        assert_eq!(code(&client.skill(uri).await.unwrap_err()), -32602, "{uri}");
    }
    Ok(())
}

#[test]
fn what_goes_over_the_wire_is_what_the_extension_says() {
    let mut peer = Peer::open(STATELESS, server());
    let list = peer.result("skills/list", json!({}));
    assert_eq!(
        (&list["resultType"], &list["ttlMs"], &list["cacheScope"]),
        (&json!("complete"), &json!(0), &json!("private"))
    );
    assert_eq!(list["skills"][1]["resources"], "dynamic");
    let digest = list["skills"][0]["resources"][0]["digest"].as_str().unwrap();
    assert!(digest.strip_prefix("sha256:").is_some_and(|digits| digits.len() == 64), "{digest}");
    let got = peer.result("skills/get", json!({"uri": PDF}));
    assert_eq!(
        (&got["skill"], &got["ttlMs"], &got["cacheScope"]),
        (&list["skills"][0], &json!(0), &json!("private"))
    );
    assert_eq!(got.get("nextCursor"), None);
    for (method, params) in [
        ("skills/get", json!({})),
        ("skills/get", json!({"uri": 5})),
        ("skills/list", json!({"cursor": "made up"})),
        ("resources/directory/read", json!({"uri": "skill://live", "cursor": "a/b"})),
    ] {
        assert_eq!(peer.error(method, params.clone()).0, -32602, "{method} {params}");
    }
    peer.close();
}

#[test]
fn lists_and_folders_come_in_pages() {
    let mut peer = Peer::open(STATELESS, server().page_size(1));
    let mut read = |method: &str, mut params: Value, field: &str| {
        let mut pages = Vec::new();
        loop {
            let page = peer.result(method, params.clone());
            pages.push(page[field].as_array().unwrap().len());
            match page.get("nextCursor") {
                None => return pages,
                Some(cursor) => params["cursor"] = cursor.clone(),
            }
        }
    };
    assert_eq!(read("skills/list", json!({}), "skills"), [1, 1]);
    assert_eq!(
        read("resources/directory/read", json!({"uri": "skill://pdf-processing"}), "resources"),
        [1; 4]
    );
    peer.close();
}

#[test]
fn a_server_without_skills_has_no_such_methods() {
    let mut peer = Peer::open(STATELESS, Server::new("plain", "1").tool("a", "", || async { "a" }));
    assert_eq!(peer.opened["capabilities"].get("extensions"), None);
    for method in ["skills/list", "skills/get", "resources/directory/read"] {
        assert_eq!(peer.error(method, json!({})).0, -32601, "{method}");
    }
    peer.close();
}

#[tokio::test]
async fn who_may_not_see_a_skill_sees_nothing_of_it() {
    let hidden = |item: DefinitionRef<'_>, _: &Context| !matches!(item, DefinitionRef::Skill(skill) if skill.frontmatter.name == "pdf-processing");
    let client = server().visible(hidden).connect_in_memory().await.unwrap();
    let uris: Vec<_> = client.skills().all().await.unwrap().into_iter().map(|skill| skill.uri).collect();
    assert_eq!(uris, [LIVE]);
    assert_eq!(code(&client.skill(PDF).await.unwrap_err()), -32602);
    assert_eq!(code(&client.read("skill://pdf-processing/logo.bin").await.unwrap_err()), -32602);
    assert_eq!(code(&client.directory("skill://pdf-processing").all().await.unwrap_err()), -32602);
    let resources = client.resources().all().await.unwrap();
    assert!(resources.iter().all(|resource| !resource.uri.contains("pdf")), "{resources:?}");

    let one_file = |item: DefinitionRef<'_>, _: &Context| item.name() != "skill://pdf-processing/logo.bin";
    let client = server().visible(one_file).connect_in_memory().await.unwrap();
    assert_eq!(client.directory("skill://pdf-processing").all().await.unwrap().len(), 3);
}

#[tokio::test]
async fn skills_come_and_go_with_their_files_and_clients_are_told() {
    let mut server = server();
    let handle = server.handle();
    let service = server.build().unwrap();
    let (told, mut changes) = mpsc::channel(8);
    let tell = move |what| told.try_send(what).unwrap();
    let client = service.client().on_list_changed(tell).connect().await.unwrap();
    handle.add(Skill::new("new", "New")).unwrap();
    assert_eq!(changes.recv().await, Some(ListChanged::Resources));
    assert_eq!(client.skills().all().await.unwrap().len(), 3);
    assert!(!handle.remove_resource("skill://new/SKILL.md"), "a file exists as long as its skill");
    assert!(handle.remove_skill("skill://new/SKILL.md") && !handle.remove_skill("skill://new/SKILL.md"));
    assert_eq!(changes.recv().await, Some(ListChanged::Resources));
    assert_eq!(code(&client.read("skill://new/SKILL.md").await.unwrap_err()), -32602);
    let error = handle.add(pdf()).unwrap_err().to_string();
    assert_eq!(error, format!("duplicate skill `{PDF}`"));
}

#[tokio::test]
async fn a_skill_in_the_folder_of_another_one_shares_its_files() {
    let inner = || Skill::from_text("---\nname: inner\ndescription: In\n---\n").under("outer");
    let inner_text = "---\nname: inner\ndescription: In\n---\n";
    let outer = || Skill::new("outer", "Out").file("inner/SKILL.md", inner_text);
    for (one, other) in [(outer(), inner()), (inner(), outer())] {
        let mut server = Server::new("nested", "1").add(one).add(other);
        let handle = server.handle();
        let client = server.connect_in_memory().await.unwrap();
        assert_eq!(client.resources().all().await.unwrap().len(), 2);
        assert_eq!(
            client.load(&client.skill("skill://outer/inner/SKILL.md").await.unwrap()).await.unwrap().name(),
            "inner"
        );
        assert!(handle.remove_skill("skill://outer/SKILL.md"));
        assert_eq!(client.resources().all().await.unwrap().len(), 1, "the inner one still needs its file");
    }
    let incomplete = Server::new("nested", "1").add(Skill::new("outer", "Out")).add(inner()).build();
    let error = incomplete.map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("is in the folder of `skill://outer/SKILL.md`"), "{error}");
    let made = Skill::new("outer", "Out").file_with("inner/SKILL.md", || async { "other" });
    assert!(Server::new("nested", "1").add(made).add(inner()).build().is_err());
}

#[tokio::test]
async fn skills_are_mounted_and_passed_on() {
    let mounting = Server::new("front", "1").mount("m", server()).build().unwrap();
    let upstream = server().connect_in_memory().await.unwrap();
    let passing = Server::new("front", "1").proxy(upstream).await.unwrap().build().unwrap();
    for service in [mounting, passing] {
        let client = service.connect_in_memory().await.unwrap();
        let skills = client.skills().all().await.unwrap();
        assert_eq!(skills.len(), 2);
        let pdf = client.load(&skills[0]).await.unwrap();
        assert_eq!(pdf.read("templates/invoice.md").await.unwrap().text(), Some("Invoice"));
        let live = client.load(&skills[1]).await.unwrap();
        assert!(live.read("now.md").await.unwrap().text().unwrap().starts_with("client:"));
        assert_eq!(
            names(&client.directory("skill://live").all().await.unwrap()),
            [("live", false), ("now.md", false)]
        );
        assert_eq!(client.directory("skill://pdf-processing").all().await.unwrap().len(), 4);
        assert_eq!(code(&client.directory("skill://live/nothing").all().await.unwrap_err()), -32602);
    }
}

fn folder(name: &str) -> PathBuf {
    let folder =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("skills-{name}-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("scripts")).unwrap();
    folder
}

#[tokio::test]
async fn a_folder_becomes_a_skill() {
    let folder = folder("whole");
    std::fs::write(folder.join("SKILL.md"), "---\nname: tidy\ndescription: Tidies\n---\nDo.\n").unwrap();
    std::fs::write(folder.join("scripts/run.py"), "print(1)\n").unwrap();
    std::fs::write(folder.join(".hidden"), "not for others").unwrap();
    let client =
        Server::new("folder", "1").add(Skill::from_folder(&folder)).connect_in_memory().await.unwrap();
    let skill = client.load(&client.skill("skill://tidy/SKILL.md").await.unwrap()).await.unwrap();
    let script = skill.read("scripts/run.py").await.unwrap();
    assert_eq!((script.text(), script.mime_type.as_deref()), (Some("print(1)\n"), Some("text/x-python")));
    let SkillResources::Files(files) = &skill.entry().resources else { panic!("it is not dynamic") };
    assert_eq!(files.len(), 2);
    std::fs::remove_dir_all(folder).unwrap();
}

fn refused(skill: Skill) -> String {
    let error: Error = Server::new("bad", "1").add(skill).build().map(|_| ()).unwrap_err();
    error.to_string()
}

#[test]
fn what_no_client_could_load_is_refused() {
    let empty = folder("empty");
    #[cfg(unix)]
    let linked = {
        let linked = folder("linked");
        std::os::unix::fs::symlink("/etc/hostname", linked.join("link")).unwrap();
        linked
    };
    let many = (0..512).fold(Skill::new("many", "d"), |skill, number| skill.file(format!("{number}"), ""));
    let cases = [
        (Skill::new("Bad Name", "d"), "invalid name `Bad Name`: use up to 64 lowercase"),
        (Skill::new("a", ""), "`description` in its frontmatter must be a non-empty string"),
        (Skill::new("a", "d".repeat(1025)), "its description has more than 1024 characters"),
        (
            Skill::from_text("no head"),
            "the text must start with a frontmatter between two lines of `---` (in SKILL.md)",
        ),
        (Skill::from_text("---\nname: a\n---\n"), "its frontmatter has no `description`"),
        (
            Skill::from_text(SKILL_MD).instructions("x"),
            "its instructions are set by its SKILL.md: remove the call of `instructions`",
        ),
        (
            Skill::from_text(SKILL_MD).field("x", 1),
            "its frontmatter is set by its SKILL.md: remove the call of `field`",
        ),
        (Skill::new("a", "d").field("name", "b"), "duplicate key `name`"),
        (Skill::new("a", "d").file("../b", ""), "`../b` is not a path below the skill directory"),
        (Skill::new("a", "d").file("SKILL.md", ""), "duplicate file `SKILL.md`"),
        (Skill::new("a", "d").file("b", "").file("b", ""), "duplicate file `b`"),
        (Skill::new("a", "d").under("x//y"), "`x//y` is not a path below the skill directory"),
        (
            Skill::new("a", "d").file("big", vec![0; 16 << 20]),
            "the files of the skill have more than 16777216 bytes in total",
        ),
        (many, "the skill has more than 512 files"),
        (Skill::from_folder(&empty), "the folder has no SKILL.md"),
        (Skill::from_folder(empty.join("missing")), "cannot be read"),
        #[cfg(unix)]
        (Skill::from_folder(&linked), "is neither a file nor a folder"),
    ];
    for (skill, reason) in cases {
        let error = refused(skill);
        assert!(error.contains(reason) && error.contains("cannot be registered: "), "{reason}: {error}");
    }
    let taken = Resource::new("skill://a/b", "b").handler(|| async { "b" });
    let error = Server::new("bad", "1").add(taken).add(Skill::new("a", "d").file("b", "")).build();
    assert_eq!(error.map(|_| ()).unwrap_err().to_string(), "duplicate resource `skill://a/b`");
    std::fs::remove_dir_all(empty).unwrap();
    #[cfg(unix)]
    std::fs::remove_dir_all(linked).unwrap();
}
