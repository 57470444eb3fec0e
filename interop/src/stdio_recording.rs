//! Recordings of stdio traffic.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Returns a command that runs `command` and copies its input and output to two files per run.
pub fn recorded(log: &StdioRecording, command: &[String]) -> Vec<String> {
    let script = r#"log=$0; tee "$log.$$.client" | "$@" | tee "$log.$$.server""#;
    let head = ["sh".to_owned(), "-c".to_owned(), script.to_owned(), log.0.display().to_string()];
    head.into_iter().chain(command.iter().cloned()).collect()
}

/// Path prefix of the recordings of one test. They are removed when the test has passed.
pub struct StdioRecording(PathBuf);

impl StdioRecording {
    /// Creates a unique prefix in `folder`.
    pub fn new(folder: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("conversation-{}-{number}", std::process::id());
        StdioRecording(Path::new(folder).join(name))
    }

    /// Returns the lines of the client and of the server, by run, and removes the files.
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
