//! `linchpin key`: the key that everything is sealed with.

use clap::Subcommand;

use super::Asked;
use crate::failure::Failure;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Turn the key over: everything is sealed with a new one, while the hub goes on
    Rotate,
}

pub(super) async fn run(asked: &Asked, command: &Command) -> Result<(), Failure> {
    let Command::Rotate = command;
    let answer = asked.api()?.ask("/keys/rotate").await?;
    Ok(asked.output.done(&answer, "the key is turned over: keep a copy of the key file again")?)
}
