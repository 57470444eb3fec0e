//! Instructions per request, counted by callgrind: the difference of two runs of different length, so that start-up and
//! shutdown cancel out. The figure is reproducible to half a percent, regardless of the load of the machine.

use std::fs;

use anyhow::{Context, ensure};

use super::load_generator::{self, Load};
use super::peer::Peer;
use crate::command;

/// Workload and the number of requests of its two runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunLengths {
    pub(super) workload: &'static str,
    pub(super) short: u32,
    pub(super) long: u32,
}

pub(super) const WORKLOADS: [RunLengths; 8] = [
    RunLengths { workload: "echo:64", short: 200, long: 1200 },
    RunLengths { workload: "ping", short: 200, long: 1200 },
    RunLengths { workload: "add", short: 200, long: 1200 },
    RunLengths { workload: "list", short: 20, long: 120 },
    RunLengths { workload: "echo:65536", short: 10, long: 50 },
    RunLengths { workload: "http echo:64", short: 200, long: 1200 },
    RunLengths { workload: "http 2026 echo:64", short: 200, long: 1200 },
    RunLengths { workload: "http list", short: 20, long: 120 },
];

impl RunLengths {
    pub(super) fn shorter(self) -> Self {
        Self { long: self.short + (self.long - self.short) / 4, ..self }
    }

    /// Returns the difference in requests between the two runs.
    pub(super) fn difference(&self) -> f64 {
        f64::from(self.long - self.short)
    }
}

/// Directory of the callgrind files; they stay there for other tools.
const PROFILE_DIRECTORY: &str = "target/bench";

/// Returns the instructions per request.
pub(super) fn per_request(peer: Peer, lengths: &RunLengths) -> anyhow::Result<f64> {
    difference(&profiles(peer, lengths)?, lengths)
}

/// Returns the difference in instructions between the long and the short run, per request.
pub(super) fn difference([short, long]: &[String; 2], lengths: &RunLengths) -> anyhow::Result<f64> {
    Ok((total(long)? - total(short)?) / lengths.difference())
}

/// Returns the callgrind files of the short and the long run.
pub(super) fn profiles(peer: Peer, lengths: &RunLengths) -> anyhow::Result<[String; 2]> {
    let run = |count| profile(peer, lengths.workload, count);
    Ok([run(lengths.short)?, run(lengths.long)?])
}

/// Returns the path of a run's callgrind file, relative to the workspace root.
pub(super) fn path(peer: Peer, workload: &str, count: u32) -> String {
    format!("{PROFILE_DIRECTORY}/callgrind.{}.{}.{count}.out", peer.name(), workload.replace([':', ' '], "_"))
}

fn profile(peer: Peer, workload: &str, count: u32) -> anyhow::Result<String> {
    let path = path(peer, workload, count);
    let out = prepare(&path)?;
    let counted = ["valgrind", "--tool=callgrind", &out, "-q"];
    // The same warm-up in both runs, so that it cancels out too.
    let load = Load { workload, count, depth: 1, warmup: Some(1), max_secs: 200 };
    let report = load_generator::run(&load, peer, &counted)?;
    let answered = report["n"].as_u64();
    ensure!(answered == Some(count.into()), "{answered:?} of {count} requests got a response");
    read(&path)
}

/// Removes an old callgrind file and returns the option that makes callgrind write this one.
pub(super) fn prepare(path: &str) -> anyhow::Result<String> {
    let file = command::root().join(path);
    fs::create_dir_all(command::root().join(PROFILE_DIRECTORY))
        .with_context(|| format!("cannot create {PROFILE_DIRECTORY}"))?;
    // The file of an earlier run must not be taken for the result of this one.
    if file.exists() {
        fs::remove_file(&file).with_context(|| format!("cannot remove {path}"))?;
    }
    Ok(format!("--callgrind-out-file={path}"))
}

/// Reads the callgrind file of a run.
pub(super) fn read(path: &str) -> anyhow::Result<String> {
    let file = command::root().join(path);
    let bytes = fs::read(file).with_context(|| format!("the program exited without writing {path}"))?;
    // Function names may be invalid UTF-8.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the total number of instructions of a run.
fn total(profile: &str) -> anyhow::Result<f64> {
    let mut lines = profile.lines();
    let total = lines.find_map(|line| line.strip_prefix("summary:").or_else(|| line.strip_prefix("totals:")));
    total
        .context("the callgrind file has no total")?
        .trim()
        .parse()
        .context("invalid total in the callgrind file")
}
