//! Watcher that reloads the configuration file of a running hub when it changes. An invalid file changes nothing: the
//! previous configuration stays in effect.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use super::file::{self, Stamp};
use super::{Config, ConfigError};

/// Watched configuration file and its last valid configuration.
pub(crate) struct WatchedConfig {
    path: PathBuf,
    state: Mutex<WatchState>,
    reload: Notify,
    /// Configuration that the hub started with.
    initial: Arc<Config>,
    /// Sender of the first problem of the configuration file, for subscribers.
    problem_sender: watch::Sender<Option<String>>,
}

struct WatchState {
    stamp: Option<Stamp>,
    config: Arc<Config>,
    problem: Option<ConfigError>,
    /// Configured servers that are skipped because another server has their slug.
    slug_conflicts: Vec<String>,
    /// Reason why the egress settings of the configuration file are not applied.
    egress_error: Option<String>,
}

impl WatchedConfig {
    /// Reads the configuration file to watch; the default configuration if it does not exist.
    pub(crate) fn open(path: PathBuf) -> Result<Self, ConfigError> {
        let stamp = file::stamp(&path);
        let config = Arc::new(Config::open(&path)?);
        Ok(WatchedConfig {
            problem_sender: watch::Sender::new(None),
            path,
            state: Mutex::new(WatchState {
                stamp,
                config: config.clone(),
                problem: None,
                slug_conflicts: Vec::new(),
                egress_error: None,
            }),
            reload: Notify::new(),
            initial: config,
        })
    }

    fn state(&self) -> MutexGuard<'_, WatchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the configuration in effect.
    pub(crate) fn config(&self) -> Arc<Config> {
        self.state().config.clone()
    }

    /// Subscribes to the current problem of the configuration file.
    pub(crate) fn subscribe_problem(&self) -> watch::Receiver<Option<String>> {
        self.problem_sender.subscribe()
    }

    /// Records which configured servers were skipped because of their slugs.
    pub(crate) fn set_slug_conflicts(&self, slugs: Vec<String>) {
        let mut state = self.state();
        state.slug_conflicts = slugs;
        self.publish_problem(&state);
    }

    /// Records why the egress settings could not be applied, or clears the record.
    pub(crate) fn set_egress_error(&self, reason: Option<String>) {
        let mut state = self.state();
        state.egress_error = reason;
        self.publish_problem(&state);
    }

    fn publish_problem(&self, state: &WatchState) {
        let slug_conflict = |slug: &String| {
            let text = "another server already has this slug: remove that server, or choose another slug";
            ConfigError::new(&self.path, text).with_field(format!("servers.{slug}"))
        };
        let restart_required = || {
            let names = self.restart_required(&state.config);
            let text = "has changed, and is applied only at the start of the hub: restart the hub";
            (!names.is_empty()).then(|| ConfigError::new(&self.path, text).with_field(names.join("`, `")))
        };
        let egress_error = || {
            state
                .egress_error
                .as_ref()
                .map(|reason| ConfigError::new(&self.path, reason).with_field("egress.proxy"))
        };
        let slug_conflict = || state.slug_conflicts.first().map(slug_conflict);
        let problem =
            state.problem.clone().or_else(egress_error).or_else(slug_conflict).or_else(restart_required);
        self.problem_sender.send_replace(problem.map(|problem| problem.to_string()));
    }

    /// Returns the configuration fields that have changed since the start and take effect only after a restart.
    fn restart_required(&self, config: &Config) -> Vec<&'static str> {
        let Config { listen, url, tls, proxies, audit, .. } = &*self.initial;
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

    /// Requests an immediate reload of the configuration file, even if its fingerprint is unchanged.
    pub(crate) fn reload_now(&self) {
        self.reload.notify_one();
    }

    /// Polls the file until the configuration changes.
    pub(crate) async fn wait_for_change(&self, interval: Duration) -> Arc<Config> {
        loop {
            let is_urgent = tokio::time::timeout(interval, self.reload.notified()).await.is_ok();
            if let Some(config) = self.reload_if_changed(is_urgent) {
                return config;
            }
        }
    }

