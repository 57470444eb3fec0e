//! Target for the validator: compilation and validation terminate for any schema and value, and all methods agree.

use linchpin_schema::{Limits, Schema};
use serde_json::{Value, from_slice};

/// Limits that keep a run short even with a hostile schema.
const LIMITS: Limits = Limits { depth: 64, subschemas: 200, patterns: 1 << 16, max_steps: 100_000 };
const FAULTS: usize = 8;

/// Validates values. The first line is the schema, each other line a value.
pub fn schema(data: &[u8]) {
    let mut lines = data.split(|&byte| byte == b'\n');
    let Some(Ok(document)) = lines.next().map(from_slice::<Value>) else { return };
    let compiled = match Schema::compile_within(&document, LIMITS) {
        Ok(compiled) => compiled,
        Err(fault) => {
            assert!(!fault.reason().is_empty(), "{document} is rejected without a reason");
            return;
        }
    };
    for value in lines.filter_map(|line| from_slice::<Value>(line).ok()) {
        let faults = compiled.errors(&value, FAULTS);
        assert!(faults.len() <= FAULTS);
        assert_eq!(compiled.check(&value).err().as_ref(), faults.first(), "{document} {value}");
        for fault in &faults {
            assert!(!fault.reason().is_empty(), "{document} {value}: a fault without a reason");
            assert!(
                value.pointer(fault.path()).is_some(),
                "{document} {value}: the path of {fault} does not exist"
            );
        }
        let given_up = faults.iter().any(|fault| fault.reason().contains("cannot be checked"));
        assert!(given_up || compiled.is_valid(&value) == faults.is_empty(), "{document} {value}");
    }
}
