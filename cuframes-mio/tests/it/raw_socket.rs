//! The raw end of a connection to a publisher or a subscriber of this process, for the conformance suites: one thread drives
//! both ends, so that nothing depends on who is faster.

use std::cell::RefCell;
use std::io::{IoSlice, IoSliceMut, PipeReader, pipe};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::common::LONG;
use cuframes_mio::{EventSource, Pollable, Turn};
use cuframes_testkit::conformance::session::{JUNK, Wire};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

/// What is tested, until it is dropped.
pub(crate) type Driven<T> = Rc<RefCell<Option<Pollable<T>>>>;

/// Makes the descriptor to be sent for a purpose other than [`JUNK`].
pub(crate) type Descriptor = Box<dyn Fn(u32) -> OwnedFd>;

/// The raw end.
pub(crate) struct RawSocket<T> {
    socket: UnixStream,
    driven: Driven<T>,
    descriptor: Descriptor,
    /// A pipe for each descriptor of no use: as long as it is open, so is its other end.
    junk: Vec<PipeReader>,
}

impl<T: EventSource> RawSocket<T> {
    pub(crate) fn new(socket: UnixStream, driven: &Driven<T>, descriptor: Descriptor) -> Self {
        socket.set_nonblocking(true).unwrap();
        Self { socket, driven: Rc::clone(driven), descriptor, junk: Vec::new() }
    }

    fn fd(&mut self, purpose: u32) -> OwnedFd {
        if purpose != JUNK {
            return (self.descriptor)(purpose);
        }
        let (reader, writer) = pipe().unwrap();
        self.junk.push(reader);
        writer.into()
    }
}

/// Lets it do what there is to do.
pub(crate) fn settle<T: EventSource>(driven: &Driven<T>) {
    while let Some(driven) = &mut *driven.borrow_mut()
        && driven.turn().unwrap() == Turn::Again
    {}
}

/// As [`settle`], after waiting up to `timeout` for it.
fn wait<T: EventSource>(driven: &Driven<T>, timeout: Duration) {
    if let Some(driven) = &mut *driven.borrow_mut() {
        let _ = driven.wait(Some(timeout)).unwrap();
    }
    settle(driven);
}

impl<T: EventSource> Wire for RawSocket<T> {
    fn send(&mut self, mut bytes: &[u8], fds: &[u32]) -> bool {
        let fds: Vec<OwnedFd> = fds.iter().map(|purpose| self.fd(*purpose)).collect();
        let mut fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
        let start = Instant::now();
        while !bytes.is_empty() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            assert!(fds.is_empty() || control.push(SendAncillaryMessage::ScmRights(&fds)));
            match sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL) {
                Ok(n) => {
                    bytes = &bytes[n..];
                    fds.clear();
                }
                Err(Errno::AGAIN) => {
                    assert!(start.elapsed() < LONG, "it neither reads nor closes");
                    wait(&self.driven, Duration::from_millis(1));
                }
                Err(Errno::PIPE | Errno::CONNRESET) => return false,
                Err(error) => panic!("{error}"),
            }
        }
        true
    }

    fn receive(&mut self, max: usize) -> (Vec<u8>, usize) {
        let start = Instant::now();
        let mut buffer = vec![0; max];
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut into = [IoSliceMut::new(&mut buffer)];
            match recvmsg(&self.socket, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Ok(received) => {
                    let rights = control.drain().map(|message| match message {
                        RecvAncillaryMessage::ScmRights(rights) => rights.count(),
                        _ => 0,
                    });
                    let fds = rights.sum();
                    buffer.truncate(received.bytes);
                    return (buffer, fds);
                }
                Err(Errno::AGAIN) => {
                    assert!(start.elapsed() < LONG, "it waits for something that never comes");
                    wait(&self.driven, Duration::from_secs(1));
                }
                // It closed with something unread.
                Err(Errno::CONNRESET) => return (Vec::new(), 0),
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        let start = Instant::now();
        settle(&self.driven);
        while let Some(left) = time.checked_sub(start.elapsed()).filter(|left| !left.is_zero()) {
            wait(&self.driven, left);
        }
    }

    fn junk_open(&mut self) -> usize {
        settle(&self.driven);
        let is_open = |reader: &&PipeReader| {
            let mut fds = [PollFd::new(*reader, PollFlags::empty())];
            poll(&mut fds, Some(&rustix::event::Timespec::default())).unwrap();
            !fds[0].revents().contains(PollFlags::HUP)
        };
        self.junk.iter().filter(is_open).count()
    }
}
