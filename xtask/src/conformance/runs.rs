//! Parallel execution of scenarios. All server scenarios of a revision are one job with its own server; scenarios of
//! extensions, which the suite runs only by name, share one server. A failed client scenario is run again alone, since
//! some scenarios measure time and parallel runs slow them down; reruns are reported.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};

use super::exceptions::Exceptions;
use super::outcome::{Check, Run, read_checks};
use super::process::{Server, run_within};
use super::suite::{EXTENSION, Scenario, Side, Suite};
use crate::command::root;

/// Time limits of a scenario and of a lane (all scenarios of a revision); only reached by a hanging run.
const SCENARIO_TIMEOUT: Duration = Duration::from_mins(1);
const LANE_TIMEOUT: Duration = Duration::from_mins(5);
/// Number of parallel jobs. Jobs are mostly idle.
const MAX_PARALLEL_JOBS: usize = 6;

/// Scenario of one revision.
#[derive(Debug, Clone, Copy)]
struct PlannedScenario<'a> {
    scenario: &'a Scenario,
    revision: &'a str,
}

/// Work of one process of the suite.
enum Job<'a> {
    /// All server scenarios of a revision, of one side.
    Lane(Side, &'a str, Vec<PlannedScenario<'a>>),
    /// One server scenario, run by name.
    Named(PlannedScenario<'a>),
    Client(PlannedScenario<'a>),
}

/// Runs all scenarios and returns one run for each of their revisions. With `by_name`, each server scenario is its own
/// job, for running only a part of them.
pub(super) fn all(
    suite: &Suite,
    scenarios: &[Scenario],
    exceptions: &Exceptions,
    by_name: bool,
) -> anyhow::Result<Vec<Run>> {
    let results = suite.results();
    if results.exists() {
        fs::remove_dir_all(&results).with_context(|| format!("cannot remove {}", results.display()))?;
    }
    fs::create_dir_all(&results).with_context(|| format!("cannot create {}", results.display()))?;
    let mut wanted = Vec::new();
    for scenario in scenarios {
        wanted.extend(scenario.revisions.iter().map(|revision| PlannedScenario { scenario, revision }));
    }
    let server = Server::start(&results.join("server.log"))?;
    let gateway = Server::start_gateway(&results.join("gateway.log"), &server.url)?;
    let runner = Runner { suite, exceptions, server: &server, gateway: &gateway };
    let mut runs = runner.run(&jobs(&wanted, by_name))?;
    for run in runs.iter_mut().filter(|run| run.may_be_timing_failure()) {
        let same = |planned: &&PlannedScenario<'_>| {
            let PlannedScenario { scenario, revision } = planned;
            scenario.side == run.side && scenario.name == run.scenario && *revision == run.revision
        };
        let again = *wanted.iter().find(same).context("a scenario was run without a plan")?;
        println!("running again, alone: {} {} {}", run.side.word(), run.scenario, run.revision);
        *run = runner.client(again, "client-again")?.replacing(run);
    }
    Ok(runs)
}

/// Groups the scenarios into jobs, the longest first.
fn jobs<'a>(wanted: &[PlannedScenario<'a>], by_name: bool) -> Vec<Job<'a>> {
    let named = |planned: &PlannedScenario<'_>| by_name || planned.revision == EXTENSION;
    let of_server = || wanted.iter().copied().filter(|planned| planned.scenario.side != Side::Client);
    let lane = |planned: PlannedScenario<'a>| (planned.revision, planned.scenario.side);
    let lanes: BTreeSet<_> = of_server().filter(|planned| !named(planned)).map(lane).collect();
    let lanes = lanes.into_iter().rev().map(|(revision, side)| {
        let planned = of_server().filter(|planned| lane(*planned) == (revision, side));
        Job::Lane(side, revision, planned.collect())
    });
    let client = wanted.iter().copied().filter(|planned| planned.scenario.side == Side::Client);
    lanes.chain(of_server().filter(named).map(Job::Named)).chain(client.map(Job::Client)).collect()
}

#[derive(Clone, Copy)]
struct Runner<'a> {
    suite: &'a Suite,
    exceptions: &'a Exceptions,
    /// Server for the scenarios that are run by name, and the gateway in front of it.
    server: &'a Server,
    gateway: &'a Server,
}

