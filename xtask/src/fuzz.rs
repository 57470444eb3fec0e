//! `cargo xtask fuzz`: coverage-guided fuzzing on the stable toolchain.
//!
//! The coverage counters that libFuzzer needs come from an LLVM pass, enabled by a flag that stable rustc accepts.
//! Seeds and dictionary are in `fuzz/`; findings are written to `target/fuzz`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, anyhow, bail};

use crate::command::{output, root, run as run_command};

const TARGETS: [&str; 8] = ["envelope", "lines", "codecs", "events", "headers", "egress", "schema", "auth"];

const RUSTFLAGS: &str = "-Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares \
    --cfg fuzzing -Ccodegen-units=1 -Cdebug-assertions";

#[derive(Debug, PartialEq, Eq)]
struct Plan {
    targets: Vec<&'static str>,
    seconds: u32,
}

pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    let plan = plan(arguments)?;
    let programs = build(&plan.targets)?;
    for target in plan.targets {
        fuzz(target, plan.seconds, &programs)?;
    }
    Ok(())
}

fn plan(arguments: &[String]) -> anyhow::Result<Plan> {
    let mut plan = Plan { targets: Vec::new(), seconds: 30 };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if argument == "--seconds" {
            let seconds = arguments.next().context("--seconds needs a number")?;
            plan.seconds = seconds.parse().with_context(|| format!("--seconds {seconds} is not a number"))?;
            // libFuzzer takes zero as "no limit".
            if plan.seconds == 0 {
                bail!("--seconds must be at least 1");
            }
        } else {
            let target = TARGETS.into_iter().find(|target| target == argument);
            plan.targets.push(target.with_context(|| {
                format!("unknown fuzz target \"{argument}\": choose one of {}", TARGETS.join(", "))
            })?);
        }
    }
    if plan.targets.is_empty() {
        plan.targets.extend(TARGETS);
    }
    Ok(plan)
}

/// Builds the fuzz programs and returns their directory.
fn build(targets: &[&str]) -> anyhow::Result<PathBuf> {
    let version = output("rustc", &["-vV"])?;
    let host =
        version.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc -vV names no host")?;
    let mut cargo = Command::new("cargo");
    cargo.args([
        "build",
        "--release",
        "-p",
        "fuzz",
        "--features",
        "libfuzzer",
        "--target-dir",
        "target/fuzz",
    ]);
    // With --target, the flags do not apply to build scripts and macros, which must not be instrumented.
    cargo.args(["--target", host]);
    for target in targets {
        cargo.args(["--bin", &format!("fuzz_{target}")]);
    }
    // Disable link-time optimization: it would run after the pass that adds the counters.
    run_command(cargo.env("RUSTFLAGS", RUSTFLAGS).env("CARGO_PROFILE_RELEASE_LTO", "off"))?;
    Ok(root().join("target/fuzz").join(host).join("release"))
}

fn fuzz(target: &str, seconds: u32, programs: &Path) -> anyhow::Result<()> {
    let corpus = format!("target/fuzz/corpus/{target}");
    let artifacts = format!("target/fuzz/artifacts/{target}/");
    copy_files(&root().join("fuzz/seeds").join(target), &root().join(&corpus))?;
    std::fs::create_dir_all(root().join(&artifacts)).with_context(|| format!("cannot create {artifacts}"))?;
    // libFuzzer is verbose: log to a file and print only a summary.
    let log_path = root().join(format!("target/fuzz/{target}.log"));
    let log = File::create(&log_path).with_context(|| format!("cannot create {}", log_path.display()))?;
    let outcome = run_command(
        Command::new(programs.join(format!("fuzz_{target}")))
            .args([
                corpus,
                "-dict=fuzz/dictionaries/json.dict".to_owned(),
                format!("-max_total_time={seconds}"),
                "-max_len=8192".to_owned(),
                "-timeout=5".to_owned(),
                "-rss_limit_mb=512".to_owned(),
                "-print_final_stats=1".to_owned(),
                format!("-artifact_prefix={artifacts}"),
            ])
            .stderr(log),
    );
    let log = String::from_utf8_lossy(&std::fs::read(&log_path)?).into_owned();
    let Err(error) = outcome else {
        println!("{}", summary(target, &log));
        return Ok(());
    };
    println!("{}", complaint(&log));
    Err(find_artifact(&log).map_or(error, |found| anyhow!(advice(target, found))))
}

