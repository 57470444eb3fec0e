#![no_main]
//! libFuzzer's way into the target `lines`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::lines(data));
