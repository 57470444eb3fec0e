//! List of the invisible and deceptive characters that are rejected or replaced in untrusted text. All code that shows
//! or accepts such text uses this list.

/// Returns whether a character is invisible or changes the direction of the surrounding text: zero-width characters,
/// blank letters, bidirectional controls, interlinear annotations, variation selectors and tags. Control characters
/// are not included: see [`char::is_control`].
pub fn is_hidden(char: char) -> bool {
    matches!(char,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
        | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d159}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_marks_and_spaces_are_not_hidden() {
        let visible = "aä\u{301}漢 \u{a0}\u{3000}\u{2026}ᄀ한⠁\u{fffc}\u{fffd}😀";
        assert_eq!(visible.chars().find(|char| is_hidden(*char)), None);
        let hidden =
            "\u{3164}\u{115f}\u{2800}\u{34f}\u{fff9}\u{200b}\u{202e}\u{2066}\u{e0041}\u{fe0f}\u{e0100}";
        assert_eq!(hidden.chars().find(|char| !is_hidden(*char)), None);
    }
}
