//! Elicitation at the terminal: forms field by field, and URLs to visit.
//!
//! One elicitation is open at a time. Values of `--answer` are used first; the remaining fields are prompted for on
//! standard error and read from standard input.

mod field;
#[cfg(test)]
mod field_tests;
mod line_reader;
mod parse;

use std::io::{self, IsTerminal};
use std::sync::{Arc, Mutex as StdMutex, OnceLock, PoisonError};

use linchpin::Result;
use linchpin::model::{ElicitParams, ElicitResult};
use serde_json::{Map, Value};
use tokio::sync::Mutex;

use self::field::{Field, InputSource};
use self::line_reader::LineReader;
use crate::terminal::{Screen, Style, one_line, truncate, wrap};

/// Maximum displayed width of the message of an elicitation, in columns.
const MAX_MESSAGE_WIDTH: usize = 4_000;

pub(crate) struct TerminalElicitor {
    screen: Arc<Screen>,
    /// Whether standard input is a terminal.
    is_terminal: bool,
    server: OnceLock<String>,
    /// Values of the `--answer` options: field, value, and whether it was used.
    answers: StdMutex<Vec<(String, String, bool)>>,
    lines: Mutex<LineReader>,
}

/// What the user typed at a prompt of an elicitation form: a line, a refusal, or the end of the input.
enum UserInput {
    Line(String),
    /// Standard input has ended.
    End,
    Decline,
    Cancel,
}

/// Result of an elicitation form that was declined or cancelled, by the user or because no input is available.
struct Declined(ElicitResult);

impl TerminalElicitor {
    pub(crate) fn new(screen: Arc<Screen>, answers: Vec<(String, String)>) -> Arc<Self> {
        let answers = answers.into_iter().map(|(field, value)| (field, value, false)).collect();
        Arc::new(TerminalElicitor {
            screen,
            is_terminal: io::stdin().is_terminal(),
            server: OnceLock::new(),
            answers: StdMutex::new(answers),
            lines: Mutex::new(LineReader::new()),
        })
    }

    /// Sets the server name shown above each elicitation.
    pub(crate) fn set_server_name(&self, server: Option<String>) {
        let _ = self.server.set(server.unwrap_or_else(|| "The server".into()));
    }

    /// Prints a note for each `--answer` that no form used.
    pub(crate) fn show_unused(&self) {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        for (field, ..) in answers.iter().filter(|(.., is_used)| !is_used) {
            self.screen
                .dim_line(&format!("note: --answer {field}: unused, the server did not request this field"));
        }
    }

    /// Asks the user for the fields of a form elicitation.
    pub(crate) async fn elicit_form(self: Arc<Self>, request: ElicitParams) -> Result<ElicitResult> {
        let mut lines = self.lines.lock().await;
        let _held = self.screen.hide_bar();
        lines.discard_stale();
        let mut fields = request.requested_schema.as_ref().map(Field::from_form).unwrap_or_default();
        self.show_message(&request.message);
        Ok(match self.prompt_fields(&mut fields, &mut lines).await {
            Ok(content) => ElicitResult::accept(Value::Object(content)),
            Err(Declined(result)) => result,
        })
    }

    async fn prompt_fields(
        &self,
        fields: &mut [Field],
        lines: &mut LineReader,
    ) -> Result<Map<String, Value>, Declined> {
        let given: Vec<Option<Value>> = fields.iter().map(|field| self.find_answer(field)).collect();
        let has_answer = given.iter().any(Option::is_some);
        let needs_input = given.iter().any(Option::is_none) || fields.is_empty();
        if self.is_terminal && needs_input {
            let help = "Enter accepts the default in [ ] or skips an optional field. !decline declines the request, \
                        !cancel or Ctrl-D cancels it.";
            let width = self.screen.style.width.saturating_sub(2);
            for line in wrap(help, width) {
                self.screen.dim_line(&format!("  {line}"));
            }
        }
        loop {
            let mut content = Map::new();
            for (field, given) in fields.iter().zip(&given) {
                let value = match given {
                    Some(value) => Some(value.clone()),
                    None => self.prompt_field(field, lines, has_answer).await?,
                };
                content.extend(value.map(|value| (field.name.clone(), value)));
            }
            if !needs_input || !(self.is_terminal || fields.is_empty()) || self.confirm(lines).await? {
                return Ok(content);
            }
            for field in &mut *fields {
                field.default = content.remove(&field.name).or_else(|| field.default.take());
            }
        }
    }

    /// Prompts for one field until the input is valid.
    async fn prompt_field(
        &self,
        field: &Field,
        lines: &mut LineReader,
        has_answer: bool,
    ) -> Result<Option<Value>, Declined> {
        let style = self.screen.style;
        let description =
            if field.description.is_empty() { String::new() } else { format!("  {}", field.description) };
        let allowed_values = style.paint(Style::Dim, &format!("({})", field.describe_values()));
        self.screen
            .line(&format!("\n  {}{description}  {allowed_values}", style.paint(Style::Bold, &field.label)));
        for (number, choice) in field.choices().iter().enumerate() {
            self.screen.line(&format!("    {}  {}", number + 1, choice.title));
        }
        let default = field
            .default
            .as_ref()
            .map(|value| format!(" [{}]", field.format_value(value)))
            .unwrap_or_default();
        loop {
            self.screen.prompt(&format!("  {}{default}: ", field.label));
            let input = match self.next(lines).await {
                UserInput::Line(input) => input,
                UserInput::End if has_answer && (field.default.is_some() || !field.required) => String::new(),
                UserInput::End => {
                    return Err(self.decline_without_input(&format!("--answer {}=…", one_line(&field.name))));
                }
                refused => return Err(declined(&refused)),
            };
            match field.parse(&input, InputSource::Terminal) {
                Ok(value) => return Ok(value),
                Err(reason) => {
                    self.screen.line(&format!("  {}", style.paint(Style::Bad, &one_line(&reason))));
                }
            }
        }
    }

