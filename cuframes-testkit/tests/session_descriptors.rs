//! File descriptors come early, never late, and none is lost (D-22, D-26).

use std::rc::Rc;
use std::sync::Arc;

use cuframes_core::Instant;
use cuframes_core::error::{Problem, Violation};
use cuframes_core::session::{
    Closed, PublisherEvent, PublisherSession, Session, SubscriberEvent, SubscriberSession,
};
use cuframes_core::wire::control::EventFd;
use cuframes_core::wire::{FdPurpose, MessageType};
use cuframes_testkit::pair::{hello, offer, subscribed};
use cuframes_testkit::solo::{FEATURES, encoded, events, feed, subscriber_in};
use cuframes_testkit::vectors::vector;

fn event_fd(purpose: FdPurpose) -> Vec<u8> {
    encoded(|out| EventFd::single(purpose).encode(out))
}

fn arrived(events: &[SubscriberEvent<u32>]) -> Vec<(FdPurpose, u32)> {
    let fd = |event: &SubscriberEvent<u32>| match event {
        SubscriberEvent::Fd { purpose, fd, .. } => Some((*purpose, *fd)),
        _ => None,
    };
    events.iter().filter_map(fd).collect()
}

fn violation(field: &'static str, problem: Problem) -> SubscriberEvent<u32> {
    SubscriberEvent::Closed(Closed::Violation(Violation::new(MessageType::EVENT_FD, field, problem)))
}

#[test]
fn twenty_one_descriptors_may_come_before_the_first_of_their_messages_and_no_more() {
    let mut subscriber = subscriber_in("Ready");
    let piecemeal: Vec<u32> = (0..22).collect();
    feed(&mut subscriber, &[0x20], &piecemeal[..21]);
    assert_eq!(events(&mut subscriber), []);
    feed(&mut subscriber, &[0], &piecemeal[21..]);
    assert_eq!(events(&mut subscriber), [violation("fd", Problem::FdSurplus)]);
}

#[test]
fn a_descriptor_that_came_before_or_was_not_agreed_on_is_a_violation() {
    let mut subscriber = subscriber_in("Attaching");
    feed(&mut subscriber, &event_fd(FdPurpose::REGION), &[7]);
    feed(&mut subscriber, &event_fd(FdPurpose::REGION), &[8]);
    assert_eq!(events(&mut subscriber).last(), Some(&violation("index", Problem::Value { value: 0 })));
    let mut subscriber = subscriber_in("Attaching");
    feed(&mut subscriber, &event_fd(FdPurpose::CUDA_VMM), &[7]);
    assert_eq!(events(&mut subscriber), [violation("fd_purpose", Problem::Value { value: 4 })]);
}

#[test]
fn a_descriptor_of_an_unknown_purpose_is_closed_and_reported() {
    let mut subscriber = subscriber_in("Attaching");
    feed(&mut subscriber, &event_fd(FdPurpose(99)), &[7]);
    let unknown = SubscriberEvent::Unknown { message_type: MessageType::EVENT_FD, count: 1 };
    assert_eq!(events(&mut subscriber), [unknown]);
    feed(&mut subscriber, &event_fd(FdPurpose::WAKE_UP), &[8]);
    assert_eq!(arrived(&events(&mut subscriber)), [(FdPurpose::WAKE_UP, 8)]);
}

#[test]
fn no_descriptor_outlives_the_end_of_a_session() {
    let fd = Rc::new(());
    let fds = || [Rc::clone(&fd), Rc::clone(&fd)].into();
    let mut subscriber = SubscriberSession::new(Instant::ZERO, hello(FEATURES));
    subscriber.handle_bytes(Instant::ZERO, &vector("event_fd_wake")[..1], &mut fds());
    assert_eq!(Rc::strong_count(&fd), 3, "its message may still come");
    subscriber.handle_eof(Instant::ZERO);
    assert_eq!(Rc::strong_count(&fd), 1);
    subscriber.handle_bytes(Instant::ZERO, &vector("event_fd_wake")[1..], &mut fds());
    assert_eq!(Rc::strong_count(&fd), 1, "nothing is taken in after the end");

    let mut publisher = PublisherSession::new(Instant::ZERO, offer(FEATURES).into());
    let handshake = [vector("hello_req_features"), vector("subscribe_req")].concat();
    publisher.handle_bytes(Instant::ZERO, &handshake, &mut [].into());
    publisher.admit(Instant::ZERO, Ok(subscribed())).unwrap();
    publisher.offer_fd(EventFd::single(FdPurpose::WAKE_UP), Rc::clone(&fd)).unwrap();
    assert_eq!(Rc::strong_count(&fd), 2, "it waits to be sent");
    publisher.handle_eof(Instant::ZERO);
    assert_eq!(Rc::strong_count(&fd), 1);
}

#[test]
fn no_descriptor_is_kept_for_a_publisher_not_even_before_the_end_of_a_message() {
    let fd = Rc::new(());
    let mut publisher = PublisherSession::new(Instant::ZERO, Arc::new(offer(cuframes_core::Features::NONE)));
    publisher.handle_bytes(Instant::ZERO, &vector("hello_req_nv")[..10], &mut [Rc::clone(&fd)].into());
    assert_eq!(Rc::strong_count(&fd), 1);
    let problem = Problem::FdSurplus;
    let violation = Violation::new(MessageType::EVENT_FD, "fd", problem);
    assert_eq!(publisher.poll_event(), Some(PublisherEvent::Closed(Closed::Violation(violation))));
}
