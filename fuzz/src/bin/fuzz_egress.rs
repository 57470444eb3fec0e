#![no_main]
//! libFuzzer's way into the target `egress`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::egress(data));
