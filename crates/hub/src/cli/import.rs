//! `linchpin import`: arguments of the import of servers from the configuration files of other clients.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::CommandContext;
use crate::error::CliError;
use crate::import::{self, ClientFormat};

#[derive(Args)]
pub(crate) struct Import {
    /// Configuration files of Claude Desktop, Claude Code, Cursor or VS Code. Default: the files of the current
    /// user and directory
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Client whose configuration files these are. Default: detected from file name and content
    #[arg(long)]
    format: Option<ClientFormat>,
    /// Show what would be imported, without changing anything
    #[arg(long)]
    dry_run: bool,
    /// Import without confirmation. Servers stay disabled until `linchpin server enable`, and an environment variable
    /// is read only if you confirm it at a terminal
    #[arg(long)]
    yes: bool,
}

pub(super) async fn run(context: &CommandContext, import: Import) -> Result<ExitCode, CliError> {
    let Import { files, format, dry_run, yes } = import;
    import::run(context, import::ImportOptions { files, format, dry_run, yes }).await
}
