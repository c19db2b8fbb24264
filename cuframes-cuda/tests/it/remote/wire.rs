//! What goes over the socket between a test and its processes: a length, descriptors with it, and JSON.

use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

/// What an importer is asked to do. Numbers are those that it gave out.
#[derive(Serialize, Deserialize, Debug)]
pub(super) enum Request {
    Stream,
    DropStream(u64),
    OpenEvent(Vec<u8>),
    DropEvent(u64),
    Wait { stream: u64, event: u64 },
    Synchronize { stream: u64, millis: u64 },
    Notify { stream: u64 },
    OpenMem { slot: Slot, len: u64 },
    OpenRing { backend: u64, slots: Vec<Slot>, len: u64 },
    Pointer(u64),
    Copy { stream: u64, mapping: u64, len: usize, millis: u64 },
    Close(u64),
    DropMapping(u64),
}

/// A slot's memory.
#[derive(Serialize, Deserialize, Debug)]
pub(crate) struct Slot {
    pub(super) handle: Vec<u8>,
    pub(super) offset: u64,
}

/// What an importer answers.
#[derive(Serialize, Deserialize, Debug)]
pub(super) enum Reply {
    Done,
    Number(u64),
    Numbers(Vec<u64>),
    Bytes(Vec<u8>),
    Failed { call: String, code: i32, native: Option<i32>, text: String },
}

/// Sends a value with descriptors.
pub(crate) fn send(
    mut socket: &UnixStream,
    value: &impl Serialize,
    fds: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let json = serde_json::to_vec(value)?;
    let len = u32::try_from(json.len()).unwrap().to_le_bytes();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
    }
    let sent = sendmsg(socket, &[IoSlice::new(&len)], &mut control, SendFlags::NOSIGNAL)?;
    assert_eq!(sent, len.len());
    socket.write_all(&json)
}

/// Receives a value with descriptors, or nothing if the other side has closed.
pub(crate) fn receive<T: for<'de> Deserialize<'de>>(
    mut socket: &UnixStream,
) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut len = [0; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut slices = [IoSliceMut::new(&mut len)];
    let received = recvmsg(socket, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC)?.bytes;
    if received == 0 {
        return Ok(None);
    }
    assert_eq!(received, len.len());
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    let mut json = vec![0; usize::try_from(u32::from_le_bytes(len)).unwrap()];
    socket.read_exact(&mut json)?;
    Ok(Some((serde_json::from_slice(&json)?, fds)))
}

const MAX_FDS: usize = 32;
