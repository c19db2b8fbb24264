//! Peers that break the rules: only their own connection ends.

use std::time::Duration;

use cuframes_bridge::stream::{
    Fate, InfoError, LinkFault, Receiver, ReceiverConfig, ReceiverEvent, SenderEvent,
};
use cuframes_bridge::wire::{Begin, Chunk, Done, FrameType, Header, Hello, Message, SnapshotId, token_hash};
use cuframes_core::streams::{ConnId, Machine};
use cuframes_core::{FrameMeta, Instant};

use crate::world::{World, meta};

pub(crate) const NOW: Instant = Instant::from_nanos(1_000);

/// A receiver, and a connection to it on which a hello was said.
pub(crate) fn greeted() -> (Receiver<Vec<u8>>, ConnId) {
    let mut receiver = Receiver::new(ReceiverConfig::default());
    let conn = receiver.handle_accepted(NOW, 0).unwrap();
    say(&mut receiver, conn, &[hello("cam0")]);
    assert!(matches!(receiver.poll_event(), Some(ReceiverEvent::Announced { .. })));
    (receiver, conn)
}

fn hello(name: &str) -> Message {
    Message::Hello(Hello {
        model_id: 9,
        quant_bits: 8,
        layer_start: 0,
        layer_end: 2,
        has_output: 1,
        has_hidden: 0,
        ctx_size: 4,
        n_layers: 3,
        listen_port: 0,
        model_name: name.into(),
    })
}

pub(crate) fn say(receiver: &mut Receiver<Vec<u8>>, conn: ConnId, messages: &[Message]) {
    let mut bytes = Vec::new();
    messages.iter().for_each(|message| message.encode(&mut bytes));
    receiver.handle_bytes(NOW, conn, &bytes);
}

/// What a well-behaved sender says about frame 1.
pub(crate) fn load() -> Begin {
    let mut world = World::strict(1);
    world.is_busy = true;
    world.run();
    assert!(world.send(3, 1));
    let (near, _) = world.link.unwrap();
    let bytes = world.sender.poll_transmit(near).unwrap().to_vec();
    let mut decoder = cuframes_bridge::wire::Decoder::new(Default::default());
    match decoder.next(&mut &bytes[..]).unwrap() {
        Some(cuframes_bridge::wire::Decoded::Message(Message::LoadBegin(begin))) => begin,
        other => panic!("{other:?}"),
    }
}

/// With one byte more there would be none.
fn as_large_as_can_be_said(begin: &mut Begin) {
    let large = FrameMeta { frame_size_bytes: u64::MAX, ..meta() };
    let words = large.to_bytes();
    let words = words.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word));
    begin.tokens.splice(1..17, words);
    begin.tokens[21..23].fill(u32::MAX);
    begin.payload_bytes = 0;
}

/// The connection has ended with this fault, after these were said; and its sender was told.
fn ends(messages: &[Message]) -> LinkFault {
    let (mut receiver, conn) = greeted();
    say(&mut receiver, conn, messages);
    while let Some(event) = receiver.poll_event() {
        match event {
            ReceiverEvent::Offered { .. } => receiver.receive(NOW, conn, vec![0; 768]).unwrap(),
            ReceiverEvent::Left { fault, key, .. } => {
                assert_eq!(key.unwrap().as_str(), "cam0");
                assert!(receiver.poll_transmit(conn).is_some(), "it is not told why");
                return fault.unwrap();
            }
            _ => {}
        }
    }
    panic!("{messages:?} is taken");
}

