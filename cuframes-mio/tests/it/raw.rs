//! A peer that speaks bytes, and does with its descriptors what it likes.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::common::LONG;
use cuframes_mio::core::wire::MessageType;
use cuframes_mio::core::wire::fault::ErrorMessage;
use cuframes_mio::core::wire::framing::Decoder;
use cuframes_testkit::vectors::vector;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::IoSliceMut;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

/// A connection without a subscriber around it.
pub(crate) struct RawPeer {
    pub(crate) socket: UnixStream,
    /// What it was given: region, pool, an eventfd to wake the publisher, and one that wakes us.
    pub(crate) fds: Vec<OwnedFd>,
}

impl RawPeer {
    /// Connects, and says nothing.
    pub(crate) fn connect(socket: impl AsRef<Path>) -> Self {
        let socket = UnixStream::connect(socket).unwrap();
        socket.set_read_timeout(Some(LONG)).unwrap();
        Self { socket, fds: Vec::new() }
    }

    /// Subscribes with FD_PASSING, LEASE and WAKE_HINT; it never says that it sets `parked`, so it is woken for each frame.
    pub(crate) fn subscribe(socket: impl AsRef<Path>) -> Self {
        let mut peer = Self::connect(socket);
        peer.socket.write_all(&[vector("hello_req_features"), vector("subscribe_req")].concat()).unwrap();
        while peer.fds.len() < 4 {
            peer.receive();
        }
        peer
    }

    fn receive(&mut self) {
        let mut bytes = [0; 4096];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received =
            recvmsg(&self.socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC);
        assert_ne!(received.unwrap().bytes, 0, "the publisher has closed");
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                self.fds.extend(fds);
            }
        }
    }

    /// Whether it is not closed yet.
    pub(crate) fn is_connected(&self) -> bool {
        let mut polled = [PollFd::new(&self.socket, PollFlags::empty())];
        poll(&mut polled, Some(&Timespec::default())).unwrap() == 0
    }

    /// Everything that comes until it is closed.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        let mut chunk = [0; 4096];
        while let Ok(n @ 1..) = self.socket.read(&mut chunk) {
            rest.extend_from_slice(&chunk[..n]);
        }
        rest
    }
}

/// The last message of what came, which must be an ERROR.
pub(crate) fn error_in(answer: &[u8]) -> ErrorMessage {
    let (mut decoder, mut input, mut found) = (Decoder::new(), answer, None);
    while let Some(message) = decoder.next(&mut input).unwrap() {
        found = Some((message.message_type, message.payload.to_vec()));
    }
    let (message_type, payload) = found.expect("an answer");
    assert_eq!(message_type, MessageType::ERROR);
    ErrorMessage::decode(&payload).unwrap()
}

/// Makes an eventfd blocking, and fills it: a plain write to it would wait for ever.
pub(crate) fn stuff(bell: &OwnedFd) {
    empty(bell);
    let _ = rustix::io::write(bell, &(u64::MAX - 1).to_ne_bytes());
    fcntl_setfl(bell, OFlags::empty()).unwrap();
}

/// Makes an eventfd as it was at first.
pub(crate) fn empty(bell: &OwnedFd) {
    fcntl_setfl(bell, OFlags::NONBLOCK).unwrap();
    // It may have been rung before, or filled.
    let _ = rustix::io::read(bell, &mut [0; 8]);
}
