//! A child that was forked can't harm the subscriber or the publisher of its parent (P-20).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Stdio;
use std::time::Duration;

use cuframes_mio::core::wire::ShutdownReason;
use cuframes_mio::core::{Policy, RingSize};
use cuframes_mio::{
    ClaimAsError, Error, EventSource, FrameLost, Holder, Pollable, Publisher, Reconnect, Stalled, Subscriber,
    now,
};
use fork::Fork;
use mio::{Poll, Token};
use nix::sched::{CloneFlags, unshare};
use rustix::process::{Pid, WaitOptions, waitpid};

use crate::common::{LONG, Running, Stream, check, fill, meta, next, publish, told, until};
use crate::namespaces::inside;

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
                assert!(matches!(subscriber.wait_until_ready(LONG), Err(Error::Forked { .. })));
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

/// Runs `in_child` in a forked child, which must not fail.
fn in_a_child(in_child: impl FnOnce()) {
    let child = match fork::fork().unwrap() {
        Fork::Parent(pid) => pid,
        Fork::Child => {
            let outcome = catch_unwind(AssertUnwindSafe(in_child));
            std::process::exit(i32::from(outcome.is_err()));
        }
    };
    let (_, status) = waitpid(Pid::from_raw(child), WaitOptions::empty()).unwrap().unwrap();
    assert_eq!(status.exit_status(), Some(0));
}

#[test]
#[ignore = "forks: see a_forked_child_can_not_publish_and_does_not_end_the_stream"]
fn child_forks_with_a_served_publisher() {
    let (key, dir) = told();
    let mut publisher =
        Publisher::builder(key.clone(), meta()).run_dir(&dir).create().unwrap().serve().unwrap();
    let mut subscriber = Subscriber::builder(key).run_dir(&dir).connect().unwrap();
    publish(&mut publisher);
    check(&next(&mut subscriber));
    let claim = publisher.claim().unwrap();
    let mut before = Some(claim);
    in_a_child(|| {
        // It was taken before, and nobody shall see it.
        before.take().unwrap().commit();
    });
    drop(before);
    assert!(subscriber.try_next().unwrap().is_none());
    let mut aside = Some(publisher.claim().unwrap().set_aside());
    let mut publisher = Some(publisher);
    in_a_child(|| {
        let mut publisher = publisher.take().unwrap();
        assert!(matches!(publisher.claim(), Err(Error::Forked { .. })));
        assert!(matches!(publisher.claim_timeout(LONG), Err(Error::Forked { .. })));
        assert_eq!(publisher.try_claim().unwrap_err(), Stalled::FORKED);
        assert_eq!(publisher.try_claim_as(9).unwrap_err(), ClaimAsError::Stalled(Stalled::FORKED));
        assert!(matches!(publisher.claim_as_timeout(9, LONG), Err(Error::Forked { .. })));
        assert!(publisher.resume_claim(aside.take().unwrap()).is_none());
        drop(publisher);
    });
    let mut publisher = publisher.unwrap();
    let mut claim = publisher.resume_claim(aside.unwrap()).unwrap();
    fill(&mut claim);
    assert_eq!(claim.commit(), 2, "the parent's goes on");
    check(&next(&mut subscriber));
    publisher.shut_down(ShutdownReason::NORMAL).unwrap();
}

#[test]
#[ignore = "forks: see a_forked_child_can_not_publish_and_does_not_end_the_stream"]
fn child_forks_with_a_publisher_in_its_loop() {
    let (key, dir) = told();
    let publisher = Publisher::builder(key.clone(), meta()).run_dir(&dir).create().unwrap();
    let mut publisher = Pollable::new(publisher).unwrap();
    let connecting = std::thread::spawn(move || Subscriber::builder(key).run_dir(dir).connect().unwrap());
    while !connecting.is_finished() {
        let _ = publisher.wait(Some(Duration::from_millis(5))).unwrap();
    }
    let mut subscriber = connecting.join().unwrap();
    let mut publisher = Some(publisher);
    in_a_child(|| {
        let mut publisher = publisher.take().unwrap().into_inner();
        assert_eq!(publisher.try_claim(now()).unwrap_err(), Stalled::FORKED);
        let poll = Poll::new().unwrap();
        assert!(publisher.register(poll.registry(), Token(0)).is_err());
        assert!(publisher.handle_event(Token(0), now()).is_err());
        publisher.handle_timeout(now());
        publisher.shut_down(now(), ShutdownReason::NORMAL);
        assert!(matches!(publisher.serve(), Err(Error::Forked { .. })));
    });
    let mut publisher = publisher.unwrap();
    publisher.with(|publisher| publisher.try_claim(now()).unwrap().commit()).unwrap();
    assert_eq!(next(&mut subscriber).seq(), 1);
    assert!(subscriber.next(Duration::from_millis(20)).unwrap().is_none(), "nobody has said SHUTDOWN");
    drop(subscriber);
    // The loop still hears of everything.
    until("the subscriber to be gone", || {
        let _ = publisher.wait(Some(LONG)).unwrap();
        publisher.get_ref().members().count() == 0
    });
}

#[test]
fn a_forked_child_can_not_publish_and_does_not_end_the_stream() {
    for test in
        ["fork::child_forks_with_a_served_publisher", "fork::child_forks_with_a_publisher_in_its_loop"]
    {
        let stream = Stream::new();
        let status = Running::start(stream.child(test).stdout(Stdio::null())).end();
        assert!(status.success(), "{test}: {status}");
    }
}

#[test]
#[ignore = "needs a pid namespace of its own: see a_forked_child_with_the_same_process_id_does_not_remove_the_files"]
fn child_forks_one_that_has_its_number() {
    let (key, dir) = told();
    assert_eq!(std::process::id(), 1);
    let stream = Stream::of(key, &dir);
    let mut publisher = Some(stream.publisher(2, Policy::DROP_OLDEST).create().unwrap());
    unshare(CloneFlags::CLONE_NEWPID).unwrap();
    in_a_child(|| {
        assert_eq!(std::process::id(), 1);
        drop(publisher.take());
    });
    assert!(stream.socket().exists() && stream.region().exists());
    let another = Stream { key: stream.key.clone(), dir: tempfile::tempdir_in(&dir).unwrap() };
    for run_dir in [&stream, &another] {
        // Both locks are still ours.
        let error = run_dir.publisher(2, Policy::DROP_OLDEST).create().unwrap_err();
        assert!(matches!(error, Error::AlreadyExists { holder: Holder::Lock(_), .. }), "{error}");
    }
    drop(publisher);
    stream.assert_nothing_left();
}

/// As in a container whose first process publishes, and makes another container.
#[test]
fn a_forked_child_with_the_same_process_id_does_not_remove_the_files() {
    let stream = Stream::new();
    let Some(mut child) = inside(&stream, "true", "fork::child_forks_one_that_has_its_number") else {
        return;
    };
    let status = Running::start(child.stdout(Stdio::null())).end();
    assert!(status.success(), "{status}");
}
