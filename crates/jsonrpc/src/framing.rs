//! Newline framing with a maximum line length that also bounds the memory used.
//!
//! The caller reads into [`LineBuffer::space`], reports the number of bytes read with [`LineBuffer::advance`] and takes
//! lines with [`LineBuffer::next_line`]. A line over the limit is reported once, as soon as its length exceeds the
//! limit, and skipped up to its newline. Later lines are not affected.

const INITIAL_BUFFER_BYTES: usize = 64 * 1024;
/// Buffer size above which an empty buffer is freed; a single large line can grow the buffer beyond it.
const MAX_IDLE_BUFFER_BYTES: usize = 1024 * 1024;

/// Line that a [`LineBuffer`] split off: a complete one, or one that is too long and is skipped.
#[derive(Debug, PartialEq, Eq)]
pub enum FramedLine<'a> {
    /// Complete line, without its newline.
    Complete(&'a [u8]),
    /// The line exceeds the limit and is skipped.
    TooLong,
}

/// Buffer that splits received bytes into lines of limited length.
#[derive(Debug)]
pub struct LineBuffer {
    bytes: Vec<u8>,
    /// Offset of the current line in the buffer.
    start: usize,
    /// Offset up to which the current line has been searched for a newline.
    searched: usize,
    /// End of the bytes read into the buffer.
    end: usize,
    max_len: usize,
    skipping: bool,
}

impl LineBuffer {
    /// Creates a buffer for lines of at most `max_len` bytes.
    pub fn new(max_len: usize) -> Self {
        Self { bytes: Vec::new(), start: 0, searched: 0, end: 0, max_len, skipping: false }
    }

    /// Returns the free part of the buffer, to read bytes into. It is never empty.
    pub fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.searched, self.end) = (0, 0, 0);
            if self.bytes.len() > MAX_IDLE_BUFFER_BYTES {
                self.bytes = Vec::new();
            }
        }
        if self.end == self.bytes.len() {
            if self.start > 0 {
                self.bytes.copy_within(self.start..self.end, 0);
                self.searched -= self.start;
                self.end -= self.start;
                self.start = 0;
            } else {
                let length = (self.bytes.len() * 2)
                    .clamp(INITIAL_BUFFER_BYTES, self.max_len.saturating_add(INITIAL_BUFFER_BYTES));
                self.bytes.resize(length.max(self.end + 1), 0);
            }
        }
        &mut self.bytes[self.end..]
    }

    /// Records that `count` bytes have been written to the start of [`Self::space`].
    pub fn advance(&mut self, count: usize) {
        self.end = (self.end + count).min(self.bytes.len());
    }

    /// Returns the next line, or `None` if more bytes must be read first.
    #[inline]
    pub fn next_line(&mut self) -> Option<FramedLine<'_>> {
        loop {
            let Some(length) = memchr::memchr(b'\n', &self.bytes[self.searched..self.end]) else {
                self.searched = self.end;
                if self.skipping {
                    self.start = self.end;
                } else if self.end - self.start > self.max_len {
                    self.start = self.end;
                    self.skipping = true;
                    return Some(FramedLine::TooLong);
                }
                return None;
            };
            let (start, end) = (self.start, self.searched + length);
            (self.start, self.searched) = (end + 1, end + 1);
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            return Some(if end - start > self.max_len {
                FramedLine::TooLong
            } else {
                FramedLine::Complete(&self.bytes[start..end])
            });
        }
    }

    /// Returns the unterminated last line of the input, if any. To be called at the end of input.
    pub fn last_line(&mut self) -> Option<&[u8]> {
        let rest = self.start..self.end;
        (self.start, self.searched) = (self.end, self.end);
        (!rest.is_empty() && !self.skipping).then(|| &self.bytes[rest])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Feeds `input` in pieces and returns the lines; `None` is a line that is too long.
    fn frame_in_pieces(input: &[u8], pieces: &[usize], max_len: usize) -> Vec<Option<Vec<u8>>> {
        let mut buffer = LineBuffer::new(max_len);
        let mut lines = Vec::new();
        let mut at = 0;
        let mut pieces = pieces.iter().copied().cycle();
        while at < input.len() {
            let space = buffer.space();
            let count = pieces.next().unwrap_or(1).clamp(1, space.len()).min(input.len() - at);
            space[..count].copy_from_slice(&input[at..at + count]);
            buffer.advance(count);
            at += count;
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

    #[test]
    fn a_line_over_the_cap_is_reported_once_and_the_next_one_is_read() {
        let input = [b"short\n".as_slice(), &vec![b'x'; 300_000], b"\nafter\ntail"].concat();
        let expected = vec![Some(b"short".to_vec()), None, Some(b"after".to_vec()), Some(b"tail".to_vec())];
        assert_eq!(frame_in_pieces(&input, &[70_000], 100), expected);
        assert_eq!(frame_in_pieces(&input, &[1_000_000], 100), expected);
        assert_eq!(frame_in_pieces(b"exact\n", &[3], 5), [Some(b"exact".to_vec())]);
        assert_eq!(frame_in_pieces(b"exacts\n", &[3], 5), [None]);
    }

    #[test]
    fn an_endless_line_takes_no_more_memory_than_the_cap_allows() {
        let mut buffer = LineBuffer::new(100_000);
        let mut reported = 0;
        for _ in 0..10_000 {
            let count = buffer.space().len();
            assert!(count <= 100_000 + 2 * INITIAL_BUFFER_BYTES);
            buffer.advance(count);
            while buffer.next_line().is_some() {
                reported += 1;
            }
        }
        // The buffer contains only zeros: one line without a newline.
        assert_eq!(reported, 1);
        assert!(buffer.bytes.len() <= 100_000 + INITIAL_BUFFER_BYTES);
    }

    #[test]
    fn memory_taken_for_a_large_line_is_given_back() {
        let mut buffer = LineBuffer::new(8 << 20);
        let mut left = 5 << 20;
        while left > 0 {
            let space = buffer.space();
            let count = space.len().min(left);
            space[..count].fill(b'a');
            left -= count;
            if left == 0 {
                space[count - 1] = b'\n';
            }
            buffer.advance(count);
        }
        assert!(matches!(buffer.next_line(), Some(FramedLine::Complete(_))));
        assert_eq!(buffer.space().len(), INITIAL_BUFFER_BYTES);
    }

    proptest! {
        #[test]
        fn every_split_gives_the_same_lines(
            input in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'a'), any::<u8>()], 0..400),
            pieces in proptest::collection::vec(1usize..50, 1..10),
            max_len in 1usize..60,
        ) {
            prop_assert_eq!(frame_in_pieces(&input, &pieces, max_len), frame_in_pieces(&input, &[usize::MAX], max_len));
        }
    }
}
