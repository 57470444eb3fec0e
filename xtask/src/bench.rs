//! `cargo xtask bench`: cost of a request with our SDK, compared with the official SDK (rmcp), the minimal correct
//! implementation (raw) and the targets in `bench/targets.json`.
//!
//! A missed target is reported but does not fail the run. A missing or wrong response does. `bench/README.md` explains
//! the figures.

mod client;
mod http_capacity;
mod instructions;
mod load_generator;
mod peer;
mod profile;
mod table;
mod targets;

use anyhow::{Context, bail};

use self::instructions::RunLengths;
use self::load_generator::Load;
use self::peer::{Failures, Peer, PerPeer};
use self::table::{Row, Table, TargetMetric, Verdict};
use self::targets::Targets;
use crate::command;

const USAGE: &str = "\
cargo xtask bench [--quick] [--only TEXT] [--rounds N]
cargo xtask bench profile WORKLOAD [--peer ours|raw|rmcp]

  --quick      fewer requests and rounds, for a rough estimate; do not quote the figures
  --only TEXT  only workloads whose name contains TEXT
  --rounds N   interleaved rounds of the timed measurements, default: 5 (3 with --quick)";

/// Timed workloads: name, requests per round, requests in flight.
const TIMED: [(&str, u32, u32); 8] = [
    ("echo:64", 20_000, 1),
    ("echo:64", 40_000, 32),
    ("ping", 20_000, 8),
    ("add", 10_000, 8),
    ("list", 2_000, 8),
    ("echo:65536", 600, 4),
    ("http echo:64", 8_000, 32),
    ("http 2026 echo:64", 8_000, 32),
];
/// Session workloads (open and close; memory of idle sessions): name, sessions, connections, field of the report.
const SESSIONS: [(&str, u32, u32, &str); 2] =
    [("http session", 4_000, 4, "cpu_us_per_req"), ("http idle", 2_000, 1, "bytes_per_session")];
const STARTUP: &str = "startup";
const STARTS_PER_ROUND: u32 = 5;

struct Options {
    quick: bool,
    only: String,
    rounds: u32,
}

pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    if let Some(("profile", rest)) = arguments.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        return profile::run(rest);
    }
    let options = Options::parse(arguments)?;
    let targets = Targets::read(&known_workloads())?;
    peer::build(&Peer::ALL)?;

    let mut failures = Failures::default();
    let mut tables = Vec::new();
    if command::output("valgrind", &["--version"]).is_ok() {
        tables.push(count_instructions(&options, &targets, &mut failures));
        tables.push(count_client_instructions(&options, &targets, &mut failures));
    } else {
        println!("\nvalgrind is not installed: skipping the instruction tables, the most reliable ones");
        println!("(apt-get install valgrind).");
    }
    tables.push(time_requests(&options, &targets, &mut failures));
    tables.push(time_startup(&options, &targets, &mut failures));
    tables.extend(measure_sessions(&options, &targets, &mut failures));
    tables.push(http_capacity::measure(|name| options.wants(name), &targets, &mut failures));
    if tables.iter().all(|table| table.rows.is_empty()) {
        bail!("no workload's name contains \"{}\"", options.only);
    }

    let (mut within, mut over) = (0, 0);
    for table in tables.iter().filter(|table| !table.rows.is_empty()) {
        println!("\n{table}");
        within += table.count(Verdict::is_within);
        over += table.count(Verdict::is_missed);
    }
    println!("\nbench: {within} within, {over} over");
    failures.into_result()
}

fn count_instructions(options: &Options, targets: &Targets, failures: &mut Failures) -> Table {
    let mut table =
        Table::new("instructions per request (callgrind, user space only)", 0, TargetMetric::Figure);
    for lengths in instructions::WORKLOADS.iter().filter(|lengths| options.wants(lengths.workload)) {
        let lengths = if options.quick { lengths.shorter() } else { *lengths };
        eprintln!("counting instructions: {}", lengths.workload);
        let mut figures = PerPeer::default();
        for peer in Peer::ALL {
            let counted = instructions::per_request(peer, &lengths);
            figures.set(peer, failures.record(peer, lengths.workload, counted));
        }
        let target = targets.find("instructions", lengths.workload);
        table.rows.push(Row { workload: lengths.workload.to_owned(), figures, target });
    }
    table
}

