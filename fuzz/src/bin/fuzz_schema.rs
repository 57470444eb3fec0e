#![no_main]
//! libFuzzer's way into the target `schema`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::schema(data));
