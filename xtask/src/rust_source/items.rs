//! Items of a Rust file with their doc comments: types, functions, constants, and documented fields and variants.

use super::RustSource;
use super::literals::is_word_part;

/// Derives that turn doc comments into command-line help.
const COMMAND_LINE_DERIVES: [&str; 4] = ["Parser", "Args", "Subcommand", "ValueEnum"];
const TYPE_KEYWORDS: [&str; 5] = ["struct", "enum", "union", "trait", "type"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ItemKind {
    /// Struct, enum, union, trait or type alias.
    Type,
    Function,
    /// Constant or static.
    Constant,
    /// Field or variant. Only documented ones are listed.
    Member,
}

/// Declaration in a Rust file.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) kind: ItemKind,
    pub(crate) line: usize,
    pub(crate) name: String,
    /// Declaration in one line; for a field or variant, inside the name of its type.
    pub(crate) signature: String,
    /// Whether it is visible outside its module.
    pub(crate) is_public: bool,
    /// Text of the `///` lines, one line each.
    pub(crate) doc: Vec<String>,
    /// Whether its doc, or those of its members, are help of the command line.
    pub(crate) is_command_line: bool,
}

impl RustSource<'_> {
    /// Returns the items in the order of the file.
    pub(crate) fn items(&self) -> Vec<Item> {
        let lines: Vec<_> = self.code.lines().zip(self.text.lines()).collect();
        let docs = self.comments.iter().filter(|comment| comment.text.starts_with("///"));
        let mut docs = docs.peekable();
        let mut owner = (String::new(), false);
        let mut pending = (Vec::new(), String::new());
        let mut items = Vec::new();
        let mut next_line = 0;
        for (index, (code, text)) in lines.iter().enumerate() {
            while let Some(doc) = docs.next_if(|doc| doc.line == index + 1) {
                pending.0.push(doc.text.trim_start_matches('/').trim().to_owned());
            }
            if code.trim().is_empty() || index < next_line {
                continue;
            }
            if code.trim_start().starts_with("#[") {
                let (attribute, len) = join_until(&lines[index..], is_balanced);
                pending.1.push_str(&attribute);
                next_line = index + len;
                continue;
            }
            let (doc, attributes) = std::mem::take(&mut pending);
            let is_nested = code.starts_with(' ');
            let Some((kind, name, is_public)) = declaration(code.trim(), is_nested, !doc.is_empty()) else {
                continue;
            };
            if kind == ItemKind::Type {
                let derives = |name: &&str| attributes.contains(*name);
                owner = (name.clone(), COMMAND_LINE_DERIVES.iter().any(derives));
            }
            let signature = match kind {
                ItemKind::Function => {
                    let (joined, _) = join_until(&lines[index..], |code| code.contains(['{', ';']));
                    joined.split(" {").next().unwrap_or_default().to_owned()
                }
                ItemKind::Member => {
                    format!("{} {{ {} }}", owner.0, text.trim().trim_end_matches([' ', '{', ',']))
                }
                _ => text.trim().trim_end_matches([' ', '{']).to_owned(),
            };
            let is_command_line = owner.1 && matches!(kind, ItemKind::Type | ItemKind::Member);
            items.push(Item { kind, line: index + 1, name, signature, is_public, doc, is_command_line });
        }
        items
    }
}

/// Joins lines until the code so far is complete. Returns the joined text and the number of lines.
fn join_until(lines: &[(&str, &str)], is_complete: impl Fn(&str) -> bool) -> (String, usize) {
    let mut code = String::new();
    let mut joined: Vec<&str> = Vec::new();
    for (line_code, line) in lines {
        code.push_str(line_code);
        joined.push(line.trim());
        if is_complete(&code) {
            break;
        }
    }
    (joined.join(" "), joined.len())
}

fn is_balanced(code: &str) -> bool {
    code.matches('[').count() == code.matches(']').count()
}

