//! HTML writer that prevents injection: markup is always a string literal of this crate; everything else is escaped.

use std::fmt::{Display, Write};

/// HTML page under construction, with escaped texts.
#[derive(Default)]
pub(super) struct Html(String);

impl Html {
    /// Appends markup, which is not escaped.
    pub(super) fn markup(&mut self, markup: &'static str) -> &mut Self {
        self.0.push_str(markup);
        self
    }

    /// Appends escaped text, for use between tags or in a quoted attribute.
    pub(super) fn text(&mut self, text: impl Display) -> &mut Self {
        let _ = write!(HtmlEscaper(&mut self.0), "{text}"); // writing to a string never fails
        self
    }

    pub(super) fn into_string(self) -> String {
        self.0
    }
}

/// Writer that escapes HTML markup and replaces control and bidirectional characters.
struct HtmlEscaper<'a>(&'a mut String);

impl Write for HtmlEscaper<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for char in text.chars() {
            match char {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                '`' => self.0.push_str("&#96;"),
                '\t' | '\n' => self.0.push(char),
                // Bidirectional overrides could change the visible meaning of a text.
                '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => self.0.push('\u{fffd}'),
                char if char.is_control() => self.0.push('\u{fffd}'),
                char => self.0.push(char),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> String {
        let mut html = Html::default();
        html.text(text);
        html.into_string()
    }

    #[test]
    fn nothing_of_others_is_markup() {
        for hostile in [
            "<script>alert(1)</script>",
            "\"><img src=x onerror=alert(1)>",
            "' onmouseover='alert(1)",
            "</textarea><svg/onload=alert(1)>",
            "javascript:alert(1)//<!--",
            "]]><script>",
            "`${alert(1)}`",
            "&lt;script&gt;",
            "<\u{0}script>",
            "\u{feff}<script>",
        ] {
            let written = text(hostile);
            assert!(!written.contains(['<', '>', '"', '\'', '`', '\0']), "{written}");
            let and = written.replace("&amp;", "").replace("&lt;", "").replace("&gt;", "");
            let and = and.replace("&quot;", "").replace("&#39;", "").replace("&#96;", "");
            assert!(!and.contains('&'), "{written}");
        }
        assert_eq!(text("&lt;a&gt;"), "&amp;lt;a&amp;gt;", "what looks like a tag is shown as it is");
        assert_eq!(text("a\u{202e}b\u{1b}[2Jc\td\ne日"), "a\u{fffd}b\u{fffd}[2Jc\td\ne日");
    }

    #[test]
    fn markup_is_what_stands_in_the_program() {
        let mut html = Html::default();
        html.markup("<p title=\"").text("\"<b>\"").markup("\">").text(7).markup("</p>");
        assert_eq!(html.into_string(), "<p title=\"&quot;&lt;b&gt;&quot;\">7</p>");
    }
}