fn count_client_instructions(options: &Options, targets: &Targets, failures: &mut Failures) -> Table {
    let mut table =
        Table::new("instructions per call of a client (callgrind, user space only)", 0, TargetMetric::Figure);
    for lengths in client::WORKLOADS.iter().filter(|lengths| options.wants(lengths.workload)) {
        let lengths = if options.quick { lengths.shorter() } else { *lengths };
        eprintln!("counting instructions of clients: {}", lengths.workload);
        let mut figures = PerPeer::default();
        for peer in client::PEERS {
            figures.set(peer, failures.record(peer, lengths.workload, client::per_call(peer, &lengths)));
        }
        let target = targets.find("client_instructions", lengths.workload);
        table.rows.push(Row { workload: lengths.workload.to_owned(), figures, target });
    }
    table
}

fn time_requests(options: &Options, targets: &Targets, failures: &mut Failures) -> Table {
    let title = format!(
        "CPU µs per request, medians of {} interleaved rounds; the target is the ratio ours÷raw",
        options.rounds
    );
    let mut table = Table::new(&title, 2, TargetMetric::RatioToRaw);
    for (workload, count, depth) in TIMED {
        let name = timed_name(workload, depth);
        if !options.wants(&name) {
            continue;
        }
        eprintln!("timing: {name}");
        let count = if options.quick { count / 5 } else { count };
        let load = Load { workload, count, depth, warmup: None, max_secs: 25 };
        let figures = interleaved(options.rounds, &name, failures, |peer| {
            load_generator::figure(&load_generator::run(&load, peer, &[])?, "cpu_us_per_req")
        });
        let target = targets.find("cpu_ratio", &name);
        table.rows.push(Row { workload: name, figures, target });
    }
    table
}

fn time_startup(options: &Options, targets: &Targets, failures: &mut Failures) -> Table {
    let mut table = Table::new("spawn → initialize, ms, median", 2, TargetMetric::Figure);
    if options.wants(STARTUP) {
        eprintln!("timing: {STARTUP}");
        let load = Load { workload: STARTUP, count: STARTS_PER_ROUND, depth: 1, warmup: None, max_secs: 25 };
        let figures = interleaved(options.rounds, STARTUP, failures, |peer| {
            load_generator::figure(&load_generator::run(&load, peer, &[])?, "median_ms")
        });
        let target = targets.find("startup_ms", STARTUP);
        table.rows.push(Row { workload: STARTUP.to_owned(), figures, target });
    }
    table
}

/// Returns a table for opening and closing sessions, which has a ratio as target, and one for idle sessions.
fn measure_sessions(options: &Options, targets: &Targets, failures: &mut Failures) -> Vec<Table> {
    let rounds = options.rounds;
    let open =
        format!("open and close a session, CPU µs, medians of {rounds} rounds; the target is ours÷rmcp");
    let tables = [
        Table::new(&open, 1, TargetMetric::RatioToRmcp),
        Table::new("memory of an idle session, bytes, median", 0, TargetMetric::Figure),
    ];
    let measure = |(mut table, (workload, count, depth, figure)): (Table, (&str, u32, u32, &str))| {
        if options.wants(workload) {
            eprintln!("measuring: {workload}");
            let load = Load { workload, count, depth, warmup: None, max_secs: 25 };
            let figures = interleaved(rounds, workload, failures, |peer| {
                load_generator::figure(&load_generator::run(&load, peer, &[])?, figure)
            });
            let target = targets.find("sessions", workload);
            table.rows.push(Row { workload: workload.to_owned(), figures, target });
        }
        table
    };
    tables.into_iter().zip(SESSIONS).map(measure).collect()
}

