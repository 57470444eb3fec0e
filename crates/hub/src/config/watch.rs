//! Watcher of the configuration file. An invalid file changes nothing: the previous configuration stays in effect.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use super::file::{self, Stamp};
use super::{Config, Problem};

/// Watched configuration file and its last valid configuration.
pub(crate) struct Watched {
    path: PathBuf,
    state: Mutex<State>,
    hurry: Notify,
    /// Configuration at the start of the hub.
    first: Arc<Config>,
    /// First problem of the file, for subscribers.
    shown: watch::Sender<Option<String>>,
}

struct State {
    stamp: Option<Stamp>,
    config: Arc<Config>,
    problem: Option<Problem>,
    /// Configured servers that are skipped because another server has their slug.
    left_out: Vec<String>,
    /// Reason why the egress settings of the file are not applied.
    no_way: Option<String>,
}

impl Watched {
    /// Reads the file; the default configuration if it does not exist.
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

    /// Returns the configuration in effect.
    pub(crate) fn config(&self) -> Arc<Config> {
        self.state().config.clone()
    }

    /// Subscribes to the current problem of the file.
    pub(crate) fn problem(&self) -> watch::Receiver<Option<String>> {
        self.shown.subscribe()
    }

    /// Records which configured servers were skipped because of their slugs.
    pub(crate) fn left_out(&self, slugs: Vec<String>) {
        let mut state = self.state();
        state.left_out = slugs;
        self.show(&state);
    }

    /// Records why the egress settings could not be applied, or clears the record.
    pub(crate) fn no_way(&self, why: Option<String>) {
        let mut state = self.state();
        state.no_way = why;
        self.show(&state);
    }

    fn show(&self, state: &State) {
        let taken = |slug: &String| {
            let text = "another server already has this slug: remove that server, or choose another slug";
            Problem::new(&self.path, text).field(format!("servers.{slug}"))
        };
        let late = || {
            let names = self.late(&state.config);
            let text = "changed; restart the hub to apply it";
            (!names.is_empty()).then(|| Problem::new(&self.path, text).field(names.join("`, `")))
        };
        let no_way = || state.no_way.as_ref().map(|why| Problem::new(&self.path, why).field("egress.proxy"));
        let taken = || state.left_out.first().map(taken);
        let problem = state.problem.clone().or_else(no_way).or_else(taken).or_else(late);
        self.shown.send_replace(problem.map(|problem| problem.to_string()));
    }

    /// Returns the fields that have changed since the start and take effect only after a restart.
    fn late(&self, config: &Config) -> Vec<&'static str> {
        let Config { listen, url, tls, proxies, audit, .. } = &*self.first;
        let all = [
            ("listen", *listen == config.listen),
            ("url", *url == config.url),
            ("audit.durability", audit.durability == config.audit.durability),
            ("audit.folder", audit.folder == config.audit.folder),
            // A change of the paths is applied at once; only turning TLS on or off requires a restart.
            ("tls", tls.is_some() == config.tls.is_some()),
            ("proxies", *proxies == config.proxies),
        ];
        all.into_iter().filter(|(_, is_same)| !is_same).map(|(name, _)| name).collect()
    }

    /// Requests an immediate reload, even if the fingerprint of the file is unchanged.
    pub(crate) fn hurry(&self) {
        self.hurry.notify_one();
    }

    /// Polls the file until the configuration changes.
    pub(crate) async fn changed(&self, interval: Duration) -> Arc<Config> {
        loop {
            let is_urgent = tokio::time::timeout(interval, self.hurry.notified()).await.is_ok();
            if let Some(config) = self.look(is_urgent) {
                return config;
            }
        }
    }

    /// Reads the file if its fingerprint has changed. Returns the configuration if it differs from the previous one.
    fn look(&self, is_urgent: bool) -> Option<Arc<Config>> {
        // Take the fingerprint before reading, so that a change in between is detected by the next poll.
        let stamp = file::stamp(&self.path);
        let before = self.state().stamp;
        if stamp == before && !is_urgent {
            return None;
        }
        let gone =
            || Problem::new(&self.path, "does not exist any more: restore it, or create an empty file");
        let read = file::read(&self.path).and_then(|config| config.ok_or_else(gone));
        let mut state = self.state();
        state.stamp = stamp;
        match read {
            Err(problem) => {
                tracing::error!(%problem, "invalid configuration file; using the previous configuration");
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
                    tracing::info!(path = %self.path.display(), "configuration file changed");
                    let late = self.late(&state.config).join(", ");
                    if !late.is_empty() {
                        tracing::warn!(late, "some configuration changes take effect only after a restart");
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
        linchpin_hub_core::private_file::write(
            &folder.path().join("linchpin.toml"),
            text.as_bytes(),
            &linchpin_hub_core::platform::System,
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
        tokio::time::timeout(60 * SECOND, watched.changed(SECOND))
            .await
            .expect("the configuration must change")
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
            problem.contains("line 3, column 1: `servers.b.timeout_ms`: must be an integer"),
            "{problem}"
        );

        fs::remove_file(folder.path().join("linchpin.toml")).unwrap();
        assert!(tokio::time::timeout(3 * SECOND, watched.changed(SECOND)).await.is_err());
        assert!(
            wrong_with(&watched)
                .unwrap()
                .ends_with("does not exist any more: restore it, or create an empty file")
        );
        assert_eq!(slugs(&watched.config()), ["a"]);

        write(&folder, "[servers.b]\ncommand = \"x\"\n");
        assert_eq!(slugs(&*changed(&watched).await), ["b"]);
        assert_eq!(wrong_with(&watched), None);
        watched.left_out(vec!["b".into()]);
        assert!(wrong_with(&watched).unwrap().ends_with(
            ": `servers.b`: another server already has this slug: remove that server, or choose another slug"
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
            // File system timestamps are coarse, so repeat the change until it is visible.
            let mut changes = (0..1_000_000).map(|_| set_mode(&folder, mode));
            assert!(changes.any(|()| file::stamp(&watched.path) != before), "{mode:o} is seen");
            assert!(!looked().await, "the configuration is unchanged");
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
        let expected = "linchpin.toml`: `listen`: changed; restart the hub to apply it";
        let problem = wrong_with(&watched).unwrap();
        assert!(problem.ends_with(expected), "{problem}");
        write(&folder, "[history]\ndays = 4\n[servers.a]\ncommand = \"x\"\n");
        assert_eq!(slugs(&*changed(&watched).await), ["a"], "other changes are applied at once");
        assert_eq!(wrong_with(&watched), None, "retention is applied at once, too");
        write(&folder, "[audit]\ndays = 9\nfolder = \"a\"\ndurability = \"power\"\n");
        changed(&watched).await;
        assert!(wrong_with(&watched).unwrap().contains("`: `audit.durability`, `audit.folder`: changed"));
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
        assert!(wrong_with(&watched).unwrap().ends_with("restrict access with `chmod 600`"));
        write(&folder, "listen = \"127.0.0.1:1\"");
        watched.hurry();
        let config = tokio::time::timeout(SECOND, watched.changed(hour)).await.unwrap();
        assert_eq!(config.listen, "127.0.0.1:1".parse().ok());
    }
}
