//! `params` of a message: its text and the members of the object, found in the same pass as the envelope.

use std::borrow::Cow;

use crate::error::{ParseError, ParseErrorKind};
use crate::scan::{Limits, RawString, Scan};
use crate::string::unescape;

const INLINE_MEMBERS: usize = 4;

/// Parameters of a JSON-RPC request or notification: the text of the object and of each member. Absent parameters
/// behave like an empty object.
#[derive(Debug, Clone, Default)]
pub struct Params<'a> {
    text: Option<&'a str>,
    inline: [(&'a str, &'a str); INLINE_MEMBERS],
    inline_len: usize,
    overflow: Vec<(Cow<'a, str>, &'a str)>,
}

impl<'a> Params<'a> {
    /// Parses the parameters of a message from JSON text, with the same strictness as a message.
    pub fn parse(text: &'a str, limits: Limits) -> Result<Self, ParseError> {
        let mut scan = Scan::new(text, limits);
        if scan.peek() != Some(b'{') {
            return scan.fail(ParseErrorKind::Params, "expected a JSON object");
        }
        let params = Self::read(&mut scan, 0)?;
        scan.expect_end()?;
        Ok(params)
    }

    /// Reads the parameters of a message at the current position of the scanner. The scanner must be at its opening
    /// brace.
    pub(crate) fn read(scan: &mut Scan<'a>, depth: u32) -> Result<Self, ParseError> {
        let start = scan.at;
        let mut params = Self::default();
        scan.object(depth, |scan, key, depth| {
            params.push(key, scan.value(depth)?);
            Ok(())
        })?;
        params.text = Some(&scan.text()[start..scan.at]);
        Ok(params)
    }

    /// Returns the `params` object as JSON text, or `None` if the message has none.
    pub fn text(&self) -> Option<&'a str> {
        self.text
    }

    /// Returns the JSON text of a member of `params`.
    pub fn find(&self, key: &str) -> Option<&'a str> {
        let inline =
            self.inline[..self.inline_len].iter().find(|(name, _)| *name == key).map(|(_, value)| *value);
        inline.or_else(|| self.overflow.iter().find(|(name, _)| name == key).map(|(_, value)| *value))
    }

    fn push(&mut self, key: RawString<'a>, value: &'a str) {
        if self.inline_len < INLINE_MEMBERS && !key.escaped {
            self.inline[self.inline_len] = (key.raw, value);
            self.inline_len += 1;
        } else {
            self.overflow.push((unescape(key.raw), value));
        }
    }
}
