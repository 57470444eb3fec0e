//! Blocking stdio: one read, the responses to all complete lines in one buffer, one write.

use std::{
    io::{Read, Write},
    time::Duration,
};

use crate::responder::{App, ResponseKind};

pub fn serve(app: &App, pause: Option<Duration>) -> anyhow::Result<()> {
    let mut stdin = std::io::stdin().lock();
    let mut stdout = std::io::stdout().lock();
    let mut buffer = vec![0u8; 1 << 16];
    let (mut start, mut end) = (0, 0);
    let mut out = Vec::with_capacity(1 << 16);
    loop {
        if end == buffer.len() {
            if start > 0 {
                buffer.copy_within(start..end, 0);
                end -= start;
                start = 0;
            } else {
                buffer.resize(buffer.len() * 2, 0);
            }
        }
        let count = stdin.read(&mut buffer[end..])?;
        if count == 0 {
            return Ok(());
        }
        let mut searched = end;
        end += count;
        while let Some(length) = memchr::memchr(b'\n', &buffer[searched..end]) {
            if app.respond(&buffer[start..searched + length], &mut out) != ResponseKind::Nothing {
                out.push(b'\n');
            }
            start = searched + length + 1;
            searched = start;
        }
        if start == end {
            (start, end) = (0, 0);
        }
        if !out.is_empty() {
            if let Some(pause) = pause {
                std::thread::sleep(pause);
            }
            stdout.write_all(&out)?;
            stdout.flush()?;
            out.clear();
        }
    }
}
