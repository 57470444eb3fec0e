//! Recordings of what is said on standard input and output.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A command that runs `command` and keeps a copy of all that goes in and out, in two files for each run.
pub fn recorded(log: &Log, command: &[String]) -> Vec<String> {
    let script = r#"log=$0; tee "$log.$$.client" | "$@" | tee "$log.$$.server""#;
    let head = ["sh".to_owned(), "-c".to_owned(), script.to_owned(), log.0.display().to_string()];
    head.into_iter().chain(command.iter().cloned()).collect()
}

/// Where recordings of one test go. They are removed when it has passed.
pub struct Log(PathBuf);

impl Log {
    /// In `folder`, of which it has the rest of the name to itself.
    pub fn new(folder: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("conversation-{}-{number}", std::process::id());
        Log(Path::new(folder).join(name))
    }

    /// What was said, by run: the lines of the client and those of the server.
    pub fn take(self) -> Vec<(String, String)> {
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