impl Runner<'_> {
    fn run(self, jobs: &[Job<'_>]) -> anyhow::Result<Vec<Run>> {
        let (next, runs) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let work = || -> anyhow::Result<()> {
            while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                let done = match job {
                    Job::Lane(side, revision, planned) => self.lane(*side, revision, planned)?,
                    Job::Named(planned) => vec![self.named(*planned)?],
                    Job::Client(planned) => vec![self.client(*planned, "client")?],
                };
                runs.lock().expect("no worker panics with the lock held").extend(done);
            }
            Ok(())
        };
        thread::scope(|scope| {
            let workers: Vec<_> = (0..MAX_PARALLEL_JOBS).map(|_| scope.spawn(work)).collect();
            workers.into_iter().try_for_each(|worker| worker.join().expect("a worker does not panic"))
        })?;
        Ok(runs.into_inner().expect("no worker panics with the lock held"))
    }

    /// Creates the directory for the output of one revision.
    fn folder(self, of: &str, revision: &str) -> anyhow::Result<PathBuf> {
        let folder = self.suite.results().join(of).join(revision);
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        Ok(folder)
    }

    fn lane(self, side: Side, revision: &str, planned: &[PlannedScenario<'_>]) -> anyhow::Result<Vec<Run>> {
        let folder = self.folder(side.word(), revision)?;
        let server = Server::start(&folder.join("server.log"))?;
        let gateway = match side {
            Side::Gateway => Some(Server::start_gateway(&folder.join("gateway.log"), &server.url)?),
            Side::Server | Side::Client => None,
        };
        let url = gateway.as_ref().map_or(&server.url, |gateway| &gateway.url);
        let mut command = self.suite.command();
        command.args(["server", "--url", url, "--suite", "all", "-o"]).arg(&folder);
        command.args(of_revision(revision));
        // The exit status of the suite is ignored: it does not fail on warnings.
        run_within(&mut command, &folder.join("suite.log"), LANE_TIMEOUT)?;
        let run = |planned: &PlannedScenario<'_>| {
            let checks = find_checks(&folder, "server-", &planned.scenario.name)?;
            Ok(self.finish_run(*planned, checks, true))
        };
        planned.iter().map(run).collect()
    }

    fn named(self, planned: PlannedScenario<'_>) -> anyhow::Result<Run> {
        let PlannedScenario { scenario, revision } = planned;
        let folder = self.folder(scenario.side.word(), revision)?;
        let server = if scenario.side == Side::Gateway { self.gateway } else { self.server };
        let mut command = self.suite.command();
        command.args(["server", "--url", &server.url, "--scenario", &scenario.name, "-o"]).arg(&folder);
        command.args(of_revision(revision));
        run_within(
            &mut command,
            &folder.join(format!("{}.log", scenario.name.replace('/', "-"))),
            SCENARIO_TIMEOUT,
        )?;
        Ok(self.finish_run(planned, find_checks(&folder, "server-", &scenario.name)?, true))
    }

    fn client(self, planned: PlannedScenario<'_>, folder: &str) -> anyhow::Result<Run> {
        let PlannedScenario { scenario, revision } = planned;
        let folder = self.folder(folder, revision)?;
        let program = root().join("target/debug/conformance-client");
        let mut command = self.suite.command();
        command.args(["client", "--scenario", &scenario.name, "--command"]).arg(program);
        command.arg("-o").arg(&folder).args(of_revision(revision));
        let ended_well = run_within(
            &mut command,
            &folder.join(format!("{}.log", scenario.name.replace('/', "-"))),
            SCENARIO_TIMEOUT,
        )?;
        Ok(self.finish_run(planned, find_checks(&folder, "", &scenario.name)?, ended_well))
    }

    /// Creates the run of a scenario and applies the exceptions.
    fn finish_run(self, planned: PlannedScenario<'_>, checks: Vec<Check>, ended_well: bool) -> Run {
        let PlannedScenario { scenario, revision } = planned;
        let mut run = Run::new(&scenario.name, scenario.side, revision, checks, ended_well);
        self.exceptions.apply(&mut run);
        run
    }
}

fn of_revision(revision: &str) -> impl Iterator<Item = &str> {
    (revision != EXTENSION).then_some(["--spec-version", revision]).into_iter().flatten()
}

/// Reads the checks of a scenario. The suite writes them to a directory named after the scenario and the time; a `/` in
/// the name makes a subdirectory. Returns an empty list if there is no such directory.
fn find_checks(folder: &Path, prefix: &str, scenario: &str) -> anyhow::Result<Vec<Check>> {
    let begin = folder.join(format!("{prefix}{scenario}-"));
    let begin_of_name = begin.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let folder = begin.parent().filter(|folder| folder.is_dir()).unwrap_or(folder);
    let mut found: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.strip_prefix(begin_of_name).is_some_and(is_time) && path.join("checks.json").is_file() {
            found.push(path.join("checks.json"));
        }
    }
    match &*found {
        [] => Ok(Vec::new()),
        [file] => read_checks(file),
        _ => bail!("{} has several results of {scenario}", folder.display()),
    }
}

/// Returns whether the text is a timestamp in the suite's directory name format.
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
