//! The validator: whatever a schema and a value say, compiling and checking end, and all ways to ask agree.

use linchpin_schema::{Limits, Schema};
use serde_json::{Value, from_slice};

/// Little enough that a run is short however hostile its schema.
const LIMITS: Limits = Limits { depth: 64, subschemas: 200, patterns: 1 << 16, work: 100_000 };
const FAULTS: usize = 8;

/// The first line is a schema, and every other a value for it.
pub fn schema(data: &[u8]) {
    let mut lines = data.split(|&byte| byte == b'\n');
    let Some(Ok(document)) = lines.next().map(from_slice::<Value>) else { return };
    let compiled = match Schema::compile_within(&document, LIMITS) {
        Ok(compiled) => compiled,
        Err(fault) => {
            assert!(!fault.reason().is_empty(), "{document} is refused without a reason");
            return;
        }
    };
    for value in lines.filter_map(|line| from_slice::<Value>(line).ok()) {
        let faults = compiled.faults(&value, FAULTS);
        assert!(faults.len() <= FAULTS);
        assert_eq!(compiled.check(&value).err().as_ref(), faults.first(), "{document} {value}");
        for fault in &faults {
            assert!(!fault.reason().is_empty(), "{document} {value}: a fault without a reason");
            assert!(value.pointer(fault.path()).is_some(), "{document} {value}: {fault} is nowhere");
        }
        let given_up = faults.iter().any(|fault| fault.reason().contains("cannot be checked"));
        assert!(given_up || compiled.is_valid(&value) == faults.is_empty(), "{document} {value}");
    }
}
