#![no_main]
//! libFuzzer's way into the target `envelope`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::envelope(data));
