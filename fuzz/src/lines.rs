//! Target for framing: the lines do not depend on the chunks.

use linchpin_jsonrpc::{FramedLine, LineBuffer};

const HEADER: usize = 5;
/// Value that enables repetition; a single one, because such a run takes fifty times as long as others.
const REPEAT_FLAG: u8 = 255;

/// Reads lines. The first five bytes are the parameters: the cap (two bytes), whether the rest is repeated to fill the
/// buffers, and a small and a large chunk size, used alternately. The rest is the input.
pub fn lines(data: &[u8]) {
    let Some((&[low, high, repeat, small, large], rest)) = data.split_first_chunk::<HEADER>() else { return };
    let cap = usize::from(u16::from_le_bytes([low, high]));
    let input = rest.repeat(if repeat == REPEAT_FLAG { 16 } else { 1 });
    let pieces = [1 + usize::from(small), 256 * (1 + usize::from(large))];
    let expected = expected_lines(&input, cap);
    assert_eq!(read_in_chunks(&input, &[usize::MAX], cap), expected, "in one chunk, with the cap {cap}");
    assert_eq!(read_in_chunks(&input, &pieces, cap), expected, "in chunks of {pieces:?}, with the cap {cap}");
}

/// Returns the expected lines; `None` is a line over the cap.
fn expected_lines(input: &[u8], cap: usize) -> Vec<Option<Vec<u8>>> {
    let mut lines: Vec<_> = input.split(|&byte| byte == b'\n').collect();
    // Empty text after the last newline is not a line.
    lines.pop_if(|line| line.is_empty());
    lines.into_iter().map(|line| (line.len() <= cap).then(|| line.to_vec())).collect()
}

/// Returns the lines read from the input in chunks of these sizes, used in turn.
fn read_in_chunks(input: &[u8], pieces: &[usize], cap: usize) -> Vec<Option<Vec<u8>>> {
    let mut buffer = LineBuffer::new(cap);
    let mut lines = Vec::new();
    let mut pieces = pieces.iter().cycle();
    let mut rest = input;
    while !rest.is_empty() {
        let space = buffer.space();
        let wanted = pieces.next().copied().unwrap_or(1);
        let (piece, later) = rest.split_at(wanted.min(space.len()).min(rest.len()));
        assert!(!piece.is_empty(), "the buffer must have room");
        space[..piece.len()].copy_from_slice(piece);
        buffer.advance(piece.len());
        rest = later;
        while let Some(line) = buffer.next_line() {
            lines.push(match line {
                FramedLine::Complete(line) => Some(line.to_vec()),
                FramedLine::TooLong => None,
            });
        }
    }
    lines.extend(buffer.last_line().map(|line| Some(line.to_vec())));
    lines
}
