//! Error in the configuration file, with the path, position and field.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Error in a configuration file. Never contains values of the file, since they may be secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConfigError {
    path: PathBuf,
    /// Line and column of the error in the file, starting at 1.
    position: Option<(usize, usize)>,
    /// Full dotted path of the invalid field in the file.
    field: Option<String>,
    message: String,
}

impl ConfigError {
    pub(crate) fn new(path: &Path, message: impl Into<String>) -> Self {
        ConfigError { path: path.to_owned(), position: None, field: None, message: message.into() }
    }

    pub(crate) fn with_field(self, field: impl Into<String>) -> Self {
        ConfigError { field: Some(field.into()), ..self }
    }

    /// Sets line and column of the error from a byte range of the configuration file.
    pub(crate) fn at_span(self, text: &str, span: Option<Range<usize>>) -> Self {
        let position = span.and_then(|span| text.get(..span.start)).map(|before| {
            let line = before.rsplit('\n').next().unwrap_or_default();
            (before.matches('\n').count() + 1, line.chars().count() + 1)
        });
        ConfigError { position, ..self }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.path.display())?;
        if let Some((line, column)) = self.position {
            write!(f, ", line {line}, column {column}")?;
        }
        if let Some(field) = &self.field {
            write!(f, ": `{field}`")?;
        }
        write!(f, ": {}", self.message)
    }
}

impl std::error::Error for ConfigError {}
