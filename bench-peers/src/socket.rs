//! [`UnixSocket`]: frames copied through a Unix stream socket of each reader's own, as one writes it without a library.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use cuframes_bench::system::{Failure, Setup, System, Wait};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{set_socket_send_buffer_size, socket_send_buffer_size};

/// One stream socket a reader. A frame goes as its length (u64, little-endian) and its bytes, by one `writev` while it fits
/// the socket's buffer, and comes by one `readv`. Nothing is ever lost: with a full buffer the writer waits, strict or not.
#[derive(Debug)]
pub struct UnixSocket;

impl System for UnixSocket {
    const NAME: &'static str = "unix-socket";

    type Writer = SocketWriter;
    type Reader = SocketReader;

    fn writer(setup: &Setup) -> Result<SocketWriter, Failure> {
        let listener = UnixListener::bind(path(setup))?;
        listener.set_nonblocking(true)?;
        Ok(SocketWriter {
            listener,
            readers: Vec::with_capacity(setup.readers),
            frame: vec![0; setup.frame_bytes],
        })
    }

    fn wait_for_readers(writer: &mut SocketWriter, setup: &Setup, timeout: Duration) -> Result<(), Failure> {
        let until = Instant::now() + timeout;
        while writer.readers.len() < setup.readers {
            match writer.listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false)?;
                    // As many frames on the way as the others keep, where the kernel's limit lets it be so.
                    let enough = setup.frame_bytes.saturating_mul(setup.ring_size.into());
                    if enough > socket_send_buffer_size(&stream)? {
                        set_socket_send_buffer_size(&stream, enough)?;
                    }
                    writer.readers.push(stream);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(
                            format!("{} of {} readers came", writer.readers.len(), setup.readers).into()
                        );
                    }
                    poll(
                        &mut [PollFd::new(&writer.listener, PollFlags::IN)],
                        Some(&Timespec::try_from(left)?),
                    )?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn write(writer: &mut SocketWriter, fill: impl FnOnce(&mut [u8])) -> Result<(), Failure> {
        fill(&mut writer.frame);
        let head = u64::try_from(writer.frame.len())?.to_le_bytes();
        for stream in &mut writer.readers {
            let mut parts = [IoSlice::new(&head), IoSlice::new(&writer.frame)];
            let mut left = parts.as_mut_slice();
            while !left.is_empty() {
                match stream.write_vectored(left) {
                    Ok(0) => return Err(io::Error::from(ErrorKind::WriteZero).into()),
                    Ok(n) => IoSlice::advance_slices(&mut left, n),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    fn reader(setup: &Setup, _index: usize) -> Result<SocketReader, Failure> {
        Ok(SocketReader {
            stream: UnixStream::connect(path(setup))?,
            head: [0; 8],
            frame: vec![0; setup.frame_bytes],
            come: 0,
            waits: None,
        })
    }

    fn read<T>(
        reader: &mut SocketReader,
        wait: Wait,
        look: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>, Failure> {
        reader.set_wait(wait)?;
        while reader.come < reader.head.len() + reader.frame.len() {
            let mut parts = [IoSliceMut::new(&mut reader.head), IoSliceMut::new(&mut reader.frame)];
            let mut left = parts.as_mut_slice();
            IoSliceMut::advance_slices(&mut left, reader.come);
            match reader.stream.read_vectored(left) {
                Ok(0) => return Err("the stream has ended".into()),
                Ok(n) => reader.come += n,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // A time limit that has passed is told like a socket that would block.
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
        reader.come = 0;
        if u64::from_le_bytes(reader.head) != u64::try_from(reader.frame.len())? {
            return Err("a frame of another length".into());
        }
        Ok(Some(look(&reader.frame)))
    }
}

/// The writer's end: a connected socket for each reader, and the buffer where frames are made.
#[derive(Debug)]
pub struct SocketWriter {
    listener: UnixListener,
    readers: Vec<UnixStream>,
    frame: Vec<u8>,
}

/// A reader's end, and as much of the next frame as has come.
#[derive(Debug)]
pub struct SocketReader {
    stream: UnixStream,
    head: [u8; 8],
    frame: Vec<u8>,
    /// Bytes of head and frame that are here.
    come: usize,
    /// How the socket waits now; none before it was told.
    waits: Option<Wait>,
}

impl SocketReader {
    /// Makes the socket wait so, with a system call only where that changes.
    fn set_wait(&mut self, wait: Wait) -> io::Result<()> {
        if self.waits == Some(wait) {
            return Ok(());
        }
        match wait {
            Wait::Spin => self.stream.set_nonblocking(true)?,
            Wait::Block(limit) => {
                self.stream.set_nonblocking(false)?;
                // The shortest limit there is: none at all would mean for ever.
                self.stream.set_read_timeout(Some(limit.max(Duration::from_micros(1))))?;
            }
        }
        self.waits = Some(wait);
        Ok(())
    }
}

fn path(setup: &Setup) -> PathBuf {
    setup.dir.join(format!("{}.socket", setup.stream))
}
