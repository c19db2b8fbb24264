//! Links over bad roads: what arrives is whole, and comes once.

use std::time::Duration;

use crate::bridge::{
    anywhere, drive, far_subscriber, look, numbers, offer, patient, received, receiver, sent,
};
use crate::common::{NEWEST, STRICT, Stream, publish, until};
use crate::relay::{Relay, Road};
use cuframes_mio::bridge::{CourierEvent, Fate, IntakeEvent, SenderEvent, StreamSender};
use cuframes_mio::core::{Format, FrameMeta, Policy, RingSize, Timeouts};
use cuframes_mio::{Frame, Publisher, ServedPublisher};

fn gray(stream: &Stream, height: u32, slots: u64, timeouts: Timeouts) -> ServedPublisher {
    let meta = FrameMeta::new(Format::GRAY8, 1024, height).unwrap();
    let builder = Publisher::builder(stream.key.clone(), meta).run_dir(stream.dir.path());
    let builder = builder.ring_size(RingSize::new(slots).unwrap()).policy(Policy::STRICT_WAIT);
    builder.timeouts(timeouts).create().unwrap().serve().unwrap()
}

/// Each of its words is its number.
fn is_whole(frame: &Frame) -> bool {
    frame.bytes().unwrap().chunks_exact(8).all(|word| word == frame.seq().to_le_bytes())
}

#[test]
fn however_often_the_road_is_cut_all_frames_arrive_once_in_order_and_whole() {
    const FRAMES: u64 = 150;
    for seed in 1..=4 {
        let stream = Stream::new();
        let mut publisher = gray(&stream, 2, 4, patient());
        let mut receiver = receiver(&stream, &anywhere()).listen().unwrap();
        // Some are cut in the first words, some after many frames.
        let cut_within = if seed % 2 == 0 { 40_000 } else { 15_000 };
        let road = Road { random: fastrand::Rng::with_seed(seed), cut_within, piece: 3000 };
        let relay = Relay::new(receiver.endpoint(), road);
        let settings = StreamSender::builder(relay.endpoint.clone()).strict();
        let mut sender = settings.start(stream.subscriber("sender", STRICT).connect().unwrap()).unwrap();
        let mut subscriber = far_subscriber(&stream);
        let (mut arrived, mut seen) = (Vec::new(), Vec::new());
        let mut done = Vec::new();
        publish(&mut publisher);
        until("all frames", || {
            if !seen.is_empty() && publisher.stats().frames < FRAMES {
                offer(&mut publisher);
            }
            done.extend(sent(&mut sender).into_iter().filter_map(|event| match event {
                CourierEvent::Link(SenderEvent::Done { seq, .. }) => Some(seq),
                _ => None,
            }));
            arrived.extend(numbers(&received(&mut receiver)));
            while let Some(frame) = look(&mut subscriber) {
                assert!(is_whole(&frame), "frame {} with seed {seed}", frame.seq());
                assert_eq!(frame.lost(), 0, "before frame {} with seed {seed}", frame.seq());
                seen.push(frame.seq());
            }
            seen.len() >= usize::try_from(FRAMES).unwrap() && done.last() == Some(&FRAMES)
        });
        let expected: Vec<u64> = (1..=FRAMES).collect();
        assert_eq!(arrived, expected, "with seed {seed}");
        assert_eq!(seen, expected, "with seed {seed}");
        assert_eq!(done, expected, "with seed {seed}");
        let stats = sender.stats();
        assert_eq!((stats.delivered, stats.given_up, stats.refused), (FRAMES, 0, 0), "with seed {seed}");
        assert!(relay.cuts() > 5 && stats.resent > 0, "with seed {seed}: {stats:?}");
    }
}

#[test]
fn a_frame_that_is_taken_away_while_it_is_sent_is_not_published() {
    let stream = Stream::new();
    let mut timeouts = patient();
    timeouts.lease = Duration::from_millis(50);
    // More than the buffers of the system hold.
    let mut publisher = gray(&stream, 24 << 10, 2, timeouts);
    let mut receiver = receiver(&stream, &anywhere()).listen().unwrap();
    let road = Road { random: fastrand::Rng::with_seed(1), cut_within: usize::MAX, piece: 1 << 20 };
    let relay = Relay::new(receiver.endpoint(), road);
    let subscriber = stream.reconnecting(NEWEST).no_ack().connect().unwrap();
    let mut sender = StreamSender::builder(relay.endpoint.clone()).start(subscriber).unwrap();
    let mut far = far_subscriber(&stream);
    publish(&mut publisher);
    drive(&mut sender, &mut receiver, |_, _| look(&mut far).is_some());
    until("its answer", || {
        sent(&mut sender);
        received(&mut receiver);
        sender.stats().delivered == 1
    });
    relay.hold(true);
    publish(&mut publisher);
    until("the frame to be on its way", || {
        sent(&mut sender);
        sender.courier().taken() == 2
    });
    // Frame 4 wants the slot of frame 2.
    while publisher.stats().left.evicted_for_lease == 0 {
        publish(&mut publisher);
    }
    let newest = publisher.stats().frames;
    relay.hold(false);
    let (mut arrived, mut fates, mut torn) = (Vec::new(), Vec::new(), Vec::new());
    let mut seen = Vec::new();
    drive(&mut sender, &mut receiver, |told, heard| {
        arrived.extend(numbers(heard));
        fates.extend(told.iter().filter_map(|event| match event {
            CourierEvent::Link(SenderEvent::Done { seq: 2, fate, .. }) => Some(fate.clone()),
            _ => None,
        }));
        torn.extend(heard.iter().filter_map(|event| match event {
            IntakeEvent::NotPublished { seq, .. } => Some(*seq),
            _ => None,
        }));
        if let Some(frame) = look(&mut far) {
            assert!(is_whole(&frame), "frame {}", frame.seq());
            seen.push(frame.seq());
        }
        arrived.last() == Some(&newest) && seen.last() == Some(&newest)
    });
    assert!(!arrived.contains(&2) && torn == [2], "{arrived:?} arrived, {torn:?} did not");
    assert!(matches!(&fates[..], [Fate::Skipped(why)] if why.contains("overwritten")), "{fates:?}");
}
