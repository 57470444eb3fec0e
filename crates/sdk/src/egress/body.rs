//! Bodies of outgoing requests and of their responses.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;

use super::error::{EgressError, EgressErrorKind};
use super::pool::{Pool, PooledConnection};
use super::target::ConnectionKey;

/// Maximum number of frames read from an abandoned response, to reuse its connection.
const MAX_DRAINED_FRAMES: usize = 4;

/// Body of an outgoing HTTP request, fully in memory. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Body(Bytes);

impl Body {
    /// Creates an empty request body.
    pub fn empty() -> Self {
        Body::default()
    }
}

impl<T: Into<Bytes>> From<T> for Body {
    fn from(bytes: T) -> Self {
        Body(bytes.into())
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let bytes = std::mem::take(&mut self.0);
        Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.len() as u64)
    }
}

/// Body of an HTTP response to an outgoing request, read as a stream.
///
/// It drives its connection itself, so no background task is needed. When it is read to the end, the connection is
/// returned to the pool; when it is dropped earlier, the connection is closed.
pub struct ResponseBody {
    incoming: Incoming,
    connection: Option<Box<PooledConnection>>,
    pool: Arc<Pool>,
    key: Arc<ConnectionKey>,
}

impl ResponseBody {
    pub(super) fn new(
        incoming: Incoming,
        connection: Box<PooledConnection>,
        pool: Arc<Pool>,
        key: Arc<ConnectionKey>,
    ) -> Self {
        let mut body = ResponseBody { incoming, connection: Some(connection), pool, key };
        if body.incoming.is_end_stream() {
            body.release();
        }
        body
    }

    /// Returns the next chunk of the response body; `None` at its end.
    pub async fn chunk(&mut self) -> Option<Result<Bytes, EgressError>> {
        loop {
            let frame = poll_fn(|cx| Pin::new(&mut *self).poll_frame(cx)).await?;
            match frame.map(Frame::into_data) {
                Ok(Ok(data)) => return Some(Ok(data)),
                Ok(Err(_trailers)) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// Reads the whole response body, up to `max` bytes.
    pub async fn read_to_end(mut self, max: usize) -> Result<Bytes, EgressError> {
        if self.incoming.size_hint().lower() > max as u64 {
            return Err(self.too_large(max));
        }
        let Some(first) = self.chunk().await.transpose()? else { return Ok(Bytes::new()) };
        // Most responses are a single chunk, which is not copied.
        let mut buffer: Option<BytesMut> = None;
        let mut length = first.len();
        while length <= max {
            let Some(next) = self.chunk().await.transpose()? else {
                return Ok(buffer.map_or(first, BytesMut::freeze));
            };
            length += next.len();
            buffer.get_or_insert_with(|| BytesMut::from(&*first)).extend_from_slice(&next);
        }
        Err(self.too_large(max))
    }

    fn too_large(&self, max: usize) -> EgressError {
        let text = format!("the response of `{}` is larger than {max} bytes", self.key.host);
        EgressError::new(EgressErrorKind::TooLarge, text)
    }

    /// Returns the HTTP connection to the pool once the body is read, if it can be reused.
    fn release(&mut self) {
        if let Some(line) = self.connection.take() {
            self.pool.put(&self.key, line);
        }
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = EgressError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, EgressError>>> {
        let this = self.get_mut();
        if let Some(line) = &mut this.connection {
            line.drive(cx);
        }
        let frame = std::task::ready!(Pin::new(&mut this.incoming).poll_frame(cx));
        if frame.is_none() || this.incoming.is_end_stream() {
            this.release();
        }
        Poll::Ready(frame.map(|frame| {
            frame.map_err(|error| {
                let text = format!("the response of `{}` is incomplete: {error}", this.key.host);
                EgressError::new(EgressErrorKind::Http, text).with_source(error)
            })
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl Drop for ResponseBody {
    /// Reads a few more frames of the body: often the rest has already arrived, and the connection can be reused.
    fn drop(&mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..MAX_DRAINED_FRAMES {
            if self.connection.is_none()
                || !matches!(Pin::new(&mut *self).poll_frame(&mut cx), Poll::Ready(Some(Ok(_))))
            {
                return;
            }
        }
    }
}

impl std::fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResponseBody").finish_non_exhaustive()
    }
}
