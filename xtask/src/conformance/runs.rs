//! Running scenarios: one lane for each revision of the server, with a server of its own, and a pool of runners for the
//! client. A client scenario that fails is run again alone before it is believed: several at a time on a busy machine
//! may be too slow for each other.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};

use super::exceptions::Exceptions;
use super::process::{Server, run_within};
use super::suite::{EXTENSION, Scenario, Side, Suite};
use super::verdict::{Check, Run, read_checks};
use crate::command::root;

/// How long a scenario may take; only one that hangs takes that long.
const SCENARIO: Duration = Duration::from_mins(1);
const LANE: Duration = Duration::from_mins(5);
/// Client scenarios at a time.
const AT_A_TIME: usize = 4;

/// A scenario for one revision.
#[derive(Debug, Clone, Copy)]
struct Planned<'a> {
    scenario: &'a Scenario,
    revision: &'a str,
}

/// What all runs have in common.
#[derive(Clone, Copy)]
struct Setting<'a> {
    suite: &'a Suite,
    exceptions: &'a Exceptions,
    /// Whether server scenarios are named one by one.
    one_by_one: bool,
}

impl Setting<'_> {
    /// A run, and what is known of its scenario.
    fn judge(self, planned: Planned<'_>, checks: Vec<Check>, ended_well: bool) -> Run {
        let Planned { scenario, revision } = planned;
        let mut run = Run::new(&scenario.name, scenario.side, revision, checks, ended_well);
        self.exceptions.judge(&mut run);
        run
    }
}

/// Runs all of them; each is in the answer once for each of its revisions.
pub(super) fn all(
    suite: &Suite,
    scenarios: &[Scenario],
    exceptions: &Exceptions,
    one_by_one: bool,
) -> anyhow::Result<Vec<Run>> {
    let results = suite.results();
    if results.exists() {
        fs::remove_dir_all(&results).with_context(|| format!("cannot empty {}", results.display()))?;
    }
    let planned = scenarios
        .iter()
        .flat_map(|scenario| scenario.revisions.iter().map(move |revision| Planned { scenario, revision }));
    let (mut runs, mut wanted) = (Vec::new(), Vec::new());
    for planned in planned {
        let Planned { scenario, revision } = planned;
        match exceptions.not_run(&scenario.name) {
            Some(why) => runs.push(Run::skipped(&scenario.name, scenario.side, revision, why)),
            None => wanted.push(planned),
        }
    }
    let (server, client): (Vec<_>, Vec<_>) =
        wanted.into_iter().partition(|planned| planned.scenario.side == Side::Server);
    let setting = Setting { suite, exceptions, one_by_one };
    let (of_server, of_client) = thread::scope(|scope| {
        let of_server = scope.spawn(|| lanes(setting, &server));
        let of_client = clients(setting, &client);
        (of_server.join().expect("a lane does not panic"), of_client)
    });
    runs.extend(of_server?);
    runs.extend(of_client?);
    Ok(runs)
}

/// All server scenarios, each revision in a lane of its own.
fn lanes(setting: Setting<'_>, planned: &[Planned<'_>]) -> anyhow::Result<Vec<Run>> {
    let revisions: BTreeSet<&str> = planned.iter().map(|planned| planned.revision).collect();
    let lanes = revisions.into_iter().map(|revision| {
        let of_lane: Vec<_> =
            planned.iter().copied().filter(|planned| planned.revision == revision).collect();
        (revision, of_lane)
    });
    thread::scope(|scope| {
        let running: Vec<_> =
            lanes.map(|(revision, planned)| scope.spawn(move || lane(setting, revision, &planned))).collect();
        let mut runs = Vec::new();
        for lane in running {
            runs.extend(lane.join().expect("a lane does not panic")?);
        }
        Ok(runs)
    })
}

