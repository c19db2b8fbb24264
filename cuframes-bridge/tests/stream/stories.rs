//! What happens on a link.

use std::time::Duration;

use cuframes_bridge::stream::{
    Answer, FarTimes, Fate, FrameInfo, LinkFault, Receiver, ReceiverConfig, ReceiverEvent, SenderConfig,
    SenderEvent,
};
use cuframes_core::streams::Machine;
use cuframes_core::{Format, FrameMeta, Instant};

use crate::world::{World, published};

#[test]
fn frames_arrive_byte_identical_in_order_with_number_and_time_stamp() {
    let mut world = World::strict(3);
    world.run();
    for seq in [1, 2, 5, 6, 9] {
        assert!(world.send(77, seq));
        world.run();
    }
    assert_eq!(world.published, [1, 2, 5, 6, 9].map(|seq| published(77, seq)));
    assert!(world.fates().iter().all(|(_, fate)| matches!(fate, Fate::Published(_))));
    assert_eq!((world.sender.stats().delivered, world.sender.stats().bytes), (5, 5 * 768));
    let ReceiverEvent::Announced { greeting, .. } = &world.received[0] else {
        panic!("{:?}", world.received)
    };
    assert_eq!((greeting.key.as_str(), greeting.strict, greeting.ring_size.get()), ("cam0", true, 4));
}

#[test]
fn a_sender_has_room_for_as_many_frames_as_its_window() {
    let mut world = World::strict(2);
    world.run();
    world.is_busy = true;
    assert!(world.send(1, 1) && world.send(1, 2));
    assert!(!world.send(1, 3), "it took one more than its window");
    world.run();
    assert!(!world.sender.has_room(), "nothing has arrived yet");
    let (conn, info) = world.offered.take().unwrap();
    world.take(conn, &info, false);
    world.is_busy = false;
    world.run();
    assert!(world.sender.has_room());
    assert_eq!(world.published, [published(1, 1), published(1, 2)]);
}

#[test]
fn a_receiver_without_a_place_reads_nothing_more_and_the_sender_is_held_up() {
    let mut world = World::strict(8);
    (world.is_busy, world.buffer) = (true, 500);
    world.run();
    for seq in 1..=8 {
        assert!(world.send(1, seq));
    }
    world.run();
    let (_, far) = world.link.unwrap();
    assert!(!world.receiver.is_hungry(far));
    assert!(world.published.is_empty() && world.fates().is_empty());
    let (conn, info) = world.offered.take().unwrap();
    world.is_busy = false;
    world.take(conn, &info, false);
    world.run();
    assert_eq!(world.published, (1..=8).map(|seq| published(1, seq)).collect::<Vec<_>>());
}

#[test]
fn a_strict_sender_sends_after_a_reconnect_what_had_not_arrived_and_nothing_is_published_twice() {
    for cut_after in 0..40 {
        let mut world = World::strict(3);
        world.cuts = vec![97];
        world.run();
        for seq in 1..=3 {
            assert!(world.send(5, seq));
        }
        for _ in 0..cut_after {
            world.step();
        }
        world.cut();
        world.pass(Duration::from_secs(1));
        assert!(world.send(5, 4) || !world.sender.has_room());
        world.run();
        let seqs: Vec<u64> = world.published.iter().map(|frame| frame.seq).collect();
        assert_eq!(seqs[..3], [1, 2, 3], "cut after {cut_after} steps");
        assert_eq!(world.published[..3], [1, 2, 3].map(|seq| published(5, seq)));
        assert_eq!(world.sender.under_way(), 0);
        assert_eq!(world.sender.stats().given_up, 0);
    }
}

#[test]
fn a_sender_that_wants_the_newest_gives_up_what_was_on_the_way_when_the_connection_is_lost() {
    let mut world = World::new(SenderConfig::new("there"));
    assert!(!world.send(1, 1), "nobody is there");
    world.run();
    world.is_busy = true;
    assert!(world.send(1, 2) && world.send(1, 3));
    world.run();
    world.cut();
    assert_eq!(world.sender.stats().given_up, 2);
    world.is_busy = false;
    world.pass(Duration::from_secs(1));
    assert!(world.send(1, 9));
    world.run();
    assert_eq!(world.published, [published(1, 9)]);
}

