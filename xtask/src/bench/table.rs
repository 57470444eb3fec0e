//! Table of the peers' figures, with ratios and target checks, aligned for the terminal.

use std::fmt;

use super::peer::{Peer, PerPeer};
use super::targets::Target;

const HEADER: [&str; 10] =
    ["workload", "raw", "ours", "rmcp", "ours÷raw", "rmcp÷raw", "rmcp÷ours", "must", "goal", "verdict"];

/// Metric that the targets of a table apply to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TargetMetric {
    /// Our figure itself.
    Figure,
    /// Ratio to raw, for figures that depend on the machine.
    RatioToRaw,
    /// Ratio to the official SDK.
    RatioToRmcp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The goal is reached.
    Goal,
    Within,
    Over,
    /// A target exists, but a measurement failed.
    Failed,
    NoTarget,
}

impl Verdict {
    pub(super) fn is_within(self) -> bool {
        matches!(self, Self::Goal | Self::Within)
    }

    pub(super) fn is_missed(self) -> bool {
        self == Self::Over
    }

    fn word(self) -> &'static str {
        match self {
            Self::Goal => "goal",
            Self::Within => "within",
            Self::Over => "OVER",
            Self::Failed => "failed",
            Self::NoTarget => "",
        }
    }
}

pub(super) struct Row {
    pub(super) workload: String,
    pub(super) figures: PerPeer,
    pub(super) target: Option<Target>,
}

pub(super) struct Table {
    title: String,
    decimals: usize,
    judged: TargetMetric,
    pub(super) rows: Vec<Row>,
}

impl Table {
    pub(super) fn new(title: &str, decimals: usize, judged: TargetMetric) -> Self {
        Self { title: title.to_owned(), decimals, judged, rows: Vec::new() }
    }

    /// Returns the number of rows with a matching verdict.
    pub(super) fn count(&self, wanted: impl Fn(Verdict) -> bool) -> usize {
        self.rows.iter().filter(|row| wanted(self.verdict(row))).count()
    }

    fn verdict(&self, row: &Row) -> Verdict {
        let Some(target) = row.target else { return Verdict::NoTarget };
        let judged = match self.judged {
            TargetMetric::Figure => row.figures.get(Peer::Ours),
            TargetMetric::RatioToRaw => row.figures.ratio(Peer::Ours, Peer::Raw),
            TargetMetric::RatioToRmcp => row.figures.ratio(Peer::Ours, Peer::Rmcp),
        };
        match judged {
            None => Verdict::Failed,
            Some(judged) if target.goal.is_some_and(|goal| judged <= goal) => Verdict::Goal,
            Some(judged) if judged <= target.must => Verdict::Within,
            Some(_) => Verdict::Over,
        }
    }

    fn cells(&self, row: &Row) -> [String; 10] {
        let figures = &row.figures;
        let figure = |peer| figures.get(peer).map_or("-".to_owned(), |value| grouped(value, self.decimals));
        let ratio = |of, to| figures.ratio(of, to).map_or("-".to_owned(), |value| format!("{value:.2}"));
        let target = |value: Option<f64>| match (value, self.judged) {
            (None, _) => String::new(),
            (Some(value), TargetMetric::Figure) => grouped(value, self.decimals),
            (Some(value), TargetMetric::RatioToRaw) => format!("{value:.2}×raw"),
            (Some(value), TargetMetric::RatioToRmcp) => format!("{value:.2}×rmcp"),
        };
        [
            row.workload.clone(),
            figure(Peer::Raw),
            figure(Peer::Ours),
            figure(Peer::Rmcp),
            ratio(Peer::Ours, Peer::Raw),
            ratio(Peer::Rmcp, Peer::Raw),
            ratio(Peer::Rmcp, Peer::Ours),
            target(row.target.map(|target| target.must)),
            target(row.target.and_then(|target| target.goal)),
            self.verdict(row).word().to_owned(),
        ]
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<[String; 10]> = std::iter::once(HEADER.map(str::to_owned))
            .chain(self.rows.iter().map(|row| self.cells(row)))
            .collect();
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
        write!(f, "{}", self.title)?;
        for line in &lines {
            let cells = line.iter().enumerate().map(|(column, cell)| {
                let width = width(column);
                // Align text left, numbers right.
                if column == 0 || column == 9 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
            });
            let cells: Vec<String> = cells.collect();
            write!(f, "\n  {}", cells.join("  ").trim_end())?;
        }
        Ok(())
    }
}