    /// Reads the configuration file if its fingerprint has changed. Returns the configuration if it differs from the
    /// previous one.
    fn reload_if_changed(&self, is_urgent: bool) -> Option<Arc<Config>> {
        // Take the fingerprint before reading, so that a change in between is detected by the next poll.
        let stamp = file::stamp(&self.path);
        let before = self.state().stamp;
        if stamp == before && !is_urgent {
            return None;
        }
        let missing_file_error = || {
            ConfigError::new(
                &self.path,
                "the file does not exist any more: restore it, or create an empty file",
            )
        };
        let read = file::read(&self.path).and_then(|config| config.ok_or_else(missing_file_error));
        let mut state = self.state();
        state.stamp = stamp;
        match read {
            Err(problem) => {
                tracing::error!(%problem, "invalid configuration file; using the previous configuration");
                state.problem = Some(problem);
                self.publish_problem(&state);
                None
            }
            Ok(config) => {
                state.problem = None;
                let is_new = *state.config != config;
                state.config = Arc::new(config);
                self.publish_problem(&state);
                is_new.then(|| {
                    tracing::info!(path = %self.path.display(), "configuration file changed; applying it");
                    let restart_required = self.restart_required(&state.config).join(", ");
                    if !restart_required.is_empty() {
                        tracing::warn!(
                            restart_required,
                            "some configuration changes take effect only after a restart"
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
        linchpin_hub_core::private_file::write(
            &folder.path().join("linchpin.toml"),
            text.as_bytes(),
            &linchpin_hub_core::platform::SystemPlatform,
        )
        .unwrap();
    }

    fn problem_of(watched: &WatchedConfig) -> Option<String> {
        watched.subscribe_problem().borrow().clone()
    }

    fn slugs(config: &Config) -> Vec<String> {
        config.servers.iter().map(|server| server.slug.as_str().to_owned()).collect()
    }

    async fn next_config(watched: &WatchedConfig) -> Arc<Config> {
        tokio::time::timeout(60 * SECOND, watched.wait_for_change(SECOND))
            .await
            .expect("the configuration must change")
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_seen_and_a_mistake_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let watched = WatchedConfig::open(folder.path().join("linchpin.toml")).unwrap();
        assert_eq!(*watched.config(), Config::default());
        write(&folder, "[servers.a]\ncommand = \"x\"\n");
        assert_eq!(slugs(&*next_config(&watched).await), ["a"]);

        write(&folder, "[servers.b]\ncommand = \"x\"\ntimeout_ms = 1\n");
        assert!(tokio::time::timeout(3 * SECOND, watched.wait_for_change(SECOND)).await.is_err());
        assert_eq!(slugs(&watched.config()), ["a"]);
        let problem = problem_of(&watched).unwrap();
        assert!(
            problem.contains("line 3, column 1: `servers.b.timeout_ms`: must be an integer"),
            "{problem}"
        );

        fs::remove_file(folder.path().join("linchpin.toml")).unwrap();
        assert!(tokio::time::timeout(3 * SECOND, watched.wait_for_change(SECOND)).await.is_err());
        assert!(
            problem_of(&watched)
                .unwrap()
                .ends_with("the file does not exist any more: restore it, or create an empty file")
        );
        assert_eq!(slugs(&watched.config()), ["a"]);

        write(&folder, "[servers.b]\ncommand = \"x\"\n");
        assert_eq!(slugs(&*next_config(&watched).await), ["b"]);
        assert_eq!(problem_of(&watched), None);
        watched.set_slug_conflicts(vec!["b".into()]);
        assert!(problem_of(&watched).unwrap().ends_with(
            ": `servers.b`: another server already has this slug: remove that server, or choose another slug"
        ));
        write(&folder, "");
        assert!(slugs(&*next_config(&watched).await).is_empty());
    }

    fn set_mode(folder: &TempDir, mode: u32) {
        fs::set_permissions(folder.path().join("linchpin.toml"), fs::Permissions::from_mode(mode)).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_mended_mode_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        write(&folder, "");
        let watched = WatchedConfig::open(folder.path().join("linchpin.toml")).unwrap();
        let looked = async || tokio::time::timeout(3 * SECOND, watched.wait_for_change(SECOND)).await.is_ok();
        for (mode, is_wrong) in [(0o644, true), (0o600, false)] {
            let before = file::stamp(&watched.path);
            // File system timestamps are coarse, so repeat the change until it is visible.
            let mut changes = (0..1_000_000).map(|_| set_mode(&folder, mode));
            assert!(changes.any(|()| file::stamp(&watched.path) != before), "{mode:o} is seen");
            assert!(!looked().await, "the configuration is unchanged");
            assert_eq!(problem_of(&watched).is_some(), is_wrong);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_counts_at_the_next_start_is_named_until_it_is_as_before() {
        let folder = tempfile::tempdir().unwrap();
        write(&folder, "[history]\ndays = 3\n");
        let watched = WatchedConfig::open(folder.path().join("linchpin.toml")).unwrap();
        write(&folder, "listen = \"127.0.0.1:1\"\n[history]\ndays = 3\n");
        next_config(&watched).await;
        let expected = "linchpin.toml`: `listen`: has changed, and is applied only at the start of the hub: restart the hub";
        let problem = problem_of(&watched).unwrap();
        assert!(problem.ends_with(expected), "{problem}");
        write(&folder, "[history]\ndays = 4\n[servers.a]\ncommand = \"x\"\n");
        assert_eq!(slugs(&*next_config(&watched).await), ["a"], "other changes are applied at once");
        assert_eq!(problem_of(&watched), None, "retention is applied at once, too");
        write(&folder, "[audit]\ndays = 9\nfolder = \"a\"\ndurability = \"power\"\n");
        next_config(&watched).await;
        assert!(problem_of(&watched).unwrap().contains("`: `audit.durability`, `audit.folder`: has changed"));
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_is_in_a_hurry_need_not_wait() {
        let folder = tempfile::tempdir().unwrap();
        write(&folder, "");
        let watched = WatchedConfig::open(folder.path().join("linchpin.toml")).unwrap();
        set_mode(&folder, 0o644);
        watched.reload_now();
        let hour = Duration::from_hours(1);
        assert!(tokio::time::timeout(SECOND, watched.wait_for_change(hour)).await.is_err());
        assert!(problem_of(&watched).unwrap().ends_with("restrict access with `chmod 600`"));
        write(&folder, "listen = \"127.0.0.1:1\"");
        watched.reload_now();
        let config = tokio::time::timeout(SECOND, watched.wait_for_change(hour)).await.unwrap();
        assert_eq!(config.listen, "127.0.0.1:1".parse().ok());
    }
}
