//! HTTP response bodies that are produced chunk by chunk, such as exports and event streams.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::Bytes;
use http_body::Frame;
use linchpin_hub_core::{Error, Result};

/// Result of producing one chunk of a response body: the chunk and the state for the next one, or `None` at the end. An
/// error aborts the connection, so that the client does not mistake a partial body for a complete one.
pub(crate) type Chunk<S> = Result<Option<(Bytes, S)>>;

type ChunkFuture<S> = Pin<Box<dyn Future<Output = Chunk<S>> + Send>>;

/// Creates a body whose chunks are produced on demand.
pub(crate) fn chunked<S, F>(first: S, step: fn(S) -> F) -> Body
where
    S: Send + 'static,
    F: Future<Output = Chunk<S>> + Send + 'static,
{
    Body::new(ChunkedBody { step, pending: Some(Box::pin(step(first))) })
}

struct ChunkedBody<S, F> {
    step: fn(S) -> F,
    pending: Option<ChunkFuture<S>>,
}

impl<S, F> http_body::Body for ChunkedBody<S, F>
where
    S: Send + 'static,
    F: Future<Output = Chunk<S>> + Send + 'static,
{
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>>>> {
        let Some(pending) = &mut self.pending else { return Poll::Ready(None) };
        let chunk = ready!(pending.as_mut().poll(cx));
        self.pending = None;
        Poll::Ready(chunk.transpose().map(|chunk| {
            let (piece, rest) = chunk?;
            self.pending = Some(Box::pin((self.step)(rest)));
            Ok(Frame::data(piece))
        }))
    }
}

#[cfg(test)]
mod tests {
    use http_body::Body as _;

    use super::*;

    #[tokio::test]
    async fn pieces_come_one_after_another() {
        let mut body = chunked(3, |left: u8| async move {
            Ok((left > 0).then(|| (Bytes::from(left.to_string()), left - 1)))
        });
        let mut all = Vec::new();
        while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            all.extend_from_slice(&frame.unwrap().into_data().unwrap());
        }
        assert_eq!(all, b"321");
        assert!(std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await.is_none());
    }
}
