//! Standard input or output of this process, unbuffered and without the lock of the standard library. It also waits if
//! another process has made the stream non-blocking: terminals and sockets share that flag between processes.

use std::fs::File;
use std::io::{self, Read, Write};

pub(crate) struct StdStream(File);

#[cfg(unix)]
impl StdStream {
    pub(crate) fn new(stream: impl std::os::fd::AsFd) -> io::Result<Self> {
        Ok(StdStream(stream.as_fd().try_clone_to_owned()?.into()))
    }

    fn wait(&self, flags: rustix::event::PollFlags) -> io::Result<()> {
        rustix::event::poll(&mut [rustix::event::PollFd::new(&self.0, flags)], None)?;
        Ok(())
    }

    fn wait_readable(&self) -> io::Result<()> {
        self.wait(rustix::event::PollFlags::IN)
    }

    fn wait_writable(&self) -> io::Result<()> {
        self.wait(rustix::event::PollFlags::OUT)
    }
}

/// On Windows standard streams always block.
#[cfg(windows)]
impl StdStream {
    pub(crate) fn new(stream: impl std::os::windows::io::AsHandle) -> io::Result<Self> {
        Ok(StdStream(stream.as_handle().try_clone_to_owned()?.into()))
    }

    fn wait_readable(&self) -> io::Result<()> {
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn wait_writable(&self) -> io::Result<()> {
        Err(io::ErrorKind::WouldBlock.into())
    }
}

impl Read for StdStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait_readable()?,
                other => return other,
            }
        }
    }
}

impl Write for StdStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.0.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait_writable()?,
                other => return other,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_stream_that_does_not_block_is_waited_for() {
        let (near, far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let mut stream = StdStream::new(&near).unwrap();
        let message = vec![7; 4 << 20];
        let sent = message.clone();
        let peer = std::thread::spawn(move || {
            let mut far = far;
            far.write_all(b"hello").unwrap();
            let mut received = vec![0; sent.len()];
            far.read_exact(&mut received).unwrap();
            received == sent
        });
        let mut hello = [0; 5];
        stream.read_exact(&mut hello).unwrap();
        assert_eq!(&hello, b"hello");
        stream.write_all(&message).unwrap();
        assert!(peer.join().unwrap());
    }
}
