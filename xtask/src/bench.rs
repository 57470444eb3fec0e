//! `cargo xtask bench`.

use anyhow::bail;

pub(crate) fn run(_arguments: &[String]) -> anyhow::Result<()> {
    bail!("the benchmarks are not wired up yet")
}
