//! `linchpin audit`: lists, verifies, accepts and exports the audit log. Except for the list, and without `--hub`, it
//! reads the database directly, so the result does not depend on a hub, and no hub has to run.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand};
use linchpin::egress::Egress;
use linchpin_hub_core::audit::AuditSigner;
use linchpin_hub_core::hub::{AuditFiles, Hub, HubOptions, LOCAL, verify};
use linchpin_hub_core::platform::SystemPlatform;
use serde_json::{Value, json};

use super::output::{Column, column, column_or, name_column};
use super::{CommandContext, audit_export};
use crate::api_client::query_string;
use crate::config::{Config, HubPaths};
use crate::error::{CliError, CliErrorKind};

const VERIFICATION_COLUMNS: [Column; 12] = [
    column("intact", "/intact"),
    column("entries", "/entries"),
    column("last checkpoint", "/checkpoint"),
    column("signed head", "/head"),
    column("segments", "/segments"),
    column("documents", "/documents"),
    column("note", "/note"),
    column("kind", "/kind"),
    column("first damaged entry", "/first_bad_entry"),
    column("error", "/error"),
    column("digest", "/hash"),
    column("public key", "/public_key"),
];

const LIST_COLUMNS: [Column; 8] = [
    name_column("number", "/number"),
    column("time", "/at"),
    column_or("actor", "/actor_name", "/actor"),
    column("action", "/action"),
    column_or("server", "/names/server", "/fields/server"),
    column("tool", "/fields/tool"),
    column_or("agent", "/names/agent", "/fields/agent"),
    column("call", "/fields/call"),
];

#[derive(Args)]
pub(crate) struct AuditFilterArgs {
    /// Filter by actor: name of a user or agent, user:ID, agent:ID or hub
    #[arg(long)]
    actor: Option<String>,
    /// Filter by action, for example call.intent, or by a group of actions, for example `call.`
    #[arg(long)]
    action: Option<String>,
    /// List only entries at or after this time, for example 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// List only entries before this time
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Maximum number of entries to list. Default: 50
    #[arg(long, value_name = "COUNT")]
    limit: Option<usize>,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// List audit entries of the running hub, oldest first
    List(AuditFilterArgs),
    /// Verify that no audit entry or stored document was changed or removed
    ///
    /// Exits with 0 if the audit log is intact, else with 1; `kind` then names the cause: `entry_changed`, `rewritten`,
    /// `late_entry`, `forked`, `end_missing`, `no_checkpoint`, `older_copy`, `all_removed`, `other_store` or
    /// `document_changed`.
    Verify {
        /// Verify this file, which `linchpin audit export` has written, instead of the data of the hub
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// Public key that must have signed the file, in hexadecimal: `public_key` of `linchpin audit verify`
        #[arg(long, value_name = "KEY", requires = "file")]
        public_key: Option<String>,
    },
    /// Accept the current audit log and documents after you changed the data directory by hand
    ///
    /// For example, after you copied back an older data directory. Records the acceptance in the audit log, and signs
    /// all documents and a new chain head. Stop the hub first. `linchpin restore` does this automatically.
    Accept,
    /// Export audit entries as JSON lines
    ///
    /// Entries that were moved to a segment file follow a line that names the segment and its file. The last line is
    /// signed: `linchpin audit verify --file FILE` verifies the export on any machine.
    Export {
        /// Export only entries after this number
        #[arg(long, value_name = "NUMBER", default_value = "0", value_parser = clap::value_parser!(u64).range(..=u64::MAX / 2))]
        after: u64,
    },
}

pub(super) async fn run(context: &CommandContext, command: Command) -> Result<ExitCode, CliError> {
    match command {
        Command::List(filter) => {
            list(context, filter).await?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Verify { file: Some(file), public_key } => {
            audit_export::verify_file(context, &file, public_key.as_deref())?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Verify { .. } => {
            let verification = match &context.hub {
                Some(_) => context.api()?.get("/audit/verify").await?,
                None => verify_local(&context.paths()?).await?,
            };
            context.output.print_details(&verification, &VERIFICATION_COLUMNS)?;
            Ok(ExitCode::from(u8::from(verification["intact"] != true)))
        }
        Command::Accept => {
            accept(context).await?;
            context
                .output
                .print_result(&json!({}), "audit log and documents accepted; a new chain head was signed")?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Export { after } => {
            audit_export::export(context, after).await?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn list(context: &CommandContext, filter: AuditFilterArgs) -> Result<(), CliError> {
    let AuditFilterArgs { actor, action, since, until, limit } = filter;
    let filters = [("actor", actor), ("action", action), ("since", since), ("until", until)];
    let path = format!("/audit{}", query_string(filters));
    let entries = context.api()?.list(&path, limit.unwrap_or(50)).await?;
    Ok(context.output.print_list(&entries, &LIST_COLUMNS, "no audit entries")?)
}

async fn verify_local(paths: &HubPaths) -> Result<Value, CliError> {
    let config = Config::open(&paths.config)?;
    let files = audit_files(paths, &config);
    let store = match paths.open_existing_store().await {
        Err(failure) if !paths.has_store() && paths.keys.exists() => {
            let signer = AuditSigner::new(&paths.read_keys()?.audit);
            let head =
                files.heads.as_ref().map(|file| file.find(None, LOCAL, signer.public_key())).transpose()?;
            return Err(match head.flatten() {
                Some(last) => {
                    let text = format!(
                        "{failure} (kind `all_removed`: the signed head covers {} entries)",
                        last.head.number
                    );
                    CliError::new(CliErrorKind::Other, text)
                }
                None => failure,
            });
        }
        store => store?,
    };
    let signer = AuditSigner::new(&paths.read_keys()?.audit);
    Ok(json!(verify(&*store, LOCAL, &signer, &files).await?))
}

/// Returns the audit files outside the database: checkpoints, chain heads and segments.
pub(super) fn audit_files(paths: &HubPaths, config: &Config) -> AuditFiles {
    let (checkpoints, segments) = (Some(paths.checkpoint_file()), Some(paths.segment_folder(config)));
    AuditFiles { checkpoints, heads: Some(paths.head_file(config)), segments }
}

/// Signs the current audit chain heads while no hub runs (`linchpin audit accept`).
async fn accept(context: &CommandContext) -> Result<(), CliError> {
    if context.hub.is_some() {
        let text = "--hub is not supported: run `linchpin audit accept` on the machine of the hub";
        return Err(CliError::usage(text));
    }
    let paths = context.paths()?;
    let config = Config::open(&paths.config)?;
    let _lock = paths.lock()?;
    let (store, keys) = (paths.open_existing_store().await?, paths.read_keys()?);
    let AuditFiles { checkpoints, heads, segments } = audit_files(&paths, &config);
    let options = HubOptions { checkpoints, heads, segments, ..HubOptions::default() };
    let hub = Hub::new(Arc::new(SystemPlatform), store, keys, Egress::default(), options);
    Ok(hub.audit().accept().await?)
}
