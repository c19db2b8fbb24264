//! Publishers and subscribers that are killed: the others notice and go on, and nothing of the dead stays in the way.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::{LONG, NEWEST, STRICT, Stream, check, fill, meta, publish, told, until};
use crate::other::{Other, tell};
use crate::raw::RawPeer;
use cuframes_mio::core::wire::MessageType;
use cuframes_mio::core::wire::framing::Decoder;
use cuframes_mio::core::{Gone, Policy};
use cuframes_mio::{Error, Pollable, Publisher, Subscriber};
use cuframes_testkit::vectors::vector;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

#[test]
#[ignore = "needs a process of its own: started by the tests below, and killed"]
fn child_publishes() {
    let (key, dir) = told();
    let mut publisher = Publisher::builder(key, meta()).run_dir(dir).create().unwrap().serve().unwrap();
    tell("ready");
    loop {
        let mut claim = publisher.claim().unwrap();
        fill(&mut claim);
        claim.commit();
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
#[ignore = "needs a process of its own: started by the tests below, and killed"]
fn child_holds_a_frame() {
    let (key, dir) = told();
    let mut subscriber = Subscriber::builder(key).mode(STRICT).run_dir(dir).connect().unwrap();
    tell("ready");
    let frame = subscriber.next(LONG).unwrap().unwrap();
    tell("holds");
    thread::sleep(LONG);
    drop(frame);
}

#[test]
fn the_next_publisher_takes_over_from_one_that_was_killed() {
    let stream = Stream::new();
    for _ in 0..3 {
        let other = Other::start("processes::child_publishes", &stream);
        let mut subscriber = stream.subscriber("eye", NEWEST).connect().unwrap();
        check(&subscriber.next(LONG).unwrap().expect("a frame in time"));
        other.kill();
        assert!(stream.socket().exists() && stream.region().exists(), "a killed publisher leaves these");
        let gone = loop {
            match subscriber.next(LONG) {
                Ok(frame) => check(&frame.expect("a frame in time")),
                Err(Error::Gone { gone, .. }) => break gone,
                Err(error) => panic!("{error}"),
            }
        };
        assert_eq!(gone, Gone::Disconnected);
        let error = stream.subscriber("eye", NEWEST).connect().unwrap_err();
        assert!(matches!(error, Error::NotFound { .. }), "{error}");
    }
    let mut publisher = stream.publisher(2, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
    let mut subscriber = stream.subscriber("eye", NEWEST).connect().unwrap();
    publish(&mut publisher);
    check(&subscriber.next(LONG).unwrap().expect("a frame in time"));
    drop(subscriber);
    drop(publisher);
    stream.assert_nothing_left();
}

#[test]
fn forty_subscribers_killed_with_a_frame_in_their_hands_leave_no_trace() {
    let stream = Stream::new();
    // As many slots as leases: a lease that stayed would stall the claim.
    let mut publisher = stream.publisher(1, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
    publish(&mut publisher);
    for _ in 0..40 {
        let mut other = Other::start("processes::child_holds_a_frame", &stream);
        other.wait_for_line("holds");
        assert!(publisher.try_claim().is_err());
        other.kill();
        publish(&mut publisher);
        until("the subscriber to be gone", || publisher.members().is_empty());
    }
    // Nothing stays quarantined, because the processes are gone.
    until("bit 1 to be free", || {
        stream.subscriber("after", NEWEST).connect().unwrap().bit().unwrap().get() == 1
    });
}

#[test]
fn under_strict_wait_a_killed_subscriber_does_not_stop_the_others() {
    let stream = Stream::new();
    let mut publisher = stream.publisher(2, Policy::STRICT_WAIT).create().unwrap().serve().unwrap();
    let mut good = stream.subscriber("good", STRICT).connect().unwrap();
    let mut other = Other::start("processes::child_holds_a_frame", &stream);
    publisher.wait_for(2, LONG).unwrap();
    publish(&mut publisher);
    other.wait_for_line("holds");
    let reader = thread::spawn(move || {
        for expected in 1..=20 {
            let frame = good.next(LONG).unwrap().expect("a frame in time");
            check(&frame);
            assert_eq!((frame.seq(), frame.lost()), (expected, 0));
        }
    });
    publish(&mut publisher);
    other.kill();
    for _ in 0..18 {
        publish(&mut publisher);
    }
    reader.join().unwrap();
    assert!(publisher.members().iter().all(|member| member.name.as_str() == "good"));
}

/// Makes this thread hear of every peer that its process was reaped; `false` if that can't be done here.
fn every_peer_is_gone() -> bool {
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let option = u64::try_from(libc::SO_PEERPIDFD).unwrap();
    let asked = SeccompCondition::new(2, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, option).unwrap();
    let rules = [(libc::SYS_getsockopt, vec![SeccompRule::new(vec![asked]).unwrap()])].into();
    let gone = SeccompAction::Errno(libc::ESRCH.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, gone, arch).unwrap();
    seccompiler::apply_filter(&BpfProgram::try_from(filter).unwrap()).is_ok()
}

/// Its process had a child, which has a copy of the socket.
#[test]
fn who_is_dead_before_it_is_admitted_does_not_become_a_subscriber() {
    let stream = Stream::new();
    let publisher = stream.publisher(2, Policy::DROP_OLDEST).create().unwrap();
    let mut peer = RawPeer::connect(stream.socket());
    peer.socket.write_all(&[vector("hello_req_features"), vector("subscribe_req")].concat()).unwrap();
    let closed = AtomicBool::new(false);
    thread::scope(|scope| {
        let serving = scope.spawn(|| {
            let publisher = every_peer_is_gone().then_some(publisher)?;
            let mut publisher = Pollable::new(publisher).unwrap();
            until("the connection to be closed", || {
                let _ = publisher.wait(Some(Duration::from_millis(1))).unwrap();
                closed.load(Ordering::Acquire)
            });
            Some(publisher.get_ref().stats())
        });
        let answer = peer.rest();
        closed.store(true, Ordering::Release);
        let Some(stats) = serving.join().unwrap() else {
            println!("SKIPPED: system calls of a thread can't be refused here");
            return;
        };
        assert_eq!((stats.joined, stats.refused.no_descriptors, stats.accept_failures), (0, 0, 0));
        let mut input = &answer[..];
        let mut decoder = Decoder::new();
        assert_eq!(decoder.next(&mut input).unwrap().unwrap().message_type, MessageType::HELLO_RESP);
        assert!(input.is_empty(), "{answer:?}");
    });
}
