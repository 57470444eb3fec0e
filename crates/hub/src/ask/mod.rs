//! Questions of a server, asked at the terminal: forms field by field, and pages to visit.
//!
//! One question is open at a time. Answers given on the command line are taken first; what they leave open is
//! asked on standard error and read from standard input.

mod field;
#[cfg(test)]
mod field_tests;
mod lines;
mod parse;

use std::io::{self, IsTerminal};
use std::sync::{Arc, Mutex as StdMutex, OnceLock, PoisonError};

use linchpin::Result;
use linchpin::model::{ElicitParams, ElicitResult};
use serde_json::{Map, Value};
use tokio::sync::Mutex;

use self::field::{Field, From};
use self::lines::Lines;
use crate::terminal::{Screen, Style, one_line, shorten, wrap};

/// What is shown of a message at most, in columns.
const LONGEST_MESSAGE: usize = 4_000;

pub(crate) struct Asker {
    screen: Arc<Screen>,
    /// Whether somebody types.
    is_terminal: bool,
    server: OnceLock<String>,
    /// From the command line, and whether a form had the field.
    answers: StdMutex<Vec<(String, String, bool)>>,
    lines: Mutex<Lines>,
}

/// What the user did.
enum Typed {
    Line(String),
    /// The input is at its end.
    End,
    Decline,
    Cancel,
}

/// A form that is not filled in.
struct Refused(ElicitResult);

impl Asker {
    pub(crate) fn new(screen: Arc<Screen>, answers: Vec<(String, String)>) -> Arc<Self> {
        let answers = answers.into_iter().map(|(field, value)| (field, value, false)).collect();
        Arc::new(Asker {
            screen,
            is_terminal: io::stdin().is_terminal(),
            server: OnceLock::new(),
            answers: StdMutex::new(answers),
            lines: Mutex::new(Lines::new()),
        })
    }

    /// Says who asks.
    pub(crate) fn is_for(&self, server: Option<String>) {
        let _ = self.server.set(server.unwrap_or_else(|| "The server".into()));
    }

    /// Says which answers nobody asked for.
    pub(crate) fn show_unused(&self) {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        for (field, ..) in answers.iter().filter(|(.., used)| !used) {
            self.screen.aside(&format!("note: --answer {field}: the server did not ask for it"));
        }
    }

    /// Answers a form.
    pub(crate) async fn form(self: Arc<Self>, ask: ElicitParams) -> Result<ElicitResult> {
        let mut lines = self.lines.lock().await;
        let _held = self.screen.hold();
        lines.forget();
        let mut fields = ask.requested_schema.as_ref().map(Field::all).unwrap_or_default();
        self.head(&ask.message);
        Ok(match self.fill(&mut fields, &mut lines).await {
            Ok(content) => ElicitResult::accept(Value::Object(content)),
            Err(Refused(result)) => result,
        })
    }

    async fn fill(&self, fields: &mut [Field], lines: &mut Lines) -> Result<Map<String, Value>, Refused> {
        let given: Vec<Option<Value>> = fields.iter().map(|field| self.find_answer(field)).collect();
        let is_given = given.iter().any(Option::is_some);
        let asks = given.iter().any(Option::is_none) || fields.is_empty();
        if self.is_terminal && asks {
            let help = "Enter takes what stands in [ ], or leaves out what is optional. !decline refuses, \
                        !cancel or Ctrl-D closes the question.";
            let width = self.screen.look.width.saturating_sub(2);
            for line in wrap(help, width) {
                self.screen.aside(&format!("  {line}"));
            }
        }
        loop {
            let mut content = Map::new();
            for (field, given) in fields.iter().zip(&given) {
                let value = match given {
                    Some(value) => Some(value.clone()),
                    None => self.ask_for(field, lines, is_given).await?,
                };
                content.extend(value.map(|value| (field.name.clone(), value)));
            }
            if !asks || !(self.is_terminal || fields.is_empty()) || self.confirm(lines).await? {
                return Ok(content);
            }
            for field in &mut *fields {
                field.default = content.remove(&field.name).or_else(|| field.default.take());
            }
        }
    }

    /// One field, until its answer will do.
    async fn ask_for(
        &self,
        field: &Field,
        lines: &mut Lines,
        is_given: bool,
    ) -> Result<Option<Value>, Refused> {
        let look = self.screen.look;
        let about = if field.about.is_empty() { String::new() } else { format!("  {}", field.about) };
        let takes = look.paint(Style::Dim, &format!("({})", field.takes()));
        self.screen.line(&format!("\n  {}{about}  {takes}", look.paint(Style::Bold, &field.label)));
        for (number, choice) in field.choices().iter().enumerate() {
            self.screen.line(&format!("    {}  {}", number + 1, choice.title));
        }
        let default =
            field.default.as_ref().map(|value| format!(" [{}]", field.typed(value))).unwrap_or_default();
        loop {
            self.screen.prompt(&format!("  {}{default}: ", field.label));
            let typed = match self.next(lines).await {
                Typed::Line(typed) => typed,
                Typed::End if is_given && (field.default.is_some() || !field.required) => String::new(),
                Typed::End => return Err(self.unanswered(&format!("--answer {}=…", one_line(&field.name)))),
                refused => return Err(refusal(&refused)),
            };
            match field.parse(&typed, From::Person) {
                Ok(value) => return Ok(value),
                Err(reason) => self.screen.line(&format!("  {}", look.paint(Style::Bad, &one_line(&reason)))),
            }
        }
    }

