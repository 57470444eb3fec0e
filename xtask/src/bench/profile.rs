//! `cargo xtask bench profile WORKLOAD`: instructions of one request by function, as the difference of two callgrind
//! files, so that start-up cancels out. Inlined code counts towards the function it was inlined into.

use std::collections::HashMap;

use anyhow::{Context, bail};

use super::client;
use super::instructions::{self, RunLengths, WORKLOADS};
use super::peer::{self, Peer};
use crate::command;

const MAX_FUNCTIONS: usize = 40;
const MAX_NAME_LEN: usize = 130;

/// Cost of one function. Recursion is folded: the inclusive count of a recursive function is an upper bound.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Cost {
    calls: f64,
    inclusive: f64,
    own: f64,
}

pub(super) fn run(arguments: &[String]) -> anyhow::Result<()> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (workload, peer) = match arguments[..] {
        [workload] => (workload, "ours"),
        [workload, "--peer", peer] => (workload, peer),
        _ => bail!("cargo xtask bench profile WORKLOAD [--peer ours|raw|rmcp]"),
    };
    let peer = Peer::find(peer).with_context(|| format!("unknown peer {peer}"))?;
    let find =
        |workloads: &'static [RunLengths]| workloads.iter().find(|lengths| lengths.workload == workload);
    let (of_server, of_client) = (find(&WORKLOADS), find(&client::WORKLOADS));
    let lengths = of_server.or(of_client).with_context(|| {
        let names: Vec<_> =
            WORKLOADS.iter().chain(&client::WORKLOADS).map(|lengths| lengths.workload).collect();
        format!("unknown workload {workload}: choose one of {}", names.join(", "))
    })?;
    command::require_program("valgrind", "to profile")?;
    peer::build(&[peer])?;
    let [short, long] = match of_client {
        Some(lengths) => client::profiles(peer, lengths)?,
        None => instructions::profiles(peer, lengths)?,
    };
    print_profile(difference(&parse(&short), &parse(&long), lengths.difference()));
    println!("\nfull profile: callgrind_annotate {}", instructions::path(peer, workload, lengths.long));
    Ok(())
}

fn print_profile(mut costs: Vec<(&str, Cost)>) {
    costs.sort_by(|(_, a), (_, b)| b.own.total_cmp(&a.own));
    let total: f64 = costs.iter().map(|(_, cost)| cost.own).sum();
    println!("\n{total:.0} instructions per request, by function:\n");
    println!("{:>9} {:>8} {:>10} {:>8}  function", "self", "share", "inclusive", "calls");
    for (name, Cost { calls, inclusive, own }) in costs.into_iter().take(MAX_FUNCTIONS) {
        let name: String = name.chars().take(MAX_NAME_LEN).collect();
        println!("{own:>9.0} {:>7.1}% {inclusive:>10.0} {calls:>8.2}  {name}", 100.0 * own / total);
    }
}

/// Returns the cost of each function per request.
fn difference<'a>(
    short: &HashMap<&'a str, Cost>,
    long: &HashMap<&'a str, Cost>,
    requests: f64,
) -> Vec<(&'a str, Cost)> {
    let per_request = |(&name, long): (&&'a str, &Cost)| {
        let short = short.get(name).copied().unwrap_or_default();
        let cost = Cost {
            calls: (long.calls - short.calls) / requests,
            inclusive: (long.inclusive - short.inclusive) / requests,
            own: (long.own - short.own) / requests,
        };
        (name, cost)
    };
    long.iter().map(per_request).collect()
}

/// Parses a callgrind file: `fn=` starts a function, and each following line of numbers is a cost; the line after
/// `calls=` is the cost of the function named by `cfn=`. A name occurs once as `(7) name`, then only as `(7)`.
fn parse(file: &str) -> HashMap<&str, Cost> {
    let mut names = HashMap::new();
    let mut costs: HashMap<&str, Cost> = HashMap::new();
    let (mut current, mut callee, mut calls) = ("", "", None);
    for line in file.lines() {
        if let Some(name) = line.strip_prefix("fn=") {
            current = find_name(name, &mut names);
        } else if let Some(name) = line.strip_prefix("cfn=") {
            callee = find_name(name, &mut names);
        } else if let Some(counts) = line.strip_prefix("calls=") {
            calls = counts.split_whitespace().next().and_then(number);
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            let Some((_, cost)) = line.rsplit_once(' ') else { continue };
            let Some(cost) = number(cost) else { continue };
            if let Some(calls) = calls.take() {
                let entry = costs.entry(callee).or_default();
                entry.calls += calls;
                if callee != current {
                    entry.inclusive += cost;
                }
            } else {
                costs.entry(current).or_default().own += cost;
            }
        }
    }
    costs
}

/// Returns the function name for `(7) name` or `(7)`, without the suffix of a recursion level (`'2`).
fn find_name<'a>(text: &'a str, names: &mut HashMap<&'a str, &'a str>) -> &'a str {
    let Some((key, name)) = text.split_once(')') else { return text };
    let name = name.trim();
    if name.is_empty() {
        return names.get(key).copied().unwrap_or(text);
    }
    let name = match name.rsplit_once('\'') {
        Some((name, level)) if number(level).is_some() => name,
        _ => name,
    };
    names.insert(key, name);
    name
}

/// Parses a count. Counts are integers, far below the range where a float would round them.
fn number(text: &str) -> Option<f64> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(requests: u32) -> String {
        let (own, calls, called) = (1000 + 10 * requests, 2 * requests, 70 * requests);
        format!(
            "events: Ir\n\
             fn=(1) main\n16 500\ncfi=(2)\ncfn=(2) answer'2\ncalls={calls} 7\n+1 {called}\n+3 {own}\n\n\
             fl=(3)\nfn=(2)\n7 {called}\n* {requests}\ncfn=(2)\ncalls={calls} 7\n8 5\n\
             totals: 99\n"
        )
    }

    #[test]
    fn start_up_cancels_and_recursion_is_folded() {
        let (short, long) = (file(10), file(110));
        let mut costs = difference(&parse(&short), &parse(&long), 100.0);
        costs.sort_by_key(|(name, _)| *name);
        assert_eq!(
            costs,
            [
                ("answer", Cost { calls: 4.0, inclusive: 70.0, own: 71.0 }),
                ("main", Cost { calls: 0.0, inclusive: 0.0, own: 10.0 }),
            ]
        );
    }
}
