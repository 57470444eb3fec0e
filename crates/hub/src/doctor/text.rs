//! Text output of `linchpin doctor`.

use std::fmt::Write as _;
use std::time::Duration;

use super::trace::DoctorStep;
use crate::terminal::{OutputStyle, Style, sanitize, wrap};

/// Column at which the text of a doctor step starts.
const INDENT: usize = 18;

pub(super) fn render(server: &str, steps: &[DoctorStep], look: OutputStyle) -> String {
    let mut out = format!("{}\n\n", look.paint(Style::Bold, server));
    for step in steps {
        let (symbol, style) = if step.ok { ("ok", Style::Good) } else { ("!!", Style::Bad) };
        let duration = step
            .duration
            .map(|duration| format!("  {}", look.paint(Style::Dim, &format_duration(duration))))
            .unwrap_or_default();
        let lines = wrap(&sanitize(&step.text), look.width.saturating_sub(INDENT + 10));
        let mut lines = lines.iter();
        let first = lines.next().map_or("", |line| line);
        let _ = writeln!(out, " {} {:<13} {first}{duration}", look.paint(style, symbol), step.name);
        for line in lines {
            let _ = writeln!(out, "{:INDENT$}{line}", "");
        }
        if let Some(advice) = &step.advice {
            for (index, line) in wrap(advice, look.width.saturating_sub(INDENT + 4)).iter().enumerate() {
                let arrow = if index == 0 { "→ " } else { "  " };
                let _ =
                    writeln!(out, "{:INDENT$}{}", "", look.paint(Style::Warning, &format!("{arrow}{line}")));
            }
        }
    }
    let healthy = steps.iter().all(|step| step.ok);
    let conclusion = if healthy {
        look.paint(Style::Good, "The server is usable.")
    } else {
        look.paint(Style::Bad, "The server is not usable.")
    };
    let _ = writeln!(out, "\n{conclusion}");
    out
}

fn format_duration(duration: Duration) -> String {
    let ms = duration.as_secs_f64() * 1_000.0;
    if ms < 10.0 { format!("{ms:.1} ms") } else { format!("{ms:.0} ms") }
}
