//! `linchpin import`: arguments of the import of servers from the configuration files of other clients.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::Asked;
use crate::error::Failure;
use crate::import::{self, Format};

#[derive(Args)]
pub(crate) struct Import {
    /// Files of Claude Desktop, Claude Code, Cursor or VS Code. Default: the files of the current user and directory
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Client that the files belong to. Default: detected from file name and content
    #[arg(long)]
    format: Option<Format>,
    /// Show the plan without changing anything
    #[arg(long)]
    dry_run: bool,
    /// Import without confirmation. Servers stay disabled until `linchpin server enable`, and an environment variable
    /// is read only if you confirm it at a terminal
    #[arg(long)]
    yes: bool,
}

pub(super) async fn run(asked: &Asked, import: Import) -> Result<ExitCode, Failure> {
    let Import { files, format, dry_run, yes } = import;
    import::run(asked, import::Options { files, format, dry_run, yes }).await
}
