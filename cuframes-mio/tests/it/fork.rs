//! A child that was forked can't harm the subscriber of its parent (P-20).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Stdio;

use cuframes_mio::core::RingSize;
use cuframes_mio::{Error, EventSource, FrameLost, Publisher, Reconnect, Subscriber, now};
use fork::Fork;
use mio::{Poll, Token};
use rustix::process::{Pid, WaitOptions, waitpid};

use crate::common::{LONG, Running, Stream, check, meta, next, publish, told, until};

#[test]
#[ignore = "forks: see a_forked_child_hears_that_the_subscriber_is_not_its_own_and_changes_nothing"]
fn child_forks() {
    let (key, dir) = told();
    let builder = Publisher::builder(key.clone(), meta()).run_dir(&dir).ring_size(RingSize::new(1).unwrap());
    let mut publisher = builder.create().unwrap().serve().unwrap();
    let builder = Subscriber::builder(key).run_dir(&dir);
    let mut subscriber = builder.clone().reconnect(Reconnect::default()).connect().unwrap();
    let poll = Poll::new().unwrap();
    subscriber.register(poll.registry(), Token(0)).unwrap();
    publish(&mut publisher);
    let frame = next(&mut subscriber);
    let child = match fork::fork().unwrap() {
        Fork::Parent(pid) => pid,
        Fork::Child => {
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                check(&frame);
                assert_eq!(frame.release(), Err(FrameLost::Evicted));
                for _ in 0..2 {
                    let error = subscriber.next(LONG).unwrap_err();
                    assert!(matches!(error, Error::Forked { .. }), "{error}");
                }
                assert!(subscriber.try_next().is_err() && subscriber.poll_next().is_err());
                assert!(subscriber.handle_event(Token(0), now()).is_err());
                assert!(subscriber.register(poll.registry(), Token(0)).is_err());
                subscriber.handle_timeout(now());
                drop(subscriber);
                check(&next(&mut builder.connect().unwrap()));
            }));
            std::process::exit(i32::from(outcome.is_err()));
        }
    };
    let (_, status) = waitpid(Pid::from_raw(child), WaitOptions::empty()).unwrap().unwrap();
    assert_eq!(status.exit_status(), Some(0));
    // The frame is still ours, and so are the connection and its registration.
    check(&frame);
    assert_eq!(publisher.try_claim().unwrap_err().waiting_for_leases, 0b10);
    frame.release().unwrap();
    publish(&mut publisher);
    assert_eq!(next(&mut subscriber).seq(), 2);
    until("the child's own subscriber to be gone", || publisher.members().len() == 1);
    assert_eq!(subscriber.stats().reconnects, 0);
}

#[test]
fn a_forked_child_hears_that_the_subscriber_is_not_its_own_and_changes_nothing() {
    let stream = Stream::new();
    let status = Running::start(stream.child("fork::child_forks").stdout(Stdio::null())).end();
    assert!(status.success(), "{status}");
}
