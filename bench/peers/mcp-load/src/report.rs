//! Counters of a measurement and their JSON report.

use std::{
    cell::{Cell, RefCell},
    time::Instant,
};

use bench_common::process;
use serde_json::{Value, json};

use crate::options::Options;

/// Responses of one measurement: latencies in nanoseconds, bytes, errors.
#[derive(Default)]
pub struct Tally {
    latencies: RefCell<Vec<u64>>,
    errors: Cell<usize>,
    first_error: RefCell<Option<String>>,
    bytes_in: Cell<u64>,
    bytes_out: Cell<u64>,
}

impl Tally {
    pub fn error(&self, why: &str, message: &[u8]) {
        self.errors.set(self.errors.get() + 1);
        self.first_error.borrow_mut().get_or_insert_with(|| {
            format!("{why}: {}", String::from_utf8_lossy(&message[..message.len().min(300)]))
        });
    }

    /// Adds the errors of the warm-up: a wrong response counts, whether measured or not.
    pub fn add_errors(&self, warmup: &Self) {
        self.errors.set(self.errors.get() + warmup.errors.get());
        let mut first = self.first_error.borrow_mut();
        if first.is_none() {
            *first = warmup.first_error.take();
        }
    }

    pub fn record_response(&self, asked: Instant) {
        self.latencies.borrow_mut().push(asked.elapsed().as_nanos() as u64);
    }

    pub fn sent(&self, bytes: usize) {
        self.bytes_out.set(self.bytes_out.get() + bytes as u64);
    }

    pub fn received(&self, bytes: usize) {
        self.bytes_in.set(self.bytes_in.get() + bytes as u64);
    }
}

/// Resource usage of the servers so far.
#[derive(Default)]
struct Usage {
    cpu_ns: u64,
    user_us: u64,
    sys_us: u64,
    context_switches: u64,
}

impl Usage {
    fn read(pids: &[u32]) -> Self {
        let mut usage = Self::default();
        for &pid in pids {
            usage.cpu_ns += process::cpu_ns(pid).unwrap_or(0);
            let (user, sys) = process::user_sys_us(pid).unwrap_or((0, 0));
            usage.user_us += user;
            usage.sys_us += sys;
            usage.context_switches += process::context_switches(pid);
        }
        usage
    }
}

/// Reads the servers' clocks at the start and at the end of a measurement.
pub struct Meter {
    pids: Vec<u32>,
    before: Usage,
    own_cpu_ns: u64,
    started: Instant,
}

impl Meter {
    pub fn start(pids: &[u32]) -> Self {
        pids.iter().for_each(|&pid| process::reset_peak(pid));
        Self {
            pids: pids.to_vec(),
            before: Usage::read(pids),
            own_cpu_ns: own_cpu_ns(),
            started: Instant::now(),
        }
    }

    pub fn stop(self, options: &Options, workload: &str, done: usize, tally: &Tally) -> Value {
        let secs = self.started.elapsed().as_secs_f64();
        let (before, after) = (&self.before, Usage::read(&self.pids));
        let own_cpu_ns = own_cpu_ns() - self.own_cpu_ns;
        let mut latencies = tally.latencies.borrow_mut();
        latencies.sort_unstable();
        let quantile = |share: f64| {
            let at = (latencies.len() as f64 * share) as usize;
            latencies.get(at.min(latencies.len().saturating_sub(1))).map(|ns| *ns as f64 / 1000.0)
        };
        let per_request = |sum: u64| sum as f64 / done.max(1) as f64;
        let largest = |key: &str| self.pids.iter().filter_map(|pid| process::status(*pid, key)).max();
        json!({
            "label": options.label,
            "workload": workload,
            "transport": options.transport(),
            "proto": format!("{:?}", options.protocol),
            "conns": options.connections,
            "depth": options.depth,
            "n": done,
            "errors": tally.errors.get(),
            "first_error": *tally.first_error.borrow(),
            "secs": secs,
            "rps": done as f64 / secs,
            "p50_us": quantile(0.5),
            "p99_us": quantile(0.99),
            "cpu_us_per_req": per_request(after.cpu_ns.saturating_sub(before.cpu_ns)) / 1000.0,
            "user_us_per_req": per_request(after.user_us.saturating_sub(before.user_us)),
            "sys_us_per_req": per_request(after.sys_us.saturating_sub(before.sys_us)),
            "ctxsw_per_req": per_request(after.context_switches.saturating_sub(before.context_switches)),
            "client_cpu_us_per_req": per_request(own_cpu_ns) / 1000.0,
            "bytes_out_per_req": per_request(tally.bytes_out.get()),
            "bytes_in_per_req": per_request(tally.bytes_in.get()),
            "hwm_kb": largest("VmHWM"),
            "rss_kb": largest("VmRSS"),
            "threads": self.pids.first().and_then(|pid| process::status(*pid, "Threads")),
        })
    }
}

fn own_cpu_ns() -> u64 {
    process::cpu_ns(std::process::id()).unwrap_or(0)
}