#[test]
fn words_about_a_frame_that_do_not_hold_together_end_the_connection() {
    type Change = fn(&mut Begin);
    let cases: [(Change, InfoError); 8] = [
        (|begin| begin.tokens.truncate(20), InfoError::Words),
        (|begin| begin.tokens[0] = 2, InfoError::Version(2)),
        (|begin| begin.id.request = 0, InfoError::Number { found: 1, expected: 0 }),
        (|begin| begin.tokens[18] = 0, InfoError::Number { found: 0, expected: 1 }),
        (|begin| begin.payload_bytes += 1, InfoError::Size { payload: 770, frame: 768 }),
        (|begin| begin.payload_bytes = u64::MAX, InfoError::Size { payload: u64::MAX, frame: 768 }),
        (|begin| begin.tokens[22] = 1 << 30, InfoError::Size { payload: 769, frame: 768 }),
        (as_large_as_can_be_said, InfoError::Size { payload: 0, frame: u64::MAX }),
    ];
    for (change, expected) in cases {
        let mut begin = load();
        change(&mut begin);
        begin.id.token_count = begin.tokens.len() as u32;
        begin.id.token_hash = token_hash(&begin.tokens);
        assert_eq!(ends(&[Message::LoadBegin(begin)]), LinkFault::Info(expected));
    }
    let mut begin = load();
    begin.tokens[17] ^= 1;
    assert_eq!(ends(&[Message::LoadBegin(begin)]), LinkFault::Info(InfoError::Hash));
    let mut begin = load();
    begin.tokens[1] = 99;
    begin.id.token_hash = token_hash(&begin.tokens);
    assert!(matches!(ends(&[Message::LoadBegin(begin)]), LinkFault::Info(InfoError::Meta(_))));
}

#[test]
fn data_of_another_frame_and_more_data_than_announced_end_the_connection() {
    let begin = || Message::LoadBegin(load());
    let other = Message::Chunk(Chunk { request: 2, bytes: 10 });
    assert_eq!(ends(&[begin(), other]), LinkFault::OtherFrame { found: 2, expected: 1 });
    let more = Message::Chunk(Chunk { request: 1, bytes: 770 });
    assert_eq!(ends(&[begin(), more]), LinkFault::TooMuch { request: 1 });
    let early = Message::Chunk(Chunk { request: 1, bytes: 10 });
    assert_eq!(ends(&[early]), LinkFault::OtherFrame { found: 1, expected: 0 });
}

#[test]
fn what_has_no_place_ends_the_connection() {
    let done = Message::Done(Done { request: 1, status: 0, message: String::new() });
    assert_eq!(ends(&[done]), LinkFault::Unexpected(FrameType::DONE));
    assert_eq!(ends(&[hello("cam0")]), LinkFault::Unexpected(FrameType::HELLO));
    assert_eq!(
        ends(&[Message::LoadBegin(load()), Message::LoadBegin(load())]),
        LinkFault::Unexpected(FrameType::LOAD_BEGIN)
    );
    let begin = Begin { id: SnapshotId { request: 1 << 63 | 1, ..load().id }, ..load() };
    assert_eq!(ends(&[Message::Begin(begin.clone())]), LinkFault::Unexpected(FrameType::SNAPSHOT_BEGIN));
    assert_eq!(ends(&[Message::LoadBegin(begin)]), LinkFault::Unexpected(FrameType::LOAD_BEGIN));
}

#[test]
fn a_message_of_a_type_that_there_is_not_ends_the_connection_before_its_bytes_come() {
    let header = Header { kind: FrameType(77), bytes: u32::MAX }.encode();
    let (mut receiver, conn) = greeted();
    receiver.handle_bytes(NOW, conn, &header);
    let Some(ReceiverEvent::Left { fault, .. }) = receiver.poll_event() else { panic!("it is waited for") };
    assert_eq!(fault, Some(LinkFault::Unexpected(FrameType(77))));

    let mut world = World::strict(1);
    world.run();
    let (near, _) = world.link.unwrap();
    world.sender.handle_bytes(NOW, near, &header);
    let fault = Some(LinkFault::Unexpected(FrameType(77)));
    assert_eq!(world.sender.poll_event(), Some(SenderEvent::Lost { fault }));
}