    /// Whether what was filled in is to be sent; if not, it is asked again.
    async fn confirm(&self, lines: &mut Lines) -> Result<bool, Refused> {
        loop {
            self.screen.prompt("\n  Send this? y sends it, e changes it, n refuses [y]: ");
            match self.next(lines).await {
                Typed::Line(typed) => match &*typed.to_lowercase() {
                    "" if self.is_terminal => return Ok(true),
                    "y" | "yes" => return Ok(true),
                    "e" | "edit" => return Ok(false),
                    "n" | "no" => return Err(Refused(ElicitResult::decline())),
                    _ => {}
                },
                Typed::End => return Err(self.unanswered("a terminal")),
                refused => return Err(refusal(&refused)),
            }
        }
    }

    /// Asks whether the user wants to visit a page. It is not opened: who agrees does that.
    pub(crate) async fn page(self: Arc<Self>, ask: ElicitParams) -> Result<ElicitResult> {
        let mut lines = self.lines.lock().await;
        let _held = self.screen.hold();
        lines.forget();
        self.head(&ask.message);
        let (url, look) = (one_line(ask.url.as_deref().unwrap_or_default()), self.screen.look);
        // A browser would leave out what is no part of an address, and go somewhere else than what is shown.
        let is_plain = !url.contains(char::is_whitespace) && Some(&*url) == ask.url.as_deref();
        if !is_plain || (!url.starts_with("https://") && !url.starts_with("http://")) {
            self.screen.line(&format!("  declined: `{url}` is no address of a page"));
            return Ok(ElicitResult::decline());
        }
        self.screen.line(&format!("\n  {}", look.paint(Style::Name, &url)));
        self.screen.line(&format!("  on the host {}", look.paint(Style::Bold, host(&url))));
        if !url.is_ascii() || host(&url).contains("xn--") {
            let warning = "The address has letters that may only look like those of a host you know.";
            self.screen.line(&format!("  {}", look.paint(Style::Warning, warning)));
        }
        loop {
            self.screen.prompt("\n  Open it in your browser. Do you agree to that? y or n: ");
            match self.next(&mut lines).await {
                Typed::Line(typed) => match &*typed.to_lowercase() {
                    "y" | "yes" => return Ok(ElicitResult::accept(Value::Null)),
                    "n" | "no" => return Ok(ElicitResult::decline()),
                    _ => {}
                },
                Typed::End => return Ok(self.unanswered("a terminal").0),
                refused => return Ok(refusal(&refused).0),
            }
        }
    }

    fn head(&self, message: &str) {
        let look = self.screen.look;
        let server = self.server.get().map_or("The server", |server| &**server);
        let text = format!("{server} asks: {}", shorten(&one_line(message), LONGEST_MESSAGE));
        let lines = wrap(&text, look.width);
        let lines: Vec<String> = lines.iter().map(|line| look.paint(Style::Bold, line)).collect();
        self.screen.line(&format!("\n{}", lines.join("\n")));
    }

    /// What the command line says for a field, if it will do.
    fn find_answer(&self, field: &Field) -> Option<Value> {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, value, used) = answers.iter_mut().find(|(name, ..)| *name == field.name)?;
        *used = true;
        match field.parse(value, From::CommandLine) {
            Ok(parsed) => {
                self.screen.aside(&format!("  {}: {}", field.label, one_line(value)));
                parsed
            }
            Err(reason) => {
                self.screen.line(&format!("note: --answer {}={value}: {}", field.name, one_line(&reason)));
                None
            }
        }
    }

    async fn next(&self, lines: &mut Lines) -> Typed {
        let typed = lines.next().await;
        if !self.is_terminal || typed.is_none() {
            // Nobody has pressed Enter.
            self.screen.line("");
        }
        match typed.as_deref() {
            None if self.is_terminal => Typed::Cancel,
            None => Typed::End,
            Some("!decline") => Typed::Decline,
            Some("!cancel") => Typed::Cancel,
            Some(line) => Typed::Line(line.to_owned()),
        }
    }

    fn unanswered(&self, remedy: &str) -> Refused {
        self.screen
            .line(&format!("note: nobody is there to answer, so the question was declined; use {remedy}"));
        Refused(ElicitResult::decline())
    }
}

fn refusal(typed: &Typed) -> Refused {
    Refused(if matches!(typed, Typed::Cancel) { ElicitResult::cancel() } else { ElicitResult::decline() })
}

/// The host of a URL, without what can make another one look like it.
fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    // Browsers read a backslash as the end of the host, too.
    let authority = rest.split(['/', '\\', '?', '#']).next().unwrap_or_default();
    authority.rsplit('@').next().unwrap_or_default()
}