#[test]
fn a_receiver_that_starts_again_gets_what_had_not_arrived() {
    let mut world = World::strict(2);
    world.run();
    assert!(world.send(1, 1));
    world.run();
    world.is_busy = true;
    assert!(world.send(1, 2) && world.send(1, 3));
    world.run();
    world.restart_receiver();
    world.is_busy = false;
    world.pass(Duration::from_secs(1));
    assert_eq!(world.published, [1, 2, 3].map(|seq| published(1, seq)));
}

#[test]
fn a_frame_that_was_there_already_is_not_published_again() {
    let mut world = World::strict(2);
    world.run();
    assert!(world.send(1, 1));
    // It is published, and the answer is lost.
    while world.published.is_empty() {
        assert!(world.step());
    }
    world.cut();
    world.pass(Duration::from_secs(1));
    assert_eq!(world.published, [published(1, 1)]);
    assert_eq!(world.fates(), [(1, Fate::Had)]);
    assert_eq!(world.sender.stats().resent, 1);
}

#[test]
fn another_publisher_begins_a_stream_of_its_own_on_the_same_connection() {
    let mut world = World::strict(2);
    world.run();
    for (epoch, seq) in [(1, 8), (2, 1), (2, 2)] {
        assert!(world.send(epoch, seq));
        world.run();
    }
    assert_eq!(world.published, [published(1, 8), published(2, 1), published(2, 2)]);
    assert_eq!(world.sender.stats().lost_connections, 0);
}

#[test]
fn what_is_left_out_or_refused_is_said_with_its_reason() {
    let mut world = World::strict(2);
    world.is_busy = true;
    world.run();
    for fate in [Fate::Skipped("no slot".into()), Fate::Refused("too large".into())] {
        assert!(world.send(1, 1));
        world.run();
        let (conn, _) = world.offered.take().unwrap();
        world.receiver.skip(world.now, conn, fate.clone());
        world.run();
        assert_eq!(world.fates().last(), Some(&(1, fate)));
    }
    assert_eq!((world.sender.stats().delivered, world.sender.stats().refused), (0, 2));
    assert!(world.published.is_empty());
}

#[test]
fn the_times_of_a_frame_are_told_at_both_ends() {
    let mut world = World::strict(1);
    world.is_busy = true;
    world.run();
    let (mut info, bytes) = crate::world::frame(1, 1);
    info.pts_ns = world.now.as_nanos() - 5_000_000;
    world.sender.send(world.now, info, bytes).unwrap();
    world.run();
    let (conn, info) = world.offered.take().unwrap();
    assert_eq!(info.before_ns, 5_000_000, "from the time stamp to the sending");
    // It waits 3 ms for a slot; then its bytes take 2 ms.
    world.now = world.now + Duration::from_millis(3);
    world.take(conn, &info, false);
    world.now = world.now + Duration::from_millis(2);
    world.run();
    let Some(SenderEvent::Done { fate, round_trip, .. }) = world.sent.last() else {
        panic!("{:?}", world.sent)
    };
    // What is read together with the beginning of a frame has no time of its own.
    let Fate::Published(FarTimes { wire_ns, publish_ns }) = fate else { panic!("{fate:?}") };
    assert_eq!((wire_ns + publish_ns, *round_trip), (5_000_000, Duration::from_millis(5)));
    assert_eq!(*publish_ns, 3_000_000);
}

#[test]
fn a_second_sender_of_a_stream_takes_the_place_of_the_first_which_does_not_come_back() {
    let mut world = World::strict(1);
    world.run();
    assert!(world.link.is_some());
    let other = world.receiver.handle_accepted(world.now, 0).unwrap();
    let mut second = World::strict(1);
    second.receiver = Receiver::new(ReceiverConfig::default());
    second.actions();
    let (near, _) = second.link.unwrap();
    let hello = second.sender.poll_transmit(near).unwrap().to_vec();
    world.receiver.handle_bytes(world.now, other, &hello);
    world.run();
    let refused =
        |event: &SenderEvent| matches!(event, SenderEvent::Refused(why) if why.contains("another sender"));
    assert!(world.sent.iter().any(refused), "{:?}", world.sent);
    assert!(world.sender.is_finished());
    let left = |event: &ReceiverEvent<_>| {
        matches!(event, ReceiverEvent::Left { fault: Some(LinkFault::Replaced), .. })
    };
    assert!(world.received.iter().any(left));
    assert_eq!(world.receiver.senders(), 1);
}