#[test]
fn a_key_that_can_not_be_one_and_silence_end_the_connection() {
    let mut receiver: Receiver<Vec<u8>> = Receiver::new(ReceiverConfig::default());
    let conn = receiver.handle_accepted(NOW, 0).unwrap();
    say(&mut receiver, conn, &[hello("../../etc/passwd")]);
    let Some(ReceiverEvent::Left { fault: Some(LinkFault::Info(InfoError::Key(_))), .. }) =
        receiver.poll_event()
    else {
        panic!("it is taken");
    };

    let mut receiver: Receiver<Vec<u8>> = Receiver::new(ReceiverConfig::default());
    let conn = receiver.handle_accepted(NOW, 0).unwrap();
    let due = receiver.poll_timeout().unwrap();
    receiver.handle_bytes(NOW + Duration::from_secs(4), conn, &[0x44]);
    assert_eq!(receiver.poll_timeout(), Some(due), "a byte now and then moves the deadline");
    receiver.handle_timeout(due);
    let left = |event| matches!(event, ReceiverEvent::Left { fault: Some(LinkFault::NoHello), .. });
    assert!(receiver.poll_event().is_some_and(left));
    assert_eq!(receiver.senders(), 0);
}

#[test]
fn a_sender_that_stops_in_the_middle_of_a_frame_is_given_up_and_its_place_is_given_back() {
    let (mut receiver, conn) = greeted();
    say(&mut receiver, conn, &[Message::LoadBegin(load()), Message::Chunk(Chunk { request: 1, bytes: 768 })]);
    assert!(matches!(receiver.poll_event(), Some(ReceiverEvent::Offered { .. })));
    receiver.receive(NOW, conn, vec![0; 768]).unwrap();
    let due = receiver.poll_timeout().unwrap();
    assert_eq!(due, NOW + Duration::from_secs(60));
    receiver.handle_timeout(due);
    match receiver.poll_event() {
        Some(ReceiverEvent::Left { fault: Some(LinkFault::Stalled(_)), place: Some(place), .. }) => {
            assert_eq!(place.len(), 768);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn there_are_only_so_many_senders_at_a_time() {
    let mut config = ReceiverConfig::default();
    config.senders = 3;
    let mut receiver: Receiver<Vec<u8>> = Receiver::new(config);
    let mut conns = Vec::new();
    for name in ["a", "b", "c"] {
        conns.extend(receiver.handle_accepted(NOW, 0));
        say(&mut receiver, *conns.last().unwrap(), &[hello(name)]);
    }
    assert_eq!((conns.len(), receiver.handle_accepted(NOW, 0)), (3, None));
    receiver.handle_eof(NOW, conns[0]);
    assert!(receiver.handle_accepted(NOW, 0).is_some());
}

#[test]
fn who_says_nothing_makes_room_for_others_and_who_has_said_hello_does_not() {
    let mut config = ReceiverConfig::default();
    config.senders = 3;
    let mut receiver: Receiver<Vec<u8>> = Receiver::new(config);
    let conns: Vec<_> = (0..3).filter_map(|_| receiver.handle_accepted(NOW, 0)).collect();
    say(&mut receiver, conns[0], &[hello("a")]);
    for late in ["b", "c"] {
        let conn = receiver.handle_accepted(NOW, 0).unwrap();
        say(&mut receiver, conn, &[hello(late)]);
        assert_eq!(receiver.senders(), 3);
    }
    let mut left = Vec::new();
    while let Some(event) = receiver.poll_event() {
        if let ReceiverEvent::Left { conn, fault, .. } = event {
            assert_eq!(fault, Some(LinkFault::NoHello));
            left.push(conn);
        }
    }
    assert_eq!(left, conns[1..]);
    assert_eq!(receiver.handle_accepted(NOW, 0), None);
}

#[test]
fn what_a_peer_says_can_be_shown() {
    let (mut receiver, conn) = greeted();
    say(&mut receiver, conn, &[Message::Error("\x1b[2J caf\u{e9}".into())]);
    let Some(ReceiverEvent::Left { fault: Some(fault), .. }) = receiver.poll_event() else {
        panic!("it stays")
    };
    assert_eq!(fault.to_string(), "it said: \u{fffd}[2J caf\u{e9}");
    let mut world = World::strict(1);
    world.run();
    let (near, _) = world.link.unwrap();
    let mut bytes = Vec::new();
    Message::Error("\x07no".into()).encode(&mut bytes);
    world.sender.handle_bytes(NOW, near, &bytes);
    assert_eq!(world.sender.poll_event(), Some(SenderEvent::Refused("\u{fffd}no".into())));
}

#[test]
fn a_sender_that_reads_no_answers_is_given_up() {
    let (mut receiver, conn) = greeted();
    let mut bytes = Vec::new();
    Message::LoadBegin(load()).encode(&mut bytes);
    for chunk in [768, 1] {
        Message::Chunk(Chunk { request: 1, bytes: chunk }).encode(&mut bytes);
        bytes.extend(vec![1; chunk as usize]);
    }
    // It goes on sending after its end.
    let (mut left, mut reads_after) = (0, 0);
    for _ in 0..100_000 {
        receiver.handle_bytes(NOW, conn, &bytes);
        while let Some(event) = receiver.poll_event() {
            match event {
                ReceiverEvent::Offered { conn, .. } => receiver.skip(NOW, conn, Fate::Had),
                ReceiverEvent::Left { fault, .. } => {
                    assert_eq!(fault, Some(LinkFault::Greedy));
                    left += 1;
                }
                _ => {}
            }
        }
        reads_after += left.min(1);
        if reads_after > 10 {
            break;
        }
    }
    let most = receiver.poll_transmit(conn).map_or(0, <[u8]>::len);
    assert_eq!(left, 1, "{most} bytes wait for it");
}

#[test]
fn a_connection_that_only_waits_for_its_last_words_to_be_read_is_not_known_any_more() {
    let (mut receiver, conn) = greeted();
    receiver.refuse(NOW, conn, "no");
    assert!(receiver.poll_transmit(conn).is_some());
    receiver.refuse(NOW, conn, "no");
    receiver.fetch(NOW, conn, None);
    receiver.shut_down(NOW);
    assert!(matches!(receiver.poll_event(), Some(ReceiverEvent::Left { .. })));
    assert!(receiver.poll_event().is_none());
}

#[test]
fn last_words_that_nobody_reads_do_not_keep_a_connection() {
    let (mut receiver, conn) = greeted();
    receiver.refuse(NOW, conn, "no");
    let due = receiver.poll_timeout().unwrap();
    assert_eq!(due, NOW + Duration::from_secs(1));
    receiver.handle_timeout(due);
    let mut closed = false;
    while let Some(action) = receiver.poll_action() {
        closed |= action == cuframes_core::streams::Action::Close(conn);
    }
    assert!(closed);
    assert_eq!(receiver.poll_timeout(), None);
}

#[test]
fn a_receiver_that_answers_about_what_was_not_sent_loses_the_connection() {
    for message in [
        Message::Done(Done { request: 9, status: 0, message: String::new() }),
        Message::LoadBegin(load()),
        Message::Chunk(Chunk { request: 1, bytes: 5 }),
        hello("cam0"),
    ] {
        let mut world = World::strict(2);
        world.run();
        let (near, _) = world.link.unwrap();
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        world.sender.handle_bytes(world.now, near, &bytes);
        world.run();
        let lost = |event: &SenderEvent| matches!(event, SenderEvent::Lost { fault: Some(_) });
        assert!(world.sent.iter().any(lost), "{message:?} is taken");
        world.pass(Duration::from_secs(1));
        assert!(world.link.is_some(), "it does not connect again");
    }
}
