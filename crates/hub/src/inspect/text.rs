//! Text output of `linchpin inspect`.

use std::fmt::Write as _;

use linchpin::client::{Listing, SkippedEntry};
use linchpin::model::{Prompt, PromptArgument, Resource, ResourceTemplate, TaskSupport, Tool};

use super::Inspection;
use super::schema::parameters;
use crate::terminal::{
    Cell, OutputStyle, Style, display_width, first_paragraph, one_line, sanitize, table, truncate, wrap,
};

/// Maximum displayed width of a name, in columns.
const MAX_NAME_WIDTH: usize = 128;

/// Maximum number of lines of a description. `-v` removes the limit.
const MAX_DESCRIPTION_LINES: usize = 3;
/// Maximum width of a description in a table, in columns. `-v` removes the limit.
const MAX_CELL_WIDTH: usize = 160;

struct Page {
    out: String,
    style: OutputStyle,
    verbose: bool,
}

pub(super) fn render(found: &Inspection, style: OutputStyle, verbose: bool) -> String {
    let mut page = Page { out: String::new(), style, verbose };
    page.head(found);
    page.list("Tools", found.tools.as_ref(), Page::tool);
    page.table("Resources", found.resources.as_ref(), resource);
    page.table("Resource templates", found.templates.as_ref(), template);
    page.list("Prompts", found.prompts.as_ref(), Page::prompt);
    page.out
}

impl Page {
    fn head(&mut self, found: &Inspection) {
        let style = self.style;
        match &found.server {
            Some(server) => {
                let name = style.paint(Style::Name, &one_line(&server.name));
                let title = title(&server.name, server.title.as_deref());
                let _ = writeln!(self.out, "{name} {}{title}", one_line(&server.version));
                self.description(server.description.as_deref(), 2);
            }
            None => {
                let _ = writeln!(self.out, "{}", style.paint(Style::Name, "unnamed server"));
            }
        }
        let mut rows =
            vec![("revision", found.revision.to_string()), ("capabilities", capability_names(found))];
        if let Some(website) = found.server.as_ref().and_then(|server| server.website_url.as_deref()) {
            rows.push(("website", one_line(website)));
        }
        let instructions = found.instructions.as_deref();
        rows.extend(
            instructions.filter(|_| !self.verbose).map(|text| ("instructions", first_paragraph(text))),
        );
        let row =
            |(name, text): (&str, String)| vec![Cell::new(name, Style::Dim), Cell::new(text, Style::Plain)];
        let rows: Vec<Vec<Cell>> = rows.into_iter().map(row).collect();
        let _ = write!(self.out, "\n{}", table(&rows, 2, style));
        if let Some(instructions) = instructions.filter(|_| self.verbose) {
            let _ = writeln!(self.out, "\n{}\n", style.paint(Style::Bold, "Instructions"));
            self.description(Some(instructions), 2);
        }
    }

    fn heading(&mut self, name: &str, count: usize) {
        let count = self.style.paint(Style::Dim, &format!("({count})"));
        let _ = writeln!(self.out, "\n{} {count}", self.style.paint(Style::Bold, name));
    }

    fn list<T>(&mut self, name: &str, listing: Option<&Listing<T>>, show: impl Fn(&mut Page, &T)) {
        let Some(Listing { items, skipped, .. }) = listing else { return };
        self.heading(name, items.len());
        for item in items {
            self.out.push('\n');
            show(self, item);
        }
        self.skipped(skipped);
    }

    fn table<T>(&mut self, name: &str, listing: Option<&Listing<T>>, row: impl Fn(&T) -> Vec<Cell>) {
        let Some(Listing { items, skipped, .. }) = listing else { return };
        self.heading(name, items.len());
        if !items.is_empty() {
            let rows: Vec<Vec<Cell>> = items.iter().map(row).collect();
            let _ = write!(self.out, "\n{}", table(&rows, 2, self.style));
        }
        self.skipped(skipped);
    }

    /// Appends the entries that no client can use, each with the reason.
    fn skipped(&mut self, skipped: &[SkippedEntry]) {
        if skipped.is_empty() {
            return;
        }
        let heading = format!("left out ({})", skipped.len());
        let _ = writeln!(self.out, "\n  {}", self.style.paint(Style::Warning, &heading));
        let row = |left: &SkippedEntry| {
            vec![
                Cell::new(short_name(&left.name), Style::Name),
                Cell::new(one_line(&left.reason), Style::Plain),
            ]
        };
        let rows: Vec<Vec<Cell>> = skipped.iter().map(row).collect();
        self.out.push_str(&table(&rows, 4, self.style));
    }

    fn tool(&mut self, tool: &Tool) {
        let hints = tool.annotations.as_ref();
        let title_of = tool.title.as_deref().or_else(|| hints.and_then(|hints| hints.title.as_deref()));
        let (name, title) = (short_name(&tool.name), title(&tool.name, title_of));
        let _ = write!(self.out, "  {}{title}", self.style.paint(Style::Name, &name));
        let hints = effect_hints(tool);
        let needed: usize = hints.iter().map(|(hint, _)| hint.len() + 4).sum();
        let is_long =
            needed.saturating_add(2 + display_width(&name) + display_width(&title)) > self.style.width;
        self.out.push_str(if is_long { "\n  " } else { "" });
        for (hint, style) in hints {
            let _ = write!(self.out, "  {}", self.style.paint(style, &format!("[{hint}]")));
        }
        self.out.push('\n');
        self.description(tool.description.as_deref(), 4);
        let rows: Vec<Vec<Cell>> =
            parameters(&tool.input_schema, if self.verbose { usize::MAX } else { MAX_CELL_WIDTH })
                .into_iter()
                .map(|parameter| {
                    parameter_row(
                        &parameter.name,
                        &parameter.kind,
                        parameter.required,
                        &parameter.description,
                    )
                })
                .collect();
        self.out.push_str(&table(&rows, 6, self.style));
    }

