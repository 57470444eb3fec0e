#![no_main]
//! libFuzzer's way into the target `headers`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::headers(data));
