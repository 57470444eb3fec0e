//! Resource usage of another process: CPU time, memory, context switches. Linux only.

/// Returns the CPU time in nanoseconds of all threads, including finished ones.
pub fn cpu_ns(pid: u32) -> Option<u64> {
    let mut clock: libc::clockid_t = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both calls write only to the local variable passed to them.
    unsafe {
        if libc::clock_getcpuclockid(pid as libc::pid_t, &mut clock) != 0
            || libc::clock_gettime(clock, &mut time) != 0
        {
            return None;
        }
    }
    Some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Returns user and system time in microseconds; the kernel counts them in ticks of 10 ms.
pub fn user_sys_us(pid: u32) -> Option<(u64, u64)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat[stat.rfind(')')? + 2..].split(' ').collect();
    // SAFETY: sysconf only reads a system constant.
    let ticks_per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as u64;
    let time =
        |i: usize| fields.get(i)?.parse::<u64>().ok().map(|ticks| ticks * 1_000_000 / ticks_per_second);
    Some((time(11)?, time(12)?))
}

/// Returns a number from `/proc/PID/status` by its key: `VmRSS`, `VmHWM`, `Threads`.
pub fn status(pid: u32, key: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find(|line| line.starts_with(key))?.split_whitespace().nth(1)?.parse().ok()
}

/// Returns the voluntary and involuntary context switches of all live threads.
pub fn context_switches(pid: u32) -> u64 {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return 0 };
    tasks
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok())
        .map(|status| {
            let lines = status.lines().filter(|line| line.contains("ctxt_switches"));
            lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum::<u64>()
        })
        .sum()
}

/// Resets the peak resident memory before the next workload.
pub fn reset_peak(pid: u32) {
    let _ = std::fs::write(format!("/proc/{pid}/clear_refs"), "5");
}