/// Measures the peers in turn (A, B, C, A, B, C…), so that other load on the machine affects all alike, and returns the
/// median of each. A peer that failed is not measured again.
fn interleaved(
    rounds: u32,
    workload: &str,
    failures: &mut Failures,
    mut measure: impl FnMut(Peer) -> anyhow::Result<f64>,
) -> PerPeer {
    let mut samples = Peer::ALL.map(|peer| (peer, Some(Vec::new())));
    for _ in 0..rounds {
        for (peer, slot) in &mut samples {
            if let Some(values) = slot {
                match failures.record(*peer, workload, measure(*peer)) {
                    Some(value) => values.push(value),
                    None => *slot = None,
                }
            }
        }
    }
    let mut figures = PerPeer::default();
    for (peer, values) in samples {
        figures.set(peer, values.and_then(median));
    }
    figures
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values.get(middle).copied()
    } else {
        Some(values.get(middle.checked_sub(1)?)?.midpoint(*values.get(middle)?))
    }
}

fn timed_name(workload: &str, depth: u32) -> String {
    format!("{workload} x{depth}")
}

/// Returns the workloads that may have a target, by table.
fn known_workloads() -> Vec<(&'static str, Vec<String>)> {
    let names = |lengths: &[RunLengths]| lengths.iter().map(|lengths| lengths.workload.to_owned()).collect();
    vec![
        ("instructions", names(&instructions::WORKLOADS)),
        ("client_instructions", names(&client::WORKLOADS)),
        ("cpu_ratio", TIMED.iter().map(|(workload, _, depth)| timed_name(workload, *depth)).collect()),
        ("startup_ms", vec![STARTUP.to_owned()]),
        ("sessions", SESSIONS.iter().map(|(workload, ..)| (*workload).to_owned()).collect()),
        ("crowds", http_capacity::names().map(str::to_owned).collect()),
    ]
}

impl Options {
    fn parse(arguments: &[String]) -> anyhow::Result<Self> {
        let mut options = Self { quick: false, only: String::new(), rounds: 0 };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let mut value =
                || arguments.next().with_context(|| format!("{argument} needs a value\n\n{USAGE}"));
            match argument.as_str() {
                "--quick" => options.quick = true,
                "--only" => options.only.clone_from(value()?),
                "--rounds" => match value()?.parse() {
                    Ok(rounds) if rounds > 0 => options.rounds = rounds,
                    _ => bail!("--rounds must be at least 1\n\n{USAGE}"),
                },
                _ => bail!("unknown argument {argument}\n\n{USAGE}"),
            }
        }
        if options.rounds == 0 {
            options.rounds = if options.quick { 3 } else { 5 };
        }
        Ok(options)
    }

    fn wants(&self, workload: &str) -> bool {
        workload.contains(&self.only)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_of_rounds_lies_between_the_middle_two() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 8.0]), Some(3.0));
        assert_eq!(median(vec![]), None);
    }

    #[test]
    fn a_peer_that_failed_is_not_asked_again_and_has_no_figure() {
        let mut failures = Failures::default();
        let mut asked = Vec::new();
        let figures = interleaved(2, "echo:64", &mut failures, |peer| {
            asked.push(peer.name());
            anyhow::ensure!(peer != Peer::Rmcp, "no response");
            Ok(1.5)
        });
        assert_eq!(asked, ["raw", "ours", "rmcp", "raw", "ours"]);
        assert_eq!((figures.get(Peer::Ours), figures.get(Peer::Rmcp)), (Some(1.5), None));
        assert!(failures.into_result().is_err());
    }

    #[test]
    fn the_targets_in_the_repository_name_workloads_that_exist() {
        let targets = Targets::read(&known_workloads()).unwrap();
        assert!(targets.find("cpu_ratio", "echo:64 x32").is_some());
        assert!(targets.find("cpu_ratio", "echo:64 x1").is_none());
    }
}
