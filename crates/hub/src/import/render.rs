//! Rendering of the import plan as text and JSON.

use serde_json::{Value, json};

use super::plan::{Row, Step};
use crate::terminal::{Cell, Look, Style, clean, one_line, quoted, table};

impl Step {
    fn name(self) -> &'static str {
        match self {
            Step::Added => "added",
            Step::Changed => "changed",
            Step::Unchanged => "unchanged",
            Step::LeftOut => "left out",
        }
    }

    /// Returns the action for the text form.
    fn plan(self, is_dry: bool) -> &'static str {
        match (self, is_dry) {
            (Step::Added, true) => "would add",
            (Step::Changed, true) => "would change",
            (Step::Added, false) => "add",
            (Step::Changed, false) => "change",
            (Step::Unchanged | Step::LeftOut, _) => self.name(),
        }
    }

    fn style(self) -> Style {
        match self {
            Step::Added => Style::Good,
            Step::Changed => Style::Warning,
            Step::Unchanged => Style::Dim,
            Step::LeftOut => Style::Bad,
        }
    }
}

/// Formats the plan as text: a line for each server, with details below it.
pub(super) fn text(rows: &[Row], is_dry: bool, look: Look) -> String {
    if rows.is_empty() {
        return "no servers found\n".to_owned();
    }
    let mut lines = Vec::new();
    for row in rows {
        let name = row.slug.as_ref().map_or_else(|| one_line(&row.name), |slug| slug.as_str().to_owned());
        lines.push(vec![
            Cell::new(row.step.plan(is_dry), row.step.style()),
            Cell::new(name, Style::Name),
            Cell::new(transport(row), Style::Plain),
            Cell::new(one_line(&row.place), Style::Dim),
        ]);
        for (cell, is_exact) in details(row) {
            let cell = Cell::new(cell, Style::Plain);
            let empty = || Cell::new("", Style::Plain);
            lines.push(vec![empty(), empty(), empty(), if is_exact { cell.exact() } else { cell }]);
        }
    }
    table(&lines, 0, look)
}

/// Returns the detail lines of a server, each with whether its spaces must be preserved.
fn details(row: &Row) -> Vec<(String, bool)> {
    let mut details = Vec::new();
    details.extend(row.reason.iter().map(|reason| (one_line(reason), false)));
    if row.is_open() {
        details.extend(command(row).map(|command| (command, true)));
        let directory = row.wanted.as_ref().and_then(|wanted| wanted.fields.get("directory"));
        details
            .extend(directory.and_then(Value::as_str).map(|path| (format!("in {}", one_line(path)), false)));
        details.extend(remote(row).map(|place| (place, true)));
    }
    for (field, before, after) in &row.changes {
        details.push((clean(&format!("{field}: {before} → {after}")), true));
    }
    if !row.enter.is_empty() {
        details.push((format!("stored in the vault: {}", row.enter.join(", ")), false));
    }
    details.extend(missing(row).into_iter().map(|text| (text, false)));
    if row.step != Step::Unchanged {
        let notes = row.wanted.iter().flat_map(|wanted| &wanted.notes);
        details.extend(notes.map(|note| (one_line(note), false)));
    }
    details
}

/// Formats the URL of a remote server and the headers of every request.
pub(super) fn remote(row: &Row) -> Option<String> {
    let fields = &row.wanted.as_ref().filter(|wanted| !wanted.is_program)?.fields;
    let headers = fields.get("headers").and_then(Value::as_object);
    let headers = headers
        .into_iter()
        .flatten()
        .map(|(name, value)| format!(", {name}: {}", value.as_str().unwrap_or_default()));
    Some(clean(&format!("at {}{}", fields.get("url")?.as_str()?, headers.collect::<String>())))
}

/// Formats the URL or command that receives the values of environment variables.
pub(super) fn destination(row: &Row) -> Option<String> {
    let url = row.wanted.as_ref().and_then(|wanted| wanted.fields.get("url")).and_then(Value::as_str);
    url.map(one_line).or_else(|| command(row))
}

/// Returns the exact URL or command that receives the values of environment variables, for comparison.
pub(super) fn target(row: &Row) -> Option<String> {
    let url = row.wanted.as_ref().and_then(|wanted| wanted.fields.get("url")).and_then(Value::as_str);
    url.map(str::to_owned).or_else(|| words(row).map(|words| json!(words).to_string()))
}

/// Returns a line for each missing secret, with the command that sets it.
pub(super) fn missing(row: &Row) -> Vec<String> {
    let slug = row.slug.as_ref().map_or("NAME", |slug| slug.as_str());
    let is_program = row.wanted.as_ref().is_some_and(|wanted| wanted.is_program);
    let how = |name: &String| {
        if is_program {
            format!(
                "secret `{name}` is missing: set it with `linchpin server secret set {slug} {}`",
                quoted(name)
            )
        } else {
            format!("credential is missing: set it with `linchpin server credential set {slug}`")
        }
    };
    row.missing.iter().map(how).collect()
}

/// Formats the exact shell command of a stdio server, with its environment variables, on one line.
pub(super) fn command(row: &Row) -> Option<String> {
    let env = row.wanted.as_ref()?.fields.get("env").and_then(Value::as_object).into_iter().flatten();
    let env = env.map(|(name, value)| format!("{name}={}", quoted(value.as_str().unwrap_or_default())));
    let words: Vec<_> = env.chain(words(row)?.into_iter().map(quoted)).collect();
    Some(clean(&words.join(" ")).replace('\n', "\\n").replace('\t', "\\t"))
}

fn words(row: &Row) -> Option<Vec<&str>> {
    let fields = &row.wanted.as_ref()?.fields;
    let args = fields.get("args").and_then(Value::as_array).into_iter().flatten();
    Some(std::iter::once(fields.get("command")?).chain(args).filter_map(Value::as_str).collect())
}

fn transport(row: &Row) -> &str {
    let wanted = row.wanted.as_ref();
    let said = wanted.and_then(|wanted| wanted.fields.get("transport")).and_then(Value::as_str);
    wanted.map_or("", |wanted| if wanted.is_program { "stdio" } else { said.unwrap_or("http") })
}

/// Returns the plan as JSON.
pub(super) fn json(rows: &[Row], is_dry: bool) -> Value {
    let row = |row: &Row| {
        let change = |(field, before, after): &(String, String, String)| json!({ "field": field, "before": before, "after": after });
        let url = row.wanted.as_ref().and_then(|wanted| wanted.fields.get("url"));
        json!({
            "name": row.name,
            "slug": row.slug,
            "from": row.place,
            "transport": Some(transport(row)).filter(|name| !name.is_empty()),
            "step": row.step.name().replace(' ', "-"),
            "command": words(row),
            "url": url,
            "changes": row.changes.iter().map(change).collect::<Vec<_>>(),
            "secrets": row.enter,
            "missing_secrets": row.missing,
            "notes": row.wanted.as_ref().map(|wanted| &wanted.notes),
            "reason": row.reason,
        })
    };
    json!({ "dry_run": is_dry, "servers": rows.iter().map(row).collect::<Vec<_>>() })
}
