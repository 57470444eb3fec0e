#![no_main]
//! libFuzzer's way into the target `auth`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::auth(data));
