//! Memory and environment of this process, closed to other processes of the same user: stdio servers run as that user.

use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{CapabilitySet, capabilities, remove_capability_from_bounding_set, set_capabilities};

/// Capabilities that open a process although it is not dumpable. The last two read its environment since Linux 6.15.
const OPENING: [CapabilitySet; 3] =
    [CapabilitySet::SYS_PTRACE, CapabilitySet::SYS_ADMIN, CapabilitySet::PERFMON];

/// Makes this process non-dumpable, so that no process of the same user can open `/proc/PID/mem` or `environ`, or attach
/// to it. Root could nevertheless, so programs that a hub of root starts lose the capabilities for it. Capabilities
/// belong to threads: this must run before another one is started.
///
/// Errors are ignored: where the kernel refuses one of these, the others still hold, and a program without the right to
/// drop a capability does not have it.
pub(crate) fn close() {
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    for capability in OPENING {
        let _ = remove_capability_from_bounding_set(capability);
    }
    // Root gets those that are inherited, too.
    if let Ok(mut sets) = capabilities(None) {
        for capability in OPENING {
            sets.inheritable.remove(capability);
        }
        let _ = set_capabilities(None, sets);
    }
}
