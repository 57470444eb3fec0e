//! `cargo xtask prose-sample`: random names, docs and user-facing texts for a reader who does not know the code.
//!
//! The reader explains each item in one sentence; the explanations are then compared with the code. The same seed and
//! the same checkout give the same sample.

mod candidates;
mod generator;
mod texts;

use anyhow::{Context, bail};

use crate::tidy::{SourceFile, files};
use generator::Generator;

const USAGE: &str = "usage: cargo xtask prose-sample --seed N";
const GROUP_LEN: usize = 40;

pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    let seed = parse_seed(arguments)?;
    println!("{}", render(&files()?, seed)?);
    Ok(())
}

fn parse_seed(arguments: &[String]) -> anyhow::Result<u64> {
    let [option, seed] = arguments else { bail!("the option --seed is missing or has no value\n{USAGE}") };
    if option != "--seed" {
        bail!("unknown option \"{option}\"\n{USAGE}");
    }
    let number = seed.parse().ok();
    number.with_context(|| {
        format!(
            "--seed {seed}: must be an integer from 0 to {}
{USAGE}",
            u64::MAX
        )
    })
}

/// Renders the three groups, with consecutive numbers.
fn render(files: &[SourceFile], seed: u64) -> anyhow::Result<String> {
    let sources = candidates::read(files);
    let groups = [
        ("Names of types and files", candidates::names(&sources)),
        ("Docs of functions, constants, fields and variants", candidates::docs(&sources)),
        ("User-facing texts", texts::texts(&sources)),
    ];
    let mut generator = Generator::new(seed);
    let mut lines = vec![format!("Prose sample, seed {seed}")];
    let mut number = 0;
    for (heading, mut candidates) in groups {
        candidates.sort_unstable();
        candidates.dedup();
        let count = candidates.len();
        if count < GROUP_LEN {
            bail!("{heading}: there are only {count}, but the sample needs {GROUP_LEN}");
        }
        lines.push(format!("\n{heading} ({GROUP_LEN} of {count})\n"));
        for candidate in generator.choose(candidates, GROUP_LEN) {
            number += 1;
            lines.push(format!("{number:>3}. {candidate}"));
        }
    }
    Ok(lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seed(arguments: &[&str]) -> Result<u64, String> {
        let arguments: Vec<_> = arguments.iter().copied().map(str::to_owned).collect();
        parse_seed(&arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn the_seed_is_required() {
        assert_eq!(seed(&["--seed", "7"]), Ok(7));
        let missing = Err(format!("the option --seed is missing or has no value\n{USAGE}"));
        assert_eq!(seed(&[]), missing);
        assert_eq!(seed(&["--seed"]), missing);
        assert_eq!(seed(&["--size", "7"]), Err(format!("unknown option \"--size\"\n{USAGE}")));
        assert!(seed(&["--seed", "-1"]).unwrap_err().starts_with("--seed -1: must be an integer from 0"));
    }

    #[test]
    fn a_sample_of_this_checkout_has_120_different_items_and_repeats() {
        let files = files().unwrap();
        let sample = render(&files, 1).unwrap();
        assert_eq!(sample, render(&files, 1).unwrap());
        assert_ne!(sample, render(&files, 2).unwrap());
        let numbers = |line: &str| line.split_once(". ")?.0.trim().parse::<usize>().ok();
        assert!(sample.lines().filter_map(numbers).eq(1..=120), "{sample}");
        let mut items: Vec<_> =
            sample.lines().filter_map(|line| line.split_once(". ")).map(|(_, item)| item).collect();
        items.sort_unstable();
        items.dedup();
        assert_eq!(items.len(), 120);
    }

    #[test]
    fn too_few_items_are_an_error() {
        let error = render(&[], 1).unwrap_err().to_string();
        assert_eq!(error, "Names of types and files: there are only 0, but the sample needs 40");
    }
}
