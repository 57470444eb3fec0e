//! Target for event streams: the events do not depend on the chunks, and none exceeds the maximum size.

use linchpin::__private::http::read_events;

/// Reads a stream. The first three bytes are the maximum event size and two alternating chunk sizes; the rest is the
/// stream.
pub fn events(data: &[u8]) {
    let Some((&[max, small, large], stream)) = data.split_first_chunk::<3>() else { return };
    let max = usize::from(max);
    let expected = read_events([stream], max);
    let mut rest = stream;
    let mut chunks = Vec::new();
    for size in [1 + usize::from(small), 1 + 16 * usize::from(large)].into_iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (chunk, later) = rest.split_at(size.min(rest.len()));
        chunks.push(chunk);
        rest = later;
    }
    assert_eq!(read_events(chunks, max), expected, "in pieces");
    assert_eq!(read_events(stream.chunks(1), max), expected, "byte by byte");
    for (id, has_id, event, data) in &expected.events {
        assert!(data.len() <= max && event.len() <= max.max("message".len()), "an event over {max}");
        assert!(
            id.as_ref().is_none_or(|id| !id.is_empty() && !id.contains(['\0', '\r', '\n'])),
            "{id:?} {has_id}"
        );
        assert!(!data.contains('\r') && !event.is_empty() && !event.contains(['\r', '\n']));
    }
}
