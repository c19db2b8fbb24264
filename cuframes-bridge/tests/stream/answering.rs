//! Senders that answer about a frame on demand as they should not.

use std::time::Duration;

use cuframes_bridge::stream::{LinkFault, Receiver, ReceiverEvent};
use cuframes_bridge::wire::{Begin, Chunk, Done, FrameType, Message, SnapshotId};
use cuframes_core::streams::{ConnId, Machine};

use crate::hostile::{NOW, greeted, load, say};

const REQUEST: u64 = 1 << 63 | 1;

fn begin() -> Message {
    Message::Begin(Begin { id: SnapshotId { request: REQUEST, ..load().id }, ..load() })
}

fn done() -> Message {
    Message::Done(Done { request: REQUEST, status: 0, message: String::new() })
}

/// A receiver that has asked for frame 1.
fn asking() -> (Receiver<Vec<u8>>, ConnId) {
    let (mut receiver, conn) = greeted();
    receiver.fetch(NOW, conn, Some(1));
    (receiver, conn)
}

fn data(receiver: &mut Receiver<Vec<u8>>, conn: ConnId) {
    for bytes in [768_u32, 1] {
        say(receiver, conn, &[Message::Chunk(Chunk { request: REQUEST, bytes })]);
        receiver.handle_bytes(NOW, conn, &vec![1; bytes as usize]);
    }
}

/// What was told, in short: offers are taken, and what is complete is settled.
fn told(receiver: &mut Receiver<Vec<u8>>) -> Vec<String> {
    let mut told = Vec::new();
    while let Some(event) = receiver.poll_event() {
        told.extend(match event {
            ReceiverEvent::Offered { conn, .. } => {
                receiver.receive(NOW, conn, vec![0; 768]).unwrap();
                None
            }
            ReceiverEvent::Complete { conn, frame } => {
                assert!(frame.is_fetched && frame.is_whole);
                receiver.settle(NOW, conn, None);
                Some("complete".to_string())
            }
            ReceiverEvent::NotFetched { why, .. } => Some(why),
            ReceiverEvent::Left { fault, .. } => Some(format!("{fault:?}")),
            other => panic!("{other:?}"),
        });
    }
    told
}

#[test]
fn the_last_word_before_the_frame_is_there_ends_the_connection_and_whoever_asked_hears_it() {
    let (mut receiver, conn) = asking();
    say(&mut receiver, conn, &[begin(), done()]);
    let fault = format!("{:?}", Some(LinkFault::Unexpected(FrameType::DONE)));
    assert_eq!(told(&mut receiver), ["the connection to the sender is lost", &fault]);
    // Also when it is all there but the verdict.
    let (mut receiver, conn) = asking();
    say(&mut receiver, conn, &[begin(), Message::Chunk(Chunk { request: REQUEST, bytes: 768 })]);
    assert_eq!(told(&mut receiver), [""; 0]);
    receiver.handle_bytes(NOW, conn, &[5; 768]);
    say(&mut receiver, conn, &[done()]);
    assert_eq!(told(&mut receiver), ["the connection to the sender is lost", &fault]);
}

#[test]
fn a_frame_whose_last_word_never_comes_does_not_keep_the_next_one_from_being_asked_for() {
    let (mut receiver, conn) = asking();
    say(&mut receiver, conn, &[begin()]);
    assert_eq!(told(&mut receiver), [""; 0]);
    data(&mut receiver, conn);
    assert_eq!(told(&mut receiver), ["complete"]);
    let due = receiver.poll_timeout().expect("the last word is due");
    assert_eq!(due, NOW + Duration::from_secs(10));
    receiver.handle_timeout(due);
    // It has come, so nobody is told that it has not.
    let fault = LinkFault::Stalled(Duration::from_secs(10));
    assert_eq!(told(&mut receiver), [format!("{:?}", Some(fault))]);
}

#[test]
fn the_last_word_after_the_frame_is_the_end_of_it_and_of_nothing_else() {
    let (mut receiver, conn) = asking();
    say(&mut receiver, conn, &[begin()]);
    assert_eq!(told(&mut receiver), [""; 0]);
    data(&mut receiver, conn);
    assert_eq!(told(&mut receiver), ["complete"]);
    say(&mut receiver, conn, &[done()]);
    assert_eq!(receiver.poll_timeout(), None);
    receiver.fetch(NOW, conn, Some(1));
    assert_eq!(told(&mut receiver), [""; 0], "it may be asked for again");
    // One answer for each request.
    say(&mut receiver, conn, &[begin()]);
    assert_eq!(told(&mut receiver), [""; 0]);
    data(&mut receiver, conn);
    say(&mut receiver, conn, &[begin()]);
    let fault = format!("{:?}", Some(LinkFault::Unexpected(FrameType::SNAPSHOT_BEGIN)));
    assert_eq!(told(&mut receiver), ["complete", &fault]);
}
