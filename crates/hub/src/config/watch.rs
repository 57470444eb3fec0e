//! Sees when the operator's file has changed. A file with mistakes changes nothing: what was said before stays in force.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use super::file::{self, Stamp};
use super::{Config, Problem};

/// The file, and what it said last.
pub(crate) struct Watched {
    path: PathBuf,
    state: Mutex<State>,
    hurry: Notify,
    /// What the hub was started with.
    first: Arc<Config>,
    /// The first thing that is wrong.
    shown: watch::Sender<Option<String>>,
}

struct State {
    stamp: Option<Stamp>,
    config: Arc<Config>,
    problem: Option<Problem>,
    /// Servers of the file whose slugs others have.
    left_out: Vec<String>,
    /// Why the way out is not as the file says.
    no_way: Option<String>,
}

impl Watched {
    /// Reads the file. Without one there are no servers in it.
    pub(crate) fn open(path: PathBuf) -> Result<Self, Problem> {
        let stamp = file::stamp(&path);
        let config = Arc::new(Config::open(&path)?);
        Ok(Watched {
            shown: watch::Sender::new(None),
            path,
            state: Mutex::new(State {
                stamp,
                config: config.clone(),
                problem: None,
                left_out: Vec::new(),
                no_way: None,
            }),
            hurry: Notify::new(),
            first: config,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is in force.
    pub(crate) fn config(&self) -> Arc<Config> {
        self.state().config.clone()
    }

    /// What is wrong with the file, as it is now.
    pub(crate) fn problem(&self) -> watch::Receiver<Option<String>> {
        self.shown.subscribe()
    }

    /// Keeps which servers of the file could not be taken over.
    pub(crate) fn left_out(&self, slugs: Vec<String>) {
        let mut state = self.state();
        state.left_out = slugs;
        self.show(&state);
    }

    /// Keeps why the way out could not be taken over, if it could not.
    pub(crate) fn no_way(&self, why: Option<String>) {
        let mut state = self.state();
        state.no_way = why;
        self.show(&state);
    }

    fn show(&self, state: &State) {
        let taken = |slug: &String| {
            let text = "another server has this slug: remove that one, or choose another slug";
            Problem::new(&self.path, text).field(format!("servers.{slug}"))
        };
        let late = || {
            let names = self.late(&state.config);
            let text = "it has changed, which counts only after the next start of the hub";
            (!names.is_empty()).then(|| Problem::new(&self.path, text).field(names.join("`, `")))
        };
        let no_way = || state.no_way.as_ref().map(|why| Problem::new(&self.path, why).field("egress.proxy"));
        let taken = || state.left_out.first().map(taken);
        let problem = state.problem.clone().or_else(no_way).or_else(taken).or_else(late);
        self.shown.send_replace(problem.map(|problem| problem.to_string()));
    }

    /// What is not as it was when the hub was started, and is looked at only then.
    fn late(&self, config: &Config) -> Vec<&'static str> {
        let Config { listen, url, tls, proxies, audit, .. } = &*self.first;
        let all = [
            ("listen", *listen == config.listen),
            ("url", *url == config.url),
            ("audit.durability", audit.durability == config.audit.durability),
            ("audit.folder", audit.folder == config.audit.folder),
            // Other files are taken over at once.
            ("tls", tls.is_some() == config.tls.is_some()),
            ("proxies", *proxies == config.proxies),
        ];
        all.into_iter().filter(|(_, is_same)| !is_same).map(|(name, _)| name).collect()
    }

    /// Has the file read at once, whether it looks changed or not.
    pub(crate) fn hurry(&self) {
        self.hurry.notify_one();
    }

    /// Waits until the file says something else, looking at it again and again.
    pub(crate) async fn changed(&self, interval: Duration) -> Arc<Config> {
        loop {
            let is_urgent = tokio::time::timeout(interval, self.hurry.notified()).await.is_ok();
            if let Some(config) = self.look(is_urgent) {
                return config;
            }
        }
    }

    /// Reads the file if it looks changed. What it says, if that is something else.
    fn look(&self, is_urgent: bool) -> Option<Arc<Config>> {
        // Before it is read: a change in between is seen the next time.
        let stamp = file::stamp(&self.path);
        let before = self.state().stamp;
        if stamp == before && !is_urgent {
            return None;
        }
        let gone = || Problem::new(&self.path, "it is gone: put it back, or write an empty one");
        let read = file::read(&self.path).and_then(|config| config.ok_or_else(gone));
        let mut state = self.state();
        state.stamp = stamp;
        match read {
            Err(problem) => {
                tracing::error!(%problem, "the operator's file cannot be used; what it said before stays in force");
                state.problem = Some(problem);
                self.show(&state);
                None
            }
            Ok(config) => {
                state.problem = None;
                let is_new = *state.config != config;
                state.config = Arc::new(config);
                self.show(&state);
                is_new.then(|| {
                    tracing::info!(path = %self.path.display(), "the operator's file has changed");
                    let late = self.late(&state.config).join(", ");
                    if !late.is_empty() {
                        tracing::warn!(
                            late,
                            "some of what has changed counts only after the next start of the hub"
                        );
                    }
                    state.config.clone()
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use tempfile::TempDir;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn write(folder: &TempDir, text: &str) {
        linchpin_hub_core::private::write(
            &folder.path().join("linchpin.toml"),
            text.as_bytes(),
            &linchpin_hub_core::world::System,
        )
        .unwrap();
    }

    fn wrong_with(watched: &Watched) -> Option<String> {
        watched.problem().borrow().clone()
    }

    fn slugs(config: &Config) -> Vec<String> {
        config.servers.iter().map(|server| server.slug.as_str().to_owned()).collect()
    }

    async fn changed(watched: &Watched) -> Arc<Config> {
        tokio::time::timeout(60 * SECOND, watched.changed(SECOND)).await.expect("it has changed")
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_seen_and_a_mistake_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let watched = Watched::open(folder.path().join("linchpin.toml")).unwrap();
        assert_eq!(*watched.config(), Config::default());
        write(&folder, "[servers.a]\ncommand = \"x\"\n");
        assert_eq!(slugs(&*changed(&watched).await), ["a"]);

        write(&folder, "[servers.b]\ncommand = \"x\"\ntimeout_ms = 1\n");
        assert!(tokio::time::timeout(3 * SECOND, watched.changed(SECOND)).await.is_err());
        assert_eq!(slugs(&watched.config()), ["a"]);
        let problem = wrong_with(&watched).unwrap();
        assert!(
            problem.contains("line 3, column 1: `servers.b.timeout_ms`: it is a whole number"),
            "{problem}"
        );

        fs::remove_file(folder.path().join("linchpin.toml")).unwrap();
        assert!(tokio::time::timeout(3 * SECOND, watched.changed(SECOND)).await.is_err());
        assert!(wrong_with(&watched).unwrap().ends_with("it is gone: put it back, or write an empty one"));
        assert_eq!(slugs(&watched.config()), ["a"]);

        write(&folder, "[servers.b]\ncommand = \"x\"\n");
        assert_eq!(slugs(&*changed(&watched).await), ["b"]);
        assert_eq!(wrong_with(&watched), None);
        watched.left_out(vec!["b".into()]);
        assert!(wrong_with(&watched).unwrap().ends_with(
            ": `servers.b`: another server has this slug: remove that one, or choose another slug"
        ));
        write(&folder, "");
        assert!(slugs(&*changed(&watched).await).is_empty());
    }

    fn set_mode(folder: &TempDir, mode: u32) {
        fs::set_permissions(folder.path().join("linchpin.toml"), fs::Permissions::from_mode(mode)).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_mended_mode_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        write(&folder, "");
        let watched = Watched::open(folder.path().join("linchpin.toml")).unwrap();
        let looked = async || tokio::time::timeout(3 * SECOND, watched.changed(SECOND)).await.is_ok();
        for (mode, is_wrong) in [(0o644, true), (0o600, false)] {
            let before = file::stamp(&watched.path);
            // The clock of a file system is coarse.
            let mut changes = (0..1_000_000).map(|_| set_mode(&folder, mode));
            assert!(changes.any(|()| file::stamp(&watched.path) != before), "{mode:o} is seen");
            assert!(!looked().await, "it says the same");
            assert_eq!(wrong_with(&watched).is_some(), is_wrong);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_counts_at_the_next_start_is_named_until_it_is_as_before() {
        let folder = tempfile::tempdir().unwrap();
        write(&folder, "[history]\ndays = 3\n");
        let watched = Watched::open(folder.path().join("linchpin.toml")).unwrap();
        write(&folder, "listen = \"127.0.0.1:1\"\n[history]\ndays = 3\n");
        changed(&watched).await;
        let expected =
            "linchpin.toml`: `listen`: it has changed, which counts only after the next start of the hub";
        let problem = wrong_with(&watched).unwrap();
        assert!(problem.ends_with(expected), "{problem}");
        write(&folder, "[history]\ndays = 4\n[servers.a]\ncommand = \"x\"\n");
        assert_eq!(slugs(&*changed(&watched).await), ["a"], "the rest counts at once");
        assert_eq!(wrong_with(&watched), None, "and so does how long what is kept");
        write(&folder, "[audit]\ndays = 9\nfolder = \"a\"\ndurability = \"power\"\n");
        changed(&watched).await;
        assert!(
            wrong_with(&watched).unwrap().contains("`: `audit.durability`, `audit.folder`: it has changed")
        );
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_is_in_a_hurry_need_not_wait() {
        let folder = tempfile::tempdir().unwrap();
        write(&folder, "");
        let watched = Watched::open(folder.path().join("linchpin.toml")).unwrap();
        set_mode(&folder, 0o644);
        watched.hurry();
        let hour = Duration::from_hours(1);
        assert!(tokio::time::timeout(SECOND, watched.changed(hour)).await.is_err());
        assert!(wrong_with(&watched).unwrap().ends_with("take that away with `chmod 600`"));
        write(&folder, "listen = \"127.0.0.1:1\"");
        watched.hurry();
        let config = tokio::time::timeout(SECOND, watched.changed(hour)).await.unwrap();
        assert_eq!(config.listen, "127.0.0.1:1".parse().ok());
    }
}