/// Formats a number with a comma between thousands.
fn grouped(value: f64, decimals: usize) -> String {
    let plain = format!("{value:.decimals$}");
    let (whole, fraction) = plain.split_once('.').map_or((plain.as_str(), None), |(w, f)| (w, Some(f)));
    let mut text = String::new();
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) && !text.ends_with('-') {
            text.push(',');
        }
        text.push(digit);
    }
    if let Some(fraction) = fraction {
        text.push('.');
        text.push_str(fraction);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(workload: &str, [raw, ours, rmcp]: [Option<f64>; 3], target: Option<Target>) -> Row {
        let mut figures = PerPeer::default();
        figures.set(Peer::Raw, raw);
        figures.set(Peer::Ours, ours);
        figures.set(Peer::Rmcp, rmcp);
        Row { workload: workload.to_owned(), figures, target }
    }

    #[test]
    fn figures_stand_side_by_side_with_ratios_and_a_verdict() {
        let target = |must, goal| Some(Target { must, goal });
        let mut table = Table::new("instructions", 0, TargetMetric::Figure);
        table.rows = vec![
            row("echo:64", [Some(4554.0), Some(11_000.0), Some(66_489.0)], target(12_000.0, Some(9_000.0))),
            row("ping", [Some(2262.0), Some(4500.0), Some(34_383.0)], target(6_000.0, Some(4_500.0))),
            row("add", [Some(1000.0), Some(2000.0), None], target(1_500.0, None)),
            row("list", [Some(1.0), None, Some(3.0)], target(1.0, None)),
            row("other", [Some(1.0), Some(2.0), Some(3.0)], None),
        ];
        let expected = "\
instructions
  workload    raw    ours    rmcp  ours÷raw  rmcp÷raw  rmcp÷ours    must   goal  verdict
  echo:64   4,554  11,000  66,489      2.42     14.60       6.04  12,000  9,000  within
  ping      2,262   4,500  34,383      1.99     15.20       7.64   6,000  4,500  goal
  add       1,000   2,000       -      2.00         -          -   1,500         OVER
  list          1       -       3         -      3.00          -       1         failed
  other         1       2       3      2.00      3.00       1.50";
        assert_eq!(table.to_string(), expected);
        assert_eq!((table.count(Verdict::is_within), table.count(Verdict::is_missed)), (2, 1));
    }

    #[test]
    fn a_time_is_judged_by_its_ratio_to_the_limit() {
        let mut table = Table::new("CPU", 2, TargetMetric::RatioToRaw);
        let target = Some(Target { must: 3.0, goal: None });
        table.rows = vec![
            row("fast machine", [Some(0.5), Some(1.4), Some(9.0)], target),
            row("slow machine", [Some(5.0), Some(14.0), Some(90.0)], target),
            row("too much", [Some(1.0), Some(3.1), Some(9.0)], target),
        ];
        assert_eq!((table.count(Verdict::is_within), table.count(Verdict::is_missed)), (2, 1));
        assert!(table.to_string().contains("3.00×raw"), "{table}");
    }

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!(grouped(1_858_104.4, 0), "1,858,104");
        assert_eq!(grouped(1234.5, 2), "1,234.50");
        assert_eq!(grouped(-123.0, 0), "-123");
        assert_eq!(grouped(0.39, 2), "0.39");
    }
}
