//! File descriptors that do not arrive: too many of them, or too few places for them (D-22).

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use crate::common::{LONG, STRICT, Stream, told, until};
use crate::raw::{RawPeer, error_in};
use cuframes_mio::core::Policy;
use cuframes_mio::core::error::ErrorCode;
use cuframes_mio::{Error, Subscriber};
use cuframes_testkit::vectors::vector;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn who_sends_more_descriptors_than_any_message_has_is_told_so_and_counted() {
    let stream = Stream::new();
    let publisher = stream.publisher(2, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
    let mut peer = RawPeer::connect(stream.socket());
    let null = std::fs::File::open("/dev/null").unwrap();
    let fds = [null.as_fd(); MOST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    let hello = vector("hello_req_features");
    sendmsg(&peer.socket, &[IoSlice::new(&hello)], &mut control, SendFlags::empty()).unwrap();
    let error = error_in(&peer.rest());
    assert_eq!(error.code, ErrorCode::PROTOCOL);
    assert!(error.message.contains("a file descriptor came that belongs to no message"), "{error:?}");
    // Whoever is counted is reported as well.
    until("it to be counted", || publisher.stats().refused.protocol == 1);
    stream.subscriber("eye", STRICT).connect().unwrap();
}

#[test]
fn a_subscriber_that_may_have_too_few_says_so_and_gets_in_with_one_more() {
    let stream = Stream::new();
    let mut publisher = stream.publisher(2, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
    publisher.claim().unwrap().commit();
    let status = stream.child("descriptors::child_subscribes_with_ever_more_descriptors").status();
    assert!(status.unwrap().success());
}

#[test]
#[ignore = "needs a process of its own, whose limits it changes: see the test above"]
fn child_subscribes_with_ever_more_descriptors() {
    let (key, dir) = told();
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let (mut failed, mut lost) = (0, 0);
    // More are open, which is no matter: the limit is about the next one.
    for limit in 3_u64.. {
        setrlimit(Resource::Nofile, Rlimit { current: Some(limit), maximum }).unwrap();
        match Subscriber::builder(key.clone()).run_dir(&dir).connect() {
            Ok(mut subscriber) => {
                assert!(subscriber.next(LONG).unwrap().is_some());
                break;
            }
            Err(error) => {
                assert_eq!(error.code(), ErrorCode::IO, "with {limit}: {error}");
                assert!(error.to_string().contains("(ulimit -n)"), "with {limit}: {error}");
                failed += 1;
                if let Error::DescriptorsLost { limit: told, .. } = error {
                    assert_eq!(told, Some(limit));
                    lost += 1;
                }
            }
        }
    }
    assert!(failed > lost && lost > 0, "of {failed} attempts {lost} lost descriptors");
}

/// Descriptors in one message that the kernel allows.
const MOST: usize = 253;
