//! Detection of integers in JSON that do not fit into 64 bits. Parsing would turn them into floating-point numbers, so
//! that a tool would receive another number than the caller sent.

/// Returns the first integer of a JSON text that does not fit into 64 bits. The text must be valid JSON.
pub fn find_wide_integer(json: &str) -> Option<&str> {
    let bytes = json.as_bytes();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let start = at;
        at += 1;
        match byte {
            b'"' => {
                while bytes.get(at).is_some_and(|byte| *byte != b'"') {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                at += 1;
            }
            b'-' | b'0'..=b'9' => {
                let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
                at += bytes[at..].iter().take_while(|byte| is_part(byte)).count();
                let number = &json[start..at];
                let is_integer = !number.contains(['.', 'e', 'E']);
                if is_integer && number.parse::<u64>().is_err() && number.parse::<i64>().is_err() {
                    return Some(number);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_of_more_than_64_bits_are_found() {
        for fits in [
            "{}",
            "18446744073709551615",
            "[-9223372036854775808, 0, -0, 1.5, 1e30, 123456789012345678901.5, -1E+30]",
            r#"{"18446744073709551616": "18446744073709551616 \" 18446744073709551616 \\"}"#,
            r#""é18446744073709551616""#,
        ] {
            serde_json::from_str::<serde_json::Value>(fits).unwrap();
            assert_eq!(find_wide_integer(fits), None, "{fits}");
        }
        for (wide, number) in [
            ("18446744073709551616", "18446744073709551616"),
            ("[1, -9223372036854775809]", "-9223372036854775809"),
            (r#"{"a": "\\", "b": {"c": [99999999999999999999]}}"#, "99999999999999999999"),
        ] {
            assert_eq!(find_wide_integer(wide), Some(number), "{wide}");
        }
    }

    proptest::proptest! {
        #[test]
        fn a_text_that_passes_keeps_its_whole_numbers(numbers in proptest::collection::vec(proptest::prelude::any::<i128>(), 0..5)) {
            let text = format!("{numbers:?}");
            let value: serde_json::Value = serde_json::from_str(&text).unwrap();
            let (written, sent) = (value.to_string(), text.replace(' ', ""));
            proptest::prop_assert_eq!(find_wide_integer(&text).is_none(), written == sent);
        }
    }
}