#[test]
fn a_stream_that_is_not_wanted_is_refused_and_its_sender_does_not_come_back() {
    let mut world = World::strict(1);
    world.run();
    let (_, far) = world.link.unwrap();
    world.receiver.refuse(world.now, far, "no room");
    world.run();
    assert_eq!(world.sent.last(), Some(&SenderEvent::Refused("no room".into())));
    world.pass(Duration::from_secs(100));
    assert!(world.link.is_none() && world.sender.is_finished());
}

#[test]
fn a_sender_that_finishes_waits_for_what_is_on_the_way_but_not_for_ever() {
    let mut world = World::strict(2);
    world.run();
    assert!(world.send(1, 1));
    world.sender.finish(world.now, Duration::from_secs(3));
    assert!(!world.send(1, 2), "it takes no more");
    assert!(!world.sender.is_finished());
    world.run();
    assert!(world.sender.is_finished());
    assert_eq!(world.published, [published(1, 1)]);

    let mut world = World::strict(2);
    world.is_cut = true;
    assert!(world.send(1, 1));
    world.sender.finish(world.now, Duration::from_secs(3));
    world.run();
    assert!(!world.sender.is_finished());
    assert_eq!(world.sender.poll_timeout(), Some(world.now + Duration::from_secs(3)));
    world.pass(Duration::from_secs(3));
    assert!(world.sender.is_finished());
    assert_eq!(world.sender.stats().given_up, 1);
}

#[test]
fn a_receiver_that_does_not_read_costs_the_connection_when_the_time_is_up() {
    let mut world = World::strict(2);
    world.buffer = 100;
    world.is_busy = true;
    world.run();
    assert!(world.send(1, 1));
    world.run();
    let due: Instant = world.sender.poll_timeout().unwrap();
    assert_eq!(due, world.now + Duration::from_secs(60));
    world.now = due;
    world.sender.handle_timeout(due);
    world.run();
    let stalled = LinkFault::Stalled(Duration::from_secs(60));
    assert!(world.sent.contains(&SenderEvent::Lost { fault: Some(stalled) }), "{:?}", world.sent);
    assert_eq!(world.sender.under_way(), 1, "it is kept for the next connection");
}

#[test]
fn whoever_takes_connections_and_ends_them_is_asked_less_and_less_until_a_frame_arrives() {
    let mut world = World::strict(1);
    world.run();
    let pause = |world: &mut World| {
        world.cut();
        let (_, at) = world.wanted.unwrap();
        let pause = at.saturating_since(world.now);
        world.pass(pause);
        assert!(world.link.is_some());
        pause.as_millis()
    };
    assert_eq!([(); 7].map(|()| pause(&mut world)), [100, 200, 400, 800, 1600, 2000, 2000]);
    assert!(world.send(1, 1));
    world.run();
    assert_eq!([(); 2].map(|()| pause(&mut world)), [100, 200]);
}

#[test]
fn an_answer_that_does_not_come_is_no_fault_of_the_connection() {
    let mut world = World::strict(2);
    world.is_busy = true;
    world.run();
    assert!(world.send(1, 1));
    world.run();
    // All of it is with the system; the receiver has no slot for it.
    assert_eq!(world.sender.poll_timeout(), None);
    world.pass(Duration::from_secs(100_000));
    assert_eq!(world.sender.stats().lost_connections, 0);
}

