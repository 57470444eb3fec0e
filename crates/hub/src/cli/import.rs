//! `linchpin import`: the servers of files that people already have.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::Asked;
use crate::failure::Failure;
use crate::import::{self, Format};

#[derive(Args)]
pub(crate) struct Import {
    /// Files of Claude Desktop, Claude Code, Cursor or VS Code; those of this user and this folder when left out
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Whose files they are; known by their names when left out
    #[arg(long)]
    format: Option<Format>,
    /// Show what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Import without asking. Servers stay disabled until `linchpin server enable`, and no variable of your environment is
    /// read unless you confirm it at a terminal
    #[arg(long)]
    yes: bool,
}

pub(super) async fn run(asked: &Asked, import: Import) -> Result<ExitCode, Failure> {
    let Import { files, format, dry_run, yes } = import;
    import::run(asked, import::Options { files, format, dry_run, yes }).await
}