/// Reads the kind, name and visibility of the item that the line declares.
fn declaration(code: &str, is_nested: bool, is_documented: bool) -> Option<(ItemKind, String, bool)> {
    let (is_public, rest) = strip_visibility(code);
    let mut words = rest.split_whitespace().peekable();
    while let Some(word) = words.next() {
        let next = words.peek().copied().unwrap_or_default();
        let kind = match word {
            "fn" => ItemKind::Function,
            "const" if matches!(next, "fn" | "unsafe" | "async" | "extern") => continue,
            "async" | "unsafe" | "extern" | "\"\"" => continue,
            "const" | "static" => ItemKind::Constant,
            // An associated type.
            "type" if is_nested && !is_public => return None,
            word if TYPE_KEYWORDS.contains(&word) => ItemKind::Type,
            _ => return member(rest, is_public).filter(|_| is_documented),
        };
        let name: String = next.chars().take_while(|char| is_word_part(*char)).collect();
        return (!name.is_empty()).then_some((kind, name, is_public));
    }
    None
}

fn member(code: &str, is_public: bool) -> Option<(ItemKind, String, bool)> {
    let name: String = code.chars().take_while(|char| is_word_part(*char)).collect();
    let after = code[name.len()..].trim_start().chars().next();
    let is_member = !name.is_empty() && matches!(after, None | Some(':' | '(' | '{' | ',' | '='));
    (is_member && name != "mod" && name != "use").then_some((ItemKind::Member, name, is_public))
}

fn strip_visibility(code: &str) -> (bool, &str) {
    let Some(after) = code.strip_prefix("pub") else { return (false, code) };
    if let Some(after) = after.strip_prefix(' ') {
        return (true, after);
    }
    match after.strip_prefix('(').and_then(|after| after.split_once(") ")) {
        Some((_, after)) => (true, after),
        None => (false, code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
/// A type.
/// More.
#[derive(
    Debug, Args,
)]
pub(crate) struct First<T> {
    /// A field.
    #[arg(long)]
    name: Option<T>,
    other: u8,
}

impl First {
    type Output = u8;
    /// A method.
    pub async fn call(
        &self,
        text: &str,
    ) -> bool {
        let found = 1;
    }
}
/// A limit.
pub const MAX: usize = 1;
static COUNT: u8 = 0;
enum Second {
    /// A variant.
    One {
        two: u8,
    },
}
/// A module.
mod third;
const fn short() -> u8 { 1 }
";

    #[test]
    fn items_have_names_docs_and_signatures() {
        let items = RustSource::read(TEXT).items();
        let found: Vec<_> =
            items.iter().map(|item| (item.line, &*item.name, &*item.signature, item.doc.join(" "))).collect();
        let expected = [
            (6, "First", "pub(crate) struct First<T>", "A type. More."),
            (9, "name", "First { name: Option<T> }", "A field."),
            (16, "call", "pub async fn call( &self, text: &str, ) -> bool", "A method."),
            (24, "MAX", "pub const MAX: usize = 1;", "A limit."),
            (25, "COUNT", "static COUNT: u8 = 0;", ""),
            (26, "Second", "enum Second", ""),
            (28, "One", "Second { One }", "A variant."),
            (34, "short", "const fn short() -> u8", ""),
        ];
        assert_eq!(
            found,
            expected.map(|(line, name, signature, doc)| (line, name, signature, doc.to_owned()))
        );
    }

    #[test]
    fn items_have_kinds_and_visibility() {
        let items = RustSource::read(TEXT).items();
        let named = |name: &str| items.iter().find(|item| item.name == name).unwrap();
        assert!(named("First").is_public && named("MAX").is_public && !named("Second").is_public);
        assert!(named("name").is_command_line && !named("One").is_command_line);
        assert!(!named("call").is_command_line);
        assert_eq!(named("One").kind, ItemKind::Member);
        assert_eq!(named("COUNT").kind, ItemKind::Constant);
        assert_eq!(named("short").kind, ItemKind::Function);
    }
}