    fn prompt(&mut self, prompt: &Prompt) {
        let name = self.style.paint(Style::Name, &short_name(&prompt.name));
        let _ = writeln!(self.out, "  {name}{}", title(&prompt.name, prompt.title.as_deref()));
        self.description(prompt.description.as_deref(), 4);
        let row = |argument: &PromptArgument| {
            let description =
                argument.description.as_deref().or(argument.title.as_deref()).unwrap_or_default();
            parameter_row(&argument.name, "", argument.required == Some(true), description)
        };
        let rows: Vec<Vec<Cell>> = prompt.arguments.iter().flatten().map(row).collect();
        self.out.push_str(&table(&rows, 6, self.style));
    }

    /// Appends the first paragraph of a description, or all of it with `-v`.
    fn description(&mut self, description: Option<&str>, indent: usize) {
        let Some(description) = description else { return };
        let width = self.style.width.saturating_sub(indent);
        let mut lines: Vec<String> = if self.verbose {
            let text = sanitize(description.trim());
            let wrapped =
                |line: &str| if line.trim().is_empty() { vec![String::new()] } else { wrap(line, width) };
            text.lines().flat_map(wrapped).collect()
        } else {
            wrap(&first_paragraph(description), width)
        };
        if lines.len() > MAX_DESCRIPTION_LINES && !self.verbose {
            lines.truncate(MAX_DESCRIPTION_LINES);
            lines.last_mut().into_iter().for_each(|line| line.push('…'));
        }
        for line in lines {
            let _ = writeln!(self.out, "{}", format!("{}{line}", " ".repeat(indent)).trim_end());
        }
    }
}

/// Formats a name on one line, cut to [`MAX_NAME_WIDTH`] columns.
fn short_name(name: &str) -> String {
    truncate(&one_line(name), MAX_NAME_WIDTH)
}

/// Formats the title of a listed item, if it differs from the name.
fn title(name: &str, title: Option<&str>) -> String {
    let title = title.map(short_name).filter(|title| !title.is_empty() && title != name);
    title.map(|title| format!("  {title}")).unwrap_or_default()
}

fn capability_names(found: &Inspection) -> String {
    let capabilities = &found.capabilities;
    let watched = capabilities.resources.as_ref().is_some_and(|resources| resources.subscribe == Some(true));
    let flags = [
        (capabilities.tools.is_some(), "tools"),
        (capabilities.resources.is_some() && !watched, "resources"),
        (watched, "resources (with subscriptions)"),
        (capabilities.prompts.is_some(), "prompts"),
        (capabilities.completions.is_some(), "completions"),
        (capabilities.logging.is_some(), "logging"),
        (capabilities.tasks.is_some(), "tasks"),
    ];
    let mut features: Vec<String> =
        flags.into_iter().filter(|(is_present, _)| *is_present).map(|(_, name)| name.to_owned()).collect();
    features.extend(
        capabilities.extensions.iter().flat_map(|extensions| extensions.keys().map(|name| one_line(name))),
    );
    if features.is_empty() { "none".into() } else { features.join(", ") }
}

/// Returns labels for the effects that a tool declares, such as read-only or destructive. They are hints of the server
/// and not verified.
fn effect_hints(tool: &Tool) -> Vec<(&'static str, Style)> {
    let hints = tool.annotations.clone().unwrap_or_default();
    let task = tool.execution.as_ref().and_then(|execution| execution.task_support);
    let flags = [
        (hints.read_only == Some(true), "read-only", Style::Good),
        (hints.destructive == Some(true) && hints.read_only != Some(true), "destructive", Style::Bad),
        (hints.destructive == Some(false) && hints.read_only != Some(true), "not destructive", Style::Good),
        (hints.idempotent == Some(true), "idempotent", Style::Dim),
        (hints.open_world == Some(true), "open world", Style::Dim),
        (hints.open_world == Some(false), "closed world", Style::Dim),
        (task == Some(TaskSupport::Optional), "can run as a task", Style::Dim),
        (task == Some(TaskSupport::Required), "runs only as a task", Style::Warning),
    ];
    flags.into_iter().filter_map(|(applies, hint, style)| applies.then_some((hint, style))).collect()
}

fn parameter_row(name: &str, kind: &str, required: bool, description: &str) -> Vec<Cell> {
    vec![
        Cell::new(short_name(name), Style::Plain),
        Cell::new(one_line(kind), Style::Dim),
        Cell::new(if required { "required" } else { "" }, Style::Warning),
        Cell::new(one_line(description), Style::Plain),
    ]
}

fn resource(resource: &Resource) -> Vec<Cell> {
    let name = resource.title.as_ref().unwrap_or(&resource.name);
    resource_row(&resource.uri, name, resource.mime_type.as_deref(), resource.description.as_deref())
}

fn template(template: &ResourceTemplate) -> Vec<Cell> {
    let name = template.title.as_ref().unwrap_or(&template.name);
    resource_row(&template.uri_template, name, template.mime_type.as_deref(), template.description.as_deref())
}

fn resource_row(uri: &str, name: &str, mime_type: Option<&str>, description: Option<&str>) -> Vec<Cell> {
    vec![
        Cell::new(one_line(uri), Style::Name),
        Cell::new(short_name(name), Style::Plain),
        Cell::new(one_line(mime_type.unwrap_or_default()), Style::Dim),
        Cell::new(first_paragraph(description.unwrap_or_default()), Style::Plain),
    ]
}
