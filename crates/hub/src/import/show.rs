//! The plan of an import, as people and programs see it.

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

    /// What will be done, for people.
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

/// The plan for people: a line for each server, and details below it.
pub(super) fn text(rows: &[Row], is_dry: bool, look: Look) -> String {
    if rows.is_empty() {
        return "there are no servers in it\n".to_owned();
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

/// What is said of a server, and whether every space of it counts.
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
        details.push((format!("into the vault: {}", row.enter.join(", ")), false));
    }
    details.extend(missing(row).into_iter().map(|text| (text, false)));
    if row.step != Step::Unchanged {
        let notes = row.wanted.iter().flat_map(|wanted| &wanted.notes);
        details.extend(notes.map(|note| (one_line(note), false)));
    }
    details
}

/// Where a server on the network is, and what is sent there with every request.
pub(super) fn remote(row: &Row) -> Option<String> {
    let fields = &row.wanted.as_ref().filter(|wanted| !wanted.is_program)?.fields;
    let headers = fields.get("headers").and_then(Value::as_object);
    let headers = headers
        .into_iter()
        .flatten()
        .map(|(name, value)| format!(", {name}: {}", value.as_str().unwrap_or_default()));
    Some(clean(&format!("at {}{}", fields.get("url")?.as_str()?, headers.collect::<String>())))
}

/// What gets the value of a variable of the environment: a URL, or a command.
pub(super) fn destination(row: &Row) -> Option<String> {
    let url = row.wanted.as_ref().and_then(|wanted| wanted.fields.get("url")).and_then(Value::as_str);
    url.map(one_line).or_else(|| command(row))
}

/// The URL, or the words of the command, that get the value of a variable of the environment.
pub(super) fn target(row: &Row) -> Option<String> {
    let url = row.wanted.as_ref().and_then(|wanted| wanted.fields.get("url")).and_then(Value::as_str);
    url.map(str::to_owned).or_else(|| words(row).map(|words| json!(words).to_string()))
}

/// What somebody has to enter, and how.
pub(super) fn missing(row: &Row) -> Vec<String> {
    let slug = row.slug.as_ref().map_or("NAME", |slug| slug.as_str());
    let is_program = row.wanted.as_ref().is_some_and(|wanted| wanted.is_program);
    let how = |name: &String| {
        if is_program {
            format!("`{name}` is missing: enter it with `linchpin server secret set {slug} {}`", quoted(name))
        } else {
            format!("its secret is missing: enter it with `linchpin server credential set {slug}`")
        }
    };
    row.missing.iter().map(how).collect()
}

/// The exact command of a program, as it is typed, with its variables before it: whatever it does stands on one line.
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

/// For programs.
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
