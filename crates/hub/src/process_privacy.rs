//! Protection of the memory and environment of this process against other processes of the same user: stdio servers
//! run as that user.

use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{CapabilitySet, capabilities, remove_capability_from_bounding_set, set_capabilities};

/// Capabilities that give access to a non-dumpable process. Since Linux 6.15 the last two can read its environment.
const ACCESS_CAPABILITIES: [CapabilitySet; 3] =
    [CapabilitySet::SYS_PTRACE, CapabilitySet::SYS_ADMIN, CapabilitySet::PERFMON];

/// Makes this process non-dumpable, so that no process of the same user can open `/proc/PID/mem` or `environ`, or
/// attach to it. Root still can, so stdio servers of a hub that runs as root lose the capabilities for it. Capabilities
/// are per thread: call this before starting another thread.
///
/// Errors are ignored: the measures are independent of each other, and a process that may not drop a capability does
/// not have it.
pub(crate) fn harden_process() {
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    for capability in ACCESS_CAPABILITIES {
        let _ = remove_capability_from_bounding_set(capability);
    }
    // A root process also gains its inheritable capabilities on exec.
    if let Ok(mut sets) = capabilities(None) {
        for capability in ACCESS_CAPABILITIES {
            sets.inheritable.remove(capability);
        }
        let _ = set_capabilities(None, sets);
    }
}
