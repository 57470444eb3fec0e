#![no_main]
//! libFuzzer's way into the target `events`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::events(data));
