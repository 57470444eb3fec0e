//! Rendering of the import plan as text and JSON.

use serde_json::{Value, json};

use super::plan::{PlanAction, PlanEntry};
use crate::terminal::{Cell, OutputStyle, Style, one_line, sanitize, shell_quote, table};

impl PlanAction {
    fn name(self) -> &'static str {
        match self {
            PlanAction::Add => "added",
            PlanAction::Update => "changed",
            PlanAction::Unchanged => "unchanged",
            PlanAction::Skip => "left out",
        }
    }

    /// Returns the verb for an import action in the text output: `add`, or `would add` for a dry run.
    fn verb(self, is_dry: bool) -> &'static str {
        match (self, is_dry) {
            (PlanAction::Add, true) => "would add",
            (PlanAction::Update, true) => "would change",
            (PlanAction::Add, false) => "add",
            (PlanAction::Update, false) => "change",
            (PlanAction::Unchanged | PlanAction::Skip, _) => self.name(),
        }
    }

    fn style(self) -> Style {
        match self {
            PlanAction::Add => Style::Good,
            PlanAction::Update => Style::Warning,
            PlanAction::Unchanged => Style::Dim,
            PlanAction::Skip => Style::Bad,
        }
    }
}

/// Formats the plan as text: a line for each server, with details below it.
pub(super) fn render_text(rows: &[PlanEntry], is_dry: bool, style: OutputStyle) -> String {
    if rows.is_empty() {
        return "no servers found in the imported files\n".to_owned();
    }
    let mut lines = Vec::new();
    for row in rows {
        let name = row.slug.as_ref().map_or_else(|| one_line(&row.name), |slug| slug.as_str().to_owned());
        lines.push(vec![
            Cell::new(row.action.verb(is_dry), row.action.style()),
            Cell::new(name, Style::Name),
            Cell::new(transport(row), Style::Plain),
            Cell::new(one_line(&row.location), Style::Dim),
        ]);
        for (cell, is_exact) in details(row) {
            let cell = Cell::new(cell, Style::Plain);
            let empty = || Cell::new("", Style::Plain);
            lines.push(vec![empty(), empty(), empty(), if is_exact { cell.preserve_spaces() } else { cell }]);
        }
    }
    table(&lines, 0, style)
}

/// Returns the lines below a server in the import plan, each with whether its spaces must be preserved.
fn details(row: &PlanEntry) -> Vec<(String, bool)> {
    let mut details = Vec::new();
    details.extend(row.reason.iter().map(|reason| (one_line(reason), false)));
    if row.has_changes() {
        details.extend(command_line(row).map(|command| (command, true)));
        let directory = row.imported.as_ref().and_then(|imported| imported.fields.get("directory"));
        details
            .extend(directory.and_then(Value::as_str).map(|path| (format!("in {}", one_line(path)), false)));
        details.extend(remote_line(row).map(|address| (address, true)));
    }
    for (field, before, after) in &row.changes {
        details.push((sanitize(&format!("{field}: {before} → {after}")), true));
    }
    if !row.secrets_to_store.is_empty() {
        details.push((format!("stored in the vault: {}", row.secrets_to_store.join(", ")), false));
    }
    details.extend(missing_secret_hints(row).into_iter().map(|text| (text, false)));
    if row.action != PlanAction::Unchanged {
        let notes = row.imported.iter().flat_map(|imported| &imported.notes);
        details.extend(notes.map(|note| (one_line(note), false)));
    }
    details
}

/// Formats the URL of a remote server and the headers of every request.
pub(super) fn remote_line(row: &PlanEntry) -> Option<String> {
    let fields = &row.imported.as_ref().filter(|imported| !imported.is_stdio)?.fields;
    let headers = fields.get("headers").and_then(Value::as_object);
    let headers = headers
        .into_iter()
        .flatten()
        .map(|(name, value)| format!(", {name}: {}", value.as_str().unwrap_or_default()));
    Some(sanitize(&format!("at {}{}", fields.get("url")?.as_str()?, headers.collect::<String>())))
}

/// Formats the URL or command that receives the values of environment variables.
pub(super) fn target_line(row: &PlanEntry) -> Option<String> {
    let url = row.imported.as_ref().and_then(|imported| imported.fields.get("url")).and_then(Value::as_str);
    url.map(one_line).or_else(|| command_line(row))
}

/// Returns the exact URL or command that receives the values of environment variables, for comparison.
pub(super) fn exact_target(row: &PlanEntry) -> Option<String> {
    let url = row.imported.as_ref().and_then(|imported| imported.fields.get("url")).and_then(Value::as_str);
    url.map(str::to_owned).or_else(|| command_words(row).map(|words| json!(words).to_string()))
}

/// Returns a line for each missing secret, with the command that sets it.
pub(super) fn missing_secret_hints(row: &PlanEntry) -> Vec<String> {
    let slug = row.slug.as_ref().map_or("NAME", |slug| slug.as_str());
    let is_program = row.imported.as_ref().is_some_and(|imported| imported.is_stdio);
    let hint = |name: &String| {
        if is_program {
            format!(
                "secret `{name}` is missing: set it with `linchpin server secret set {slug} {}`",
                shell_quote(name)
            )
        } else {
            format!("credential is missing: set it with `linchpin server credential set {slug}`")
        }
    };
    row.missing_secrets.iter().map(hint).collect()
}

/// Formats the exact shell command of a stdio server, with its environment variables, on one line.
pub(super) fn command_line(row: &PlanEntry) -> Option<String> {
    let env = row.imported.as_ref()?.fields.get("env").and_then(Value::as_object).into_iter().flatten();
    let env = env.map(|(name, value)| format!("{name}={}", shell_quote(value.as_str().unwrap_or_default())));
    let words: Vec<_> = env.chain(command_words(row)?.into_iter().map(shell_quote)).collect();
    Some(sanitize(&words.join(" ")).replace('\n', "\\n").replace('\t', "\\t"))
}

fn command_words(row: &PlanEntry) -> Option<Vec<&str>> {
    let fields = &row.imported.as_ref()?.fields;
    let args = fields.get("args").and_then(Value::as_array).into_iter().flatten();
    Some(std::iter::once(fields.get("command")?).chain(args).filter_map(Value::as_str).collect())
}

fn transport(row: &PlanEntry) -> &str {
    let imported = row.imported.as_ref();
    let transport_name =
        imported.and_then(|imported| imported.fields.get("transport")).and_then(Value::as_str);
    imported.map_or("", |imported| if imported.is_stdio { "stdio" } else { transport_name.unwrap_or("http") })
}

/// Returns the import plan as JSON.
pub(super) fn render_json(rows: &[PlanEntry], is_dry: bool) -> Value {
    let row = |row: &PlanEntry| {
        let change = |(field, before, after): &(String, String, String)| json!({ "field": field, "before": before, "after": after });
        let url = row.imported.as_ref().and_then(|imported| imported.fields.get("url"));
        json!({
            "name": row.name,
            "slug": row.slug,
            "from": row.location,
            "transport": Some(transport(row)).filter(|name| !name.is_empty()),
            "step": row.action.name().replace(' ', "-"),
            "command": command_words(row),
            "url": url,
            "changes": row.changes.iter().map(change).collect::<Vec<_>>(),
            "secrets": row.secrets_to_store,
            "missing_secrets": row.missing_secrets,
            "notes": row.imported.as_ref().map(|imported| &imported.notes),
            "reason": row.reason,
        })
    };
    json!({ "dry_run": is_dry, "servers": rows.iter().map(row).collect::<Vec<_>>() })
}