fn summary(target: &str, log: &str) -> String {
    let number = |name| log.lines().rev().find_map(|line| line.strip_prefix(name)).map_or("?", str::trim);
    let (runs, speed) = (number("stat::number_of_executed_units:"), number("stat::average_exec_per_sec:"));
    format!("{target}: {runs} runs, {speed} a second, nothing found")
}

/// Returns the panic message, or the end of the log if there was no panic.
fn complaint(log: &str) -> String {
    const LINES: usize = 15;
    let lines: Vec<_> = log.lines().filter(|line| !line.starts_with('#')).collect();
    let panic = lines.iter().position(|line| line.contains(" panicked at "));
    let start = panic.unwrap_or(lines.len().saturating_sub(LINES));
    lines[start..].iter().take(LINES).copied().collect::<Vec<_>>().join("\n")
}

/// Finds the path of the crashing input in the log of libFuzzer.
fn find_artifact(log: &str) -> Option<&str> {
    log.lines().rev().find_map(|line| line.split_once("Test unit written to ")).map(|(_, path)| path.trim())
}

fn advice(target: &str, found: &str) -> String {
    format!(
        "the target \"{target}\" found a failure: {found}\n\
         add it as a seed with a descriptive name, and reproduce it as a plain test:\n  \
         cp {found} fuzz/seeds/{target}/<what-it-shows>\n  \
         cargo test -p fuzz"
    )
}

fn copy_files(from: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(to).with_context(|| format!("cannot create {}", to.display()))?;
    for entry in std::fs::read_dir(from).with_context(|| format!("cannot list {}", from.display()))? {
        let entry = entry?;
        std::fs::copy(entry.path(), to.join(entry.file_name()))
            .with_context(|| format!("cannot copy {}", entry.path().display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(arguments: &[&str]) -> Result<Plan, String> {
        let arguments: Vec<_> = arguments.iter().copied().map(str::to_owned).collect();
        plan(&arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn arguments() {
        assert_eq!(planned(&[]), Ok(Plan { targets: TARGETS.to_vec(), seconds: 30 }));
        assert_eq!(planned(&["lines", "--seconds", "5"]), Ok(Plan { targets: vec!["lines"], seconds: 5 }));
        let unknown = "unknown fuzz target \"nothing\": choose one of envelope, lines, codecs, events, headers, egress, schema, auth";
        assert_eq!(planned(&["nothing"]), Err(unknown.to_owned()));
        assert_eq!(planned(&["--seconds"]), Err("--seconds needs a number".to_owned()));
        assert_eq!(planned(&["--seconds", "0"]), Err("--seconds must be at least 1".to_owned()));
        assert_eq!(planned(&["--seconds", "x"]), Err("--seconds x is not a number".to_owned()));
    }

    #[test]
    fn every_target_has_a_program_and_seeds() {
        for target in TARGETS {
            assert!(root().join(format!("fuzz/src/bin/fuzz_{target}.rs")).is_file(), "{target}");
            assert!(root().join("fuzz/seeds").join(target).is_dir(), "{target}");
        }
    }

    #[test]
    fn a_find_comes_with_its_reason_and_the_way_to_keep_it() {
        let log = "#5\tNEW\nthread '<unnamed>' panicked at fuzz/src/lines.rs:1:\nleft and right\n#6\n\
                   artifact_prefix='a/'; Test unit written to a/crash-1\nBase64: AA==\n";
        assert!(
            complaint(log)
                .starts_with("thread '<unnamed>' panicked at fuzz/src/lines.rs:1:\nleft and right\n")
        );
        let text = advice("lines", find_artifact(log).unwrap());
        assert!(text.contains("cp a/crash-1 fuzz/seeds/lines/"), "{text}");
        assert_eq!(find_artifact("killed"), None);
        assert_eq!(complaint("#1\nkilled"), "killed");
    }

    #[test]
    fn a_run_without_a_find_is_one_line() {
        let log = "#1\nstat::number_of_executed_units: 7\nstat::average_exec_per_sec:     3\n";
        assert_eq!(summary("lines", log), "lines: 7 runs, 3 a second, nothing found");
    }
}
