//! `cargo xtask ci`: all checks that a change must pass, in one target directory.

use std::time::{Duration, Instant};

use crate::command::cargo;
use crate::{conformance, dependency_budget, test, tidy};

type Step = (&'static str, fn() -> anyhow::Result<()>);

/// Feature sets to lint besides all features.
const FEATURES: [&str; 5] = ["", "skills", "http-client", "http-server", "auth"];

const STEPS: &[Step] = &[
    ("format", || cargo(&["fmt", "--all", "--check"])),
    ("tidy", tidy::run),
    ("lints", || cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])),
    ("lints by feature", || {
        FEATURES.iter().try_for_each(|features| {
            let lint = ["clippy", "-p", "linchpin", "--no-default-features", "--features", features];
            cargo(&[&lint[..], &["--", "-D", "warnings"]].concat())
        })
    }),
    // A workspace of its own: no other step compiles it.
    ("bench peers", || {
        let manifest = ["--manifest-path", "bench/peers/Cargo.toml", "--target-dir", "target/peers"];
        cargo(&[&["check", "--locked"], &manifest[..]].concat())
    }),
    ("crates", dependency_budget::run),
    ("test", test::run),
    ("conformance", || conformance::run(&[])),
];

pub(crate) fn run() -> anyhow::Result<()> {
    let mut times = Vec::new();
    let outcome = STEPS.iter().try_for_each(|(name, step)| {
        println!("\n== {name}");
        let start = Instant::now();
        let outcome = step();
        times.push((*name, start.elapsed(), outcome.is_ok()));
        outcome.map_err(|error| error.context(format!("the step \"{name}\" failed")))
    });
    println!("\n{}", table(&times));
    outcome
}

fn table(times: &[(&str, Duration, bool)]) -> String {
    let row = |(name, time, passed): &(&str, Duration, bool)| {
        format!("{name:<24}{:>8.1} s  {}", time.as_secs_f64(), if *passed { "ok" } else { "FAILED" })
    };
    times.iter().map(row).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_shows_time_and_outcome() {
        let times =
            [("format", Duration::from_millis(1250), true), ("tidy", Duration::from_millis(30), false)];
        assert_eq!(
            table(&times),
            "format                       1.2 s  ok\ntidy                         0.0 s  FAILED"
        );
    }
}
