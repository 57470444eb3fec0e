//! CPU time and memory of processes, read from `/proc`.

use std::time::Duration;

use anyhow::Context as _;

/// Returns the CPU time that the threads of a process have used. Threads that have ended do not count.
///
/// # Errors
///
/// Fails if there is no such process.
pub fn cpu_time(pid: u32) -> anyhow::Result<Duration> {
    let mut total = 0;
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let file = task?.path().join("schedstat");
        let Ok(statistics) = std::fs::read_to_string(&file) else { continue }; // the thread has just ended
        let running = statistics.split_ascii_whitespace().next().context("schedstat is empty")?;
        total += running.parse::<u64>()?;
    }
    Ok(Duration::from_nanos(total))
}

/// Returns the resident memory of a process in bytes.
///
/// # Errors
///
/// Fails if there is no such process.
pub fn resident_memory(pid: u32) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("VmRSS is missing")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}
