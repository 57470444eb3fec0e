#![no_main]
//! libFuzzer's way into the target `codecs`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::codecs(data));