    /// Asks whether to send the form. `false` means that the user wants to edit it.
    async fn confirm(&self, lines: &mut LineReader) -> Result<bool, Declined> {
        loop {
            self.screen.prompt("\n  Send this? y to send, e to edit, n to decline [y]: ");
            match self.next(lines).await {
                UserInput::Line(input) => match &*input.to_lowercase() {
                    "" if self.is_terminal => return Ok(true),
                    "y" | "yes" => return Ok(true),
                    "e" | "edit" => return Ok(false),
                    "n" | "no" => return Err(Declined(ElicitResult::decline())),
                    _ => {}
                },
                UserInput::End => return Err(self.decline_without_input("a terminal")),
                refused => return Err(declined(&refused)),
            }
        }
    }

    /// Handles an elicitation in URL mode: asks the user for consent to open the URL. The user opens the URL; this
    /// command never does.
    pub(crate) async fn url(self: Arc<Self>, request: ElicitParams) -> Result<ElicitResult> {
        let mut lines = self.lines.lock().await;
        let _held = self.screen.hide_bar();
        lines.discard_stale();
        self.show_message(&request.message);
        let (url, style) = (one_line(request.url.as_deref().unwrap_or_default()), self.screen.style);
        // A browser drops characters that are not allowed in a URL and would open a different one than shown.
        let is_plain = !url.contains(char::is_whitespace) && Some(&*url) == request.url.as_deref();
        if !is_plain || (!url.starts_with("https://") && !url.starts_with("http://")) {
            self.screen.line(&format!("  declined to open a page: `{url}` is not a valid http or https URL"));
            return Ok(ElicitResult::decline());
        }
        self.screen.line(&format!("\n  {}", style.paint(Style::Name, &url)));
        self.screen.line(&format!("  on the host {}", style.paint(Style::Bold, host(&url))));
        if !url.is_ascii() || host(&url).contains("xn--") {
            let warning = "The URL contains characters that may imitate the name of a host you know.";
            self.screen.line(&format!("  {}", style.paint(Style::Warning, warning)));
        }
        loop {
            self.screen.prompt("\n  Do you agree to open this URL in your browser? y or n: ");
            match self.next(&mut lines).await {
                UserInput::Line(input) => match &*input.to_lowercase() {
                    "y" | "yes" => return Ok(ElicitResult::accept(Value::Null)),
                    "n" | "no" => return Ok(ElicitResult::decline()),
                    _ => {}
                },
                UserInput::End => return Ok(self.decline_without_input("a terminal").0),
                refused => return Ok(declined(&refused).0),
            }
        }
    }

    fn show_message(&self, message: &str) {
        let style = self.screen.style;
        let server = self.server.get().map_or("The server", |server| &**server);
        let text = format!("{server} requests input: {}", truncate(&one_line(message), MAX_MESSAGE_WIDTH));
        let lines = wrap(&text, style.width);
        let lines: Vec<String> = lines.iter().map(|line| style.paint(Style::Bold, line)).collect();
        self.screen.line(&format!("\n{}", lines.join("\n")));
    }

    /// Returns the value that `--answer` gives for a form field, if it is valid.
    fn find_answer(&self, field: &Field) -> Option<Value> {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, value, is_used) = answers.iter_mut().find(|(name, ..)| *name == field.name)?;
        *is_used = true;
        match field.parse(value, InputSource::CommandLine) {
            Ok(parsed) => {
                self.screen.dim_line(&format!("  {}: {}", field.label, one_line(value)));
                parsed
            }
            Err(reason) => {
                self.screen.line(&format!("note: --answer {}={value}: {}", field.name, one_line(&reason)));
                None
            }
        }
    }

    async fn next(&self, lines: &mut LineReader) -> UserInput {
        let input = lines.next().await;
        if !self.is_terminal || input.is_none() {
            // No Enter was echoed, so the cursor is still behind the prompt.
            self.screen.line("");
        }
        match input.as_deref() {
            None if self.is_terminal => UserInput::Cancel,
            None => UserInput::End,
            Some("!decline") => UserInput::Decline,
            Some("!cancel") => UserInput::Cancel,
            Some(line) => UserInput::Line(line.to_owned()),
        }
    }

    fn decline_without_input(&self, remedy: &str) -> Declined {
        self.screen.line(&format!(
            "note: declined the elicitation of the server, because no input is available; use {remedy}"
        ));
        Declined(ElicitResult::decline())
    }
}

fn declined(input: &UserInput) -> Declined {
    Declined(if matches!(input, UserInput::Cancel) {
        ElicitResult::cancel()
    } else {
        ElicitResult::decline()
    })
}

/// Returns the host of a URL without user information, which can imitate another host.
fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    // Browsers read a backslash as the end of the host, too.
    let authority = rest.split(['/', '\\', '?', '#']).next().unwrap_or_default();
    authority.rsplit('@').next().unwrap_or_default()
}
