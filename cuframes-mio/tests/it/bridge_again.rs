//! What is sent again after a reconnect, whatever became of it the first time.

use std::time::Duration;

use crate::bridge::{anywhere, far_builder, far_subscriber, look, received, receiver};
use crate::bridge_raw::{RawEnd, begin, hello};
use crate::common::{Stream, until};
use cuframes_mio::bridge::{IntakeEvent, StreamReceiver};
use cuframes_mio::core::{Format, FrameMeta, RingSize};

fn small() -> FrameMeta {
    FrameMeta::new(Format::GRAY8, 64, 32).unwrap()
}

/// A sender of these frames, each with its publisher.
fn peer(stream: &Stream, receiver: &StreamReceiver, frames: &[(u64, u64)]) -> RawEnd {
    let mut peer = RawEnd::connect(receiver.endpoint());
    peer.say(&hello(stream.key.as_str()));
    send(&mut peer, frames);
    peer
}

fn send(peer: &mut RawEnd, frames: &[(u64, u64)]) {
    for (epoch, seq) in frames {
        peer.frame(&begin(*epoch, *seq, &small(), 2048), &[5; 2048]);
    }
}

/// The answers, when there are so many: `published`, or the whole text.
fn answers(peer: &mut RawEnd, receiver: &mut StreamReceiver, count: usize) -> Vec<(u64, String)> {
    until("all answers", || {
        peer.turn();
        received(receiver);
        peer.answers().len() >= count
    });
    let short = |text: String| match text.strip_prefix("published wire_ns=") {
        Some(_) => "published".to_string(),
        None => text,
    };
    peer.answers().into_iter().map(|(seq, _, text)| (seq, short(text))).collect()
}

#[test]
fn a_frame_that_was_left_out_is_not_said_to_be_there_when_it_is_sent_again() {
    let stream = Stream::new();
    let builder = receiver(&stream, &anywhere()).ring_size(RingSize::new(2).unwrap());
    let mut receiver = builder.listen().unwrap();
    let mut subscriber = far_subscriber(&stream);
    let mut near = peer(&stream, &receiver, &[(7, 1)]);
    let mut held = None;
    until("the first frame", || {
        near.turn();
        received(&mut receiver);
        held = look(&mut subscriber);
        held.is_some()
    });
    // The third one would go where the first one is.
    send(&mut near, &[(7, 2), (7, 3), (7, 4), (7, 5)]);
    let first = answers(&mut near, &mut receiver, 5);
    let texts: Vec<_> = first.iter().map(|(_, text)| text.as_str()).collect();
    let is_published: Vec<_> = texts.iter().map(|text| *text == "published").collect();
    assert_eq!(is_published, [true, true, false, true, false], "{texts:?}");
    // None of these answers has arrived, and meanwhile another publisher has come.
    drop(near);
    let frames = [(7, 3), (7, 4), (8, 1), (7, 2), (7, 3), (7, 5)];
    let mut near = peer(&stream, &receiver, &frames);
    drop((held, subscriber));
    let (out, had) = ("it was left out before", "published before");
    let expected = [(3, out), (4, had), (1, "published"), (2, had), (3, out), (5, out)];
    let told = answers(&mut near, &mut receiver, 6);
    assert_eq!(told, expected.map(|(seq, text)| (seq, text.to_string())));
}

#[test]
fn a_sender_that_leaves_while_its_stream_ends_for_the_next_publisher_has_nothing_published_twice() {
    let stream = Stream::new();
    let mut receiver = receiver(&stream, &anywhere()).listen().unwrap();
    let mut near = peer(&stream, &receiver, &[(7, 8), (7, 9)]);
    answers(&mut near, &mut receiver, 2);
    // Who has it open keeps it from ending at once.
    let subscriber = far_builder(&stream).connect().unwrap();
    send(&mut near, &[(8, 1)]);
    let mut heard = Vec::new();
    until("the end of the stream", || {
        near.turn();
        heard.extend(received(&mut receiver));
        heard.iter().any(|event| matches!(event, IntakeEvent::Ended { .. }))
    });
    // It connects again. Its connection before is not read, and would not be found to have ended by itself.
    drop(near);
    let mut near = peer(&stream, &receiver, &[(7, 9), (8, 1)]);
    until("the end of its connection", || {
        near.turn();
        heard.extend(receiver.next_event(Some(Duration::from_millis(1))).unwrap());
        heard.iter().any(|event| matches!(event, IntakeEvent::Left { .. }))
    });
    drop(subscriber);
    let told = answers(&mut near, &mut receiver, 2);
    assert_eq!(told, [(9, "published before".to_string()), (1, "published".to_string())]);
}
