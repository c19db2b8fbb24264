use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::io::{FdFlags, fcntl_getfd};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::*;
use crate::testing::{child, until};

fn null() -> File {
    File::open("/dev/null").unwrap()
}

/// Sends more descriptors with one byte than anybody makes room for.
fn send_too_many(socket: &UnixStream) {
    let null = null();
    let fds = [null.as_fd(); MAX_FDS + 8];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS + 8))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    sendmsg(socket, &[IoSlice::new(b"x")], &mut control, SendFlags::empty()).unwrap();
}

#[test]
fn a_descriptor_arrives_with_its_bytes_and_is_closed_on_exec() {
    let (a, b) = UnixStream::pair().unwrap();
    assert_eq!(send(&a, b"hello", Some(null().as_fd())).unwrap(), 5);
    let (mut buf, mut fds) = ([0; 16], VecDeque::new());
    assert_eq!(recv(&b, &mut buf, &mut fds).unwrap(), 5);
    assert_eq!((&buf[..5], fds.len()), (&b"hello"[..], 1));
    assert!(fcntl_getfd(&fds[0]).unwrap().contains(FdFlags::CLOEXEC));
}

#[test]
fn a_descriptor_may_come_early_but_never_late() {
    let (a, b) = UnixStream::pair().unwrap();
    send(&a, b"AAAA", None).unwrap();
    send(&a, b"BBBB", Some(null().as_fd())).unwrap();
    send(&a, b"CCCC", None).unwrap();
    let (mut buf, mut fds) = ([0; 16], VecDeque::new());
    assert_eq!(recv(&b, &mut buf, &mut fds).unwrap(), 8);
    assert_eq!((&buf[..8], fds.len()), (&b"AAAABBBB"[..], 1));
    assert_eq!(recv(&b, &mut buf, &mut fds).unwrap(), 4);
    assert_eq!(fds.len(), 1);
}

#[test]
fn several_descriptors_in_one_message_keep_their_order() {
    let (a, b) = UnixStream::pair().unwrap();
    let null = null();
    let both = [null.as_fd(), a.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&both)));
    sendmsg(&a, &[IoSlice::new(b"x")], &mut control, SendFlags::empty()).unwrap();
    let mut fds = VecDeque::new();
    recv(&b, &mut [0; 16], &mut fds).unwrap();
    let [first, second] =
        [0, 1].map(|i| fs::read_link(format!("/proc/self/fd/{}", fds[i].as_raw_fd())).unwrap());
    assert_eq!(first, Path::new("/dev/null"));
    assert!(second.to_str().unwrap().starts_with("socket:"));
}

#[test]
fn of_too_many_descriptors_the_first_are_taken_so_that_somebody_can_refuse_them() {
    let (a, b) = UnixStream::pair().unwrap();
    send_too_many(&a);
    let mut fds = VecDeque::new();
    assert_eq!(recv(&b, &mut [0; 16], &mut fds).unwrap(), 1);
    // The room is rounded up.
    assert!((MAX_FDS..MAX_FDS + 8).contains(&fds.len()), "{}", fds.len());
}

#[test]
fn descriptors_lost_for_want_of_our_own_are_an_error_and_those_that_came_are_closed() {
    let status = child("fdpass::tests::child_may_open_two_more", Path::new("")).status().unwrap();
    assert!(status.success());
}

#[test]
#[ignore = "needs a process of its own, whose limits it changes: see the test above"]
fn child_may_open_two_more() {
    let (a, b) = UnixStream::pair().unwrap();
    send_too_many(&a);
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(64), ..limit }).unwrap();
    let mut fillers: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    fillers.truncate(fillers.len() - 2);
    let mut fds: VecDeque<_> = [b.try_clone().unwrap().into()].into();
    let error = recv(&b, &mut [0; 16], &mut fds).unwrap_err();
    assert_eq!((error.kind(), fds.len()), (io::ErrorKind::InvalidData, 1));
    assert!(File::open("/dev/null").is_ok(), "one is left");
}

#[test]
fn nothing_to_do_is_would_block_and_a_peer_that_is_gone_raises_no_signal() {
    let (a, b) = UnixStream::pair().unwrap();
    b.set_nonblocking(true).unwrap();
    let mut fds = VecDeque::new();
    assert_eq!(recv(&b, &mut [0; 16], &mut fds).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    drop(a);
    // A process that another test is about to start has a copy until it is there.
    let mut received = None;
    until("the end of the connection", || {
        let again = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
        received =
            Some(recv(&b, &mut [0; 16], &mut fds)).filter(|received| !received.as_ref().is_err_and(again));
        received.is_some()
    });
    assert_eq!(received.unwrap().unwrap(), 0);
    assert_eq!(send(&b, b"x", None).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
}

#[test]
fn no_descriptor_leaks() {
    let status = child("fdpass::tests::child_counts_its_descriptors", Path::new("")).status().unwrap();
    assert!(status.success());
}

#[test]
#[ignore = "needs a process of its own: see no_descriptor_leaks"]
fn child_counts_its_descriptors() {
    let count = || fs::read_dir("/proc/self/fd").unwrap().count();
    let (a, b) = UnixStream::pair().unwrap();
    let (null, mut buf, mut fds) = (null(), [0; 16], VecDeque::new());
    let before = count();
    for _ in 0..1000 {
        send(&a, b"x", Some(null.as_fd())).unwrap();
        recv(&b, &mut buf, &mut fds).unwrap();
        assert!(fds.pop_front().is_some());
        send_too_many(&a);
        recv(&b, &mut buf, &mut fds).unwrap();
        fds.clear();
    }
    assert_eq!(count(), before);
}
