//! What a receiver and a sender take at most: events in a turn, frames, slots, and time.

use std::net::TcpListener;
use std::time::Duration;

use crate::bridge::{
    anywhere, assert_gone, drive, far, numbers, offer, publisher, received, receiver, sender, sent,
    strict_sender,
};
use crate::bridge_raw::{RawEnd, begin, hello};
use crate::common::{Stream, publish, until};
use cuframes_bridge::wire::{Message, SnapshotId};
use cuframes_mio::bridge::{Fate, IntakeEvent, StreamSender};
use cuframes_mio::core::{Format, FrameMeta, Policy};

#[test]
fn a_sender_that_never_stops_to_send_leaves_others_their_turn_and_all_is_told() {
    const FRAMES: usize = 5000;
    let stream = Stream::new();
    let mut receiver = receiver(&stream, &anywhere()).listen().unwrap();
    let mut peer = RawEnd::connect(receiver.endpoint());
    let small = FrameMeta::new(Format::GRAY8, 64, 32).unwrap();
    peer.say(&hello(stream.key.as_str()));
    for _ in 0..FRAMES {
        peer.frame(&begin(7, 1, &small, 0), &[]);
    }
    let (mut published, mut had) = (Vec::new(), 0);
    until("all answers", || {
        peer.turn();
        let heard = received(&mut receiver);
        published.extend(numbers(&heard));
        let is_had =
            |event: &&IntakeEvent| matches!(event, IntakeEvent::NotPublished { fate: Fate::Had, .. });
        had += heard.iter().filter(is_had).count();
        peer.answers().len() == FRAMES
    });
    assert_eq!((published, had), (vec![1], FRAMES - 1));
}

#[test]
fn of_so_many_frames_that_are_wanted_none_more_is_published_and_the_next_receiver_gets_the_others() {
    let stream = Stream::new();
    let mut publisher = publisher(&stream, 8, Policy::STRICT_WAIT);
    let mut first = receiver(&stream, &anywhere()).frames(3).listen().unwrap();
    let endpoint = first.endpoint().clone();
    let mut sender = strict_sender(&stream, &first);
    let (mut arrived, mut idle) = (Vec::new(), 0);
    while idle < 50 && publisher.stats().frames < 100 {
        let heard = received(&mut first);
        let is_idle = offer(&mut publisher).is_none() && heard.is_empty() && sent(&mut sender).is_empty();
        idle = if is_idle { idle + 1 } else { 0 };
        arrived.extend(numbers(&heard));
    }
    assert_eq!(arrived, [1, 2, 3]);
    assert_eq!((sender.stats().delivered, sender.stats().refused), (3, 0));
    // It has a full window on its way: what was not wanted is not lost.
    assert!(publisher.stats().frames > 8);
    drop(first);
    assert_gone(&far(&stream));
    let mut second = receiver(&stream, &endpoint).listen().unwrap();
    let newest = publisher.stats().frames;
    drive(&mut sender, &mut second, |_, heard| {
        arrived.extend(numbers(heard));
        arrived.last() == Some(&newest)
    });
    assert_eq!(arrived, (1..=newest).collect::<Vec<_>>());
}

#[test]
fn the_last_slot_of_a_publisher_is_not_taken_for_a_frame_that_is_asked_for() {
    let stream = Stream::new();
    let mut publisher = publisher(&stream, 4, Policy::DROP_OLDEST);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = format!("tcp://{}", listener.local_addr().unwrap()).parse().unwrap();
    let mut sender = sender(&stream, StreamSender::builder(to).strict().window(3));
    let mut found = None;
    until("the sender", || {
        sent(&mut sender);
        found = RawEnd::accept(&listener);
        found.is_some()
    });
    // It answers about no frame, so three are on their way.
    let mut peer = found.unwrap();
    let newest = (0..4).map(|_| publish(&mut publisher)).last().unwrap();
    let mut turn = |peer: &mut RawEnd, is_so: &dyn Fn(&RawEnd) -> bool| {
        until("the sender", || {
            sent(&mut sender);
            peer.turn();
            is_so(peer)
        });
    };
    let begun = |message: &&Message| matches!(message, Message::LoadBegin(_));
    turn(&mut peer, &|peer| peer.heard.iter().filter(begun).count() == 3);
    let mut ask = |seq: u64| {
        peer.heard.clear();
        let request = 1 << 63 | seq;
        peer.say(&Message::SaveRequest(SnapshotId { request, ..SnapshotId::default() }));
        let answer = |message: &Message| match message {
            Message::Begin(begin) => Some((begin.status, begin.message.clone())),
            _ => None,
        };
        turn(&mut peer, &|peer| peer.heard.iter().any(|message| answer(message).is_some()));
        peer.heard.iter().find_map(answer).unwrap()
    };
    assert_eq!(ask(2), (0, String::new()), "it is on its way");
    let (status, why) = ask(newest);
    let expected = format!(
        "stream {}: frame {newest} is not on its way, and of its 4 slots only one is left, which its publisher needs",
        stream.key
    );
    assert_eq!((status, why), (1, expected));
    assert!(publisher.try_claim().is_ok());
}

#[test]
fn a_link_may_stand_still_for_longer_than_the_system_can_say() {
    let stream = Stream::new();
    let mut publisher = publisher(&stream, 4, Policy::STRICT_WAIT);
    let month = Duration::from_secs(30 * 24 * 3600);
    let mut receiver = receiver(&stream, &anywhere()).stall(month).listen().unwrap();
    let settings = StreamSender::builder(receiver.endpoint().clone()).strict().stall(month);
    let mut sender = sender(&stream, settings);
    let seq = publish(&mut publisher);
    drive(&mut sender, &mut receiver, |_, heard| numbers(heard) == [seq]);
}