#[test]
fn a_torn_frame_is_never_published() {
    #[derive(Debug)]
    struct Torn(Vec<u8>);
    impl cuframes_bridge::stream::Payload for Torn {
        fn bytes(&self) -> &[u8] {
            &self.0
        }
        fn is_intact(&self) -> bool {
            false
        }
    }
    let now = Instant::from_nanos(1);
    let mut config = SenderConfig::new("there");
    config.strict = true;
    let mut sender = cuframes_bridge::stream::Sender::new(now, config, crate::world::announcement(true));
    let mut receiver: Receiver<Vec<u8>> = Receiver::new(ReceiverConfig::default());
    let far = receiver.handle_accepted(now, 0).unwrap();
    let near = cuframes_core::streams::ConnId::new(0);
    sender.handle_connected(now, near);
    let (info, bytes) = crate::world::frame(1, 1);
    sender.send(now, info, Torn(bytes)).unwrap();
    let mut fates = Vec::new();
    for _ in 0..10 {
        while let Some(bytes) = sender.poll_transmit(near).map(<[u8]>::to_vec) {
            sender.transmitted(near, bytes.len());
            receiver.handle_bytes(now, far, &bytes);
        }
        while let Some(event) = receiver.poll_event() {
            match event {
                ReceiverEvent::Offered { conn, .. } => receiver.receive(now, conn, vec![0; 768]).unwrap(),
                ReceiverEvent::Complete { frame, .. } => assert!(!frame.is_whole),
                _ => {}
            }
        }
        while let Some(bytes) = receiver.poll_transmit(far).map(<[u8]>::to_vec) {
            receiver.transmitted(far, bytes.len());
            sender.handle_bytes(now, near, &bytes);
        }
        while let Some(event) = sender.poll_event() {
            if let SenderEvent::Done { fate, .. } = event {
                fates.push(fate);
            }
        }
    }
    assert!(matches!(&fates[..], [Fate::Skipped(why)] if why.contains("overwritten")), "{fates:?}");
}

#[test]
fn frames_of_several_chunks_arrive_whatever_the_pieces_are() {
    for pieces in [vec![64 << 10], vec![64 << 10, 5, 1000]] {
        let mut world = World::strict(2);
        world.cuts = pieces;
        world.run();
        let bytes: Vec<u8> = (0..18_u32 << 20).map(|i| (i % 251) as u8).collect();
        let meta = FrameMeta::new(Format::GRAY8, 4096, 4608).unwrap();
        for seq in 1..=2 {
            let info = FrameInfo { meta, ..crate::world::frame(1, seq).0 };
            world.sender.send(world.now, info, bytes.clone()).unwrap();
        }
        world.run();
        assert_eq!(world.published.len(), 2, "{:?}", world.received);
        assert!(world.published.iter().all(|frame| frame.bytes == bytes), "other bytes");
    }
}

#[test]
fn a_receiver_that_reads_slowly_costs_no_connection() {
    let mut world = World::strict(2);
    world.run();
    assert!(world.send(1, 1));
    world.actions();
    let (near, _) = world.link.unwrap();
    // A byte every 50 s, which only what was sent can tell.
    for _ in 0..20 {
        world.now = world.now + Duration::from_secs(50);
        world.sender.note_time(world.now);
        assert!(world.sender.poll_transmit(near).is_some());
        world.sender.transmitted(near, 1);
        assert_eq!(world.sender.poll_timeout(), Some(world.now + Duration::from_secs(60)));
        world.sender.handle_timeout(world.now);
    }
    assert!(world.sender.is_connected());
}

#[test]
fn a_link_that_had_nothing_to_say_for_long_is_not_late_with_the_next_thing() {
    let mut world = World::strict(2);
    world.run();
    world.pass(Duration::from_secs(1000));
    let (_, far) = world.link.unwrap();
    world.receiver.fetch(world.now, far, None);
    world.run();
    let (info, bytes) = crate::world::frame(1, 1);
    world.sender.answer(world.now, None, Answer::Frame(info, bytes));
    assert_eq!(world.sender.poll_timeout(), Some(world.now + Duration::from_secs(60)));
    assert!(world.send(1, 2));
    world.pass(Duration::ZERO);
    assert_eq!(world.sender.stats().lost_connections, 0);
    assert_eq!(world.published, [published(1, 1), published(1, 2)]);
}
