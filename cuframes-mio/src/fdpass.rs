//! Bytes and file descriptors over a UNIX stream socket (D-22).
//!
//! Linux may deliver a descriptor early, together with bytes that were sent before its message, but never late. So
//! received descriptors go into a queue, and the message that needs one takes the first.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Sends as many of `bytes` as the socket takes, and says how many. `fd` leaves with the first of them, so it needs at
/// least one.
///
/// # Errors
/// `WouldBlock` if the socket takes nothing now; a peer that is gone is an error, not a SIGPIPE.
pub(crate) fn send(socket: impl AsFd, bytes: &[u8], fd: Option<BorrowedFd<'_>>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = fd.as_slice();
    if !fds.is_empty() {
        let fits = control.push(SendAncillaryMessage::ScmRights(fds));
        debug_assert!(fits, "the space is for one descriptor");
    }
    let sent = retry_on_intr(|| sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL))?;
    Ok(sent)
}

/// Receives bytes into `buf` and says how many, 0 at the end of the stream. Descriptors that come with them are added
/// to `fds`; they are closed on exec. Of a peer that sends more of them than any message needs only the first are taken.
///
/// # Errors
/// `WouldBlock` if there is nothing now. `InvalidData` if descriptors were lost on the way because this process may not
/// have more (`MSG_CTRUNC`); those that did arrive are closed.
pub(crate) fn recv(socket: impl AsFd, buf: &mut [u8], fds: &mut VecDeque<OwnedFd>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = retry_on_intr(|| {
        recvmsg(&socket, &mut [IoSliceMut::new(buf)], &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    let before = fds.len();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    // With all the room used the peer has sent too many, and what we have of them is enough to refuse it.
    if received.flags.contains(ReturnFlags::CTRUNC) && fds.len() - before < MAX_FDS {
        fds.truncate(before);
        return Err(io::Error::new(io::ErrorKind::InvalidData, "file descriptors from the peer were lost"));
    }
    Ok(received.bytes)
}

/// Room for descriptors in one receive. Our messages carry one each, and over a whole connection fewer go than this: more
/// are taken so that it is the session that refuses them, with the reason.
const MAX_FDS: usize = 32;

#[cfg(test)]
mod tests;