fn lane(setting: Setting<'_>, revision: &str, planned: &[Planned<'_>]) -> anyhow::Result<Vec<Run>> {
    let Setting { suite, one_by_one, .. } = setting;
    let folder = suite.results().join("server").join(revision);
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let server = Server::start(&folder.join("server.log"))?;
    let command = |arguments: &[&str]| {
        let mut command = suite.command();
        command.args(["server", "--url", &server.url, "-o"]).arg(&folder).args(arguments);
        command
    };
    // Those of extensions belong to no revision, and must be named.
    if revision == EXTENSION || one_by_one {
        for Planned { scenario, .. } in planned {
            let mut arguments = vec!["--scenario", &*scenario.name];
            arguments.extend(of_revision(revision));
            run_within(&mut command(&arguments), &folder.join(format!("{}.log", scenario.name)), SCENARIO)?;
        }
    } else {
        let arguments: Vec<_> = ["--suite", "all"].into_iter().chain(of_revision(revision)).collect();
        run_within(&mut command(&arguments), &folder.join("suite.log"), LANE)?;
    }
    let run = |planned: &Planned<'_>| {
        let checks = find_checks(&folder, "server-", &planned.scenario.name)?;
        Ok(setting.judge(*planned, checks, true))
    };
    planned.iter().map(run).collect()
}

fn of_revision(revision: &str) -> impl Iterator<Item = &str> {
    (revision != EXTENSION).then_some(["--spec-version", revision]).into_iter().flatten()
}

/// All client scenarios, a few at a time; then those again that failed, alone.
fn clients(setting: Setting<'_>, planned: &[Planned<'_>]) -> anyhow::Result<Vec<Run>> {
    let next = AtomicUsize::new(0);
    let runs = Mutex::new(Vec::new());
    let work = || -> anyhow::Result<()> {
        while let Some(planned) = planned.get(next.fetch_add(1, Ordering::Relaxed)) {
            let run = client(setting, *planned, "client")?;
            runs.lock().expect("nobody panics with it").push(run);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_A_TIME).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker does not panic"))
    })?;
    let mut runs = runs.into_inner().expect("nobody panics with it");
    for run in runs.iter_mut().filter(|run| run.has_failed()) {
        let again = planned
            .iter()
            .find(|planned| planned.scenario.name == run.scenario && planned.revision == run.revision);
        *run = client(setting, *again.context("a scenario is run that was not planned")?, "client-again")?;
    }
    Ok(runs)
}

fn client(setting: Setting<'_>, planned: Planned<'_>, folder: &str) -> anyhow::Result<Run> {
    let (suite, Planned { scenario, revision }) = (setting.suite, planned);
    let folder = suite.results().join(folder).join(revision);
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let program = root().join("target/debug/conformance-client");
    let mut command = suite.command();
    command.args(["client", "--scenario", &scenario.name, "--command"]).arg(program);
    command.arg("-o").arg(&folder).args(of_revision(revision));
    let ended_well = run_within(&mut command, &folder.join(format!("{}.log", scenario.name)), SCENARIO)?;
    let checks = find_checks(&folder, "", &scenario.name)?;
    Ok(setting.judge(planned, checks, ended_well))
}

/// The checks of a scenario: the suite puts them into a folder with its name and the time. None when there is none.
fn find_checks(folder: &Path, prefix: &str, scenario: &str) -> anyhow::Result<Vec<Check>> {
    let begin = format!("{prefix}{scenario}-");
    let mut found: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.strip_prefix(&begin).is_some_and(is_time) && path.join("checks.json").is_file() {
            found.push(path.join("checks.json"));
        }
    }
    match &*found {
        [] => Ok(Vec::new()),
        [file] => read_checks(file),
        _ => bail!("{} has several results of {scenario}", folder.display()),
    }
}

/// Whether this is a time, as the suite writes it into names.
fn is_time(text: &str) -> bool {
    let shape: String = text.chars().map(|char| if char.is_ascii_digit() { '0' } else { char }).collect();
    shape == "0000-00-00T00-00-00-000Z"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_found_by_the_whole_name_of_their_scenario() {
        let folder = root().join(format!("target/xtask-conformance-{}", std::process::id()));
        let write = |name: &str, checks: &str| {
            fs::create_dir_all(folder.join(name)).unwrap();
            fs::write(folder.join(name).join("checks.json"), checks).unwrap();
        };
        write(
            "server-tools-list-2026-01-02T03-04-05-678Z",
            r#"[{"id": "a", "name": "A", "status": "SUCCESS"}]"#,
        );
        write("server-tools-list-more-2026-01-02T03-04-05-678Z", "[]");
        let found = find_checks(&folder, "server-", "tools-list").unwrap();
        let missing = find_checks(&folder, "server-", "tools").unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!((&*found[0].id, &*found[0].status, found.len()), ("a", "SUCCESS", 1));
        assert_eq!(missing, []);
    }
}
