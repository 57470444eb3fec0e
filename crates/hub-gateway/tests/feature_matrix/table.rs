//! Table of the matrix: one row per client and upstream server, one column per feature.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::cells::{Cell, CellOutcome};
use crate::features::Feature;

/// Document that states the counts.
const DOCUMENT: &str = include_str!("../../../../docs/design/gateway.md");
const CLIENT_WIDTH: usize = 18;
const SERVER_WIDTH: usize = 18;
const COLUMN_WIDTH: usize = 13;

/// Renders the table, the reasons of impossible cells, and the counts.
pub(crate) fn render(cells: &[Cell]) -> String {
    let mut text = format!("{:CLIENT_WIDTH$}{:SERVER_WIDTH$}", "client", "server");
    for feature in Feature::ALL {
        let _ = write!(text, "{:COLUMN_WIDTH$}", feature.name());
    }
    for row in cells.chunk_by(|one, other| (one.front, one.upstream) == (other.front, other.upstream)) {
        let (front, upstream) = (row[0].front.to_string(), row[0].upstream.slug());
        let _ = write!(text, "\n{front:CLIENT_WIDTH$}{upstream:SERVER_WIDTH$}");
        for cell in row {
            let mark = match cell.outcome {
                CellOutcome::Passed => "ok",
                CellOutcome::Impossible(_) => "-",
                CellOutcome::Failed(_) => "FAILED",
            };
            let _ = write!(text, "{mark:COLUMN_WIDTH$}");
        }
    }
    let reasons: BTreeSet<_> = cells
        .iter()
        .filter_map(|cell| match cell.outcome {
            CellOutcome::Impossible(reason) => Some((cell.feature, reason)),
            _ => None,
        })
        .collect();
    text.push_str("\n\nimpossible (-):\n");
    for (feature, reason) in reasons {
        let _ = writeln!(text, "  {}: {reason}", feature.name());
    }
    let _ = writeln!(text, "{}", summary(cells));
    text
}

/// Returns the counts of the cells, as in the document.
fn summary(cells: &[Cell]) -> String {
    let count =
        |matches: fn(&CellOutcome) -> bool| cells.iter().filter(|cell| matches(&cell.outcome)).count();
    let passed = count(|outcome| *outcome == CellOutcome::Passed);
    let impossible = count(|outcome| matches!(outcome, CellOutcome::Impossible(_)));
    format!("{} cells: {passed} pass, {impossible} are impossible", cells.len())
}

/// Checks that no cell has failed and that the document states the counts.
pub(crate) fn check(cells: &[Cell]) -> Result<(), String> {
    let mut failures = String::new();
    for cell in cells {
        if let CellOutcome::Failed(error) = &cell.outcome {
            let _ = writeln!(
                failures,
                "{} -> {}, {}: {error}",
                cell.front,
                cell.upstream.slug(),
                cell.feature.name()
            );
        }
    }
    let summary = summary(cells);
    if failures.is_empty() && !DOCUMENT.contains(&summary) {
        let _ = writeln!(failures, "docs/design/gateway.md does not state: {summary}");
    }
    if failures.is_empty() { Ok(()) } else { Err(failures) }
}
