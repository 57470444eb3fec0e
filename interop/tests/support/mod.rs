//! What both sides of the interoperability tests need: where the peers are, and recordings of
//! what was said.

#![expect(clippy::unwrap_used, reason = "it is only used in tests")]

pub(crate) mod conversation;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Generous: machines that build meanwhile start node slowly.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

const FOLDER: &str = env!("CARGO_MANIFEST_DIR");

/// The command of a peer: `server.mjs`, `client.py`, or `everything`.
pub(crate) fn peer(name: &str) -> Vec<String> {
    if Path::new(name).extension().is_some_and(|kind| kind == "py") {
        let python = Path::new(FOLDER).join("../target/interop/python/bin/python");
        return vec![installed(&python), format!("{FOLDER}/{name}")];
    }
    let modules = Path::new(FOLDER).join("node_modules");
    let everything = installed(&modules.join(".bin/mcp-server-everything"));
    let script = if name == "everything" { everything } else { format!("{FOLDER}/{name}") };
    vec!["node".into(), script]
}

fn installed(path: &Path) -> String {
    assert!(
        path.exists(),
        "{} is missing: the peers on the official SDKs are not installed; run `cargo xtask test`, which installs them",
        path.display()
    );
    path.display().to_string()
}

/// A command that runs `command` and keeps a copy of all that goes in and out, in two files for each run.
pub(crate) fn recorded(log: &Log, command: &[String]) -> Vec<String> {
    let script = r#"log=$0; tee "$log.$$.client" | "$@" | tee "$log.$$.server""#;
    let head = ["sh".to_owned(), "-c".to_owned(), script.to_owned(), log.0.display().to_string()];
    head.into_iter().chain(command.iter().cloned()).collect()
}

/// Where recordings of one test go. They are removed when it has passed.
pub(crate) struct Log(PathBuf);

impl Log {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("conversation-{}-{number}", std::process::id());
        Log(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name))
    }

    /// What was said, by run: the lines of the client and those of the server.
    pub(crate) fn take(self) -> Vec<(String, String)> {
        let (folder, name) = (self.0.parent().unwrap(), self.0.file_name().unwrap().to_str().unwrap());
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let begins = format!("{name}.");
        let ours = files.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(&begins));
        let clients = ours.filter(|path| path.extension().is_some_and(|extension| extension == "client"));
        let taken = clients.map(|client| {
            let server = client.with_extension("server");
            let both = [&client, &server].map(|file| std::fs::read_to_string(file).unwrap());
            for file in [client, server] {
                std::fs::remove_file(file).unwrap();
            }
            both.into()
        });
        taken.collect()
    }
}
