//! Frames go from a stream of one host to one of another; here both are this one.

use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::common::{LONG, STRICT, Stream, check, fill, meta, publish, until};
use cuframes_mio::bridge::{
    CourierEvent, IntakeEvent, SenderEvent, StreamReceiver, StreamReceiverBuilder, StreamSender,
    StreamSenderBuilder,
};
use cuframes_mio::core::gpu::Import;
use cuframes_mio::core::wire::ShutdownReason;
use cuframes_mio::core::{Format, FrameMeta, Gone, Key, Policy, RingSize, Timeouts};
use cuframes_mio::net::{Carrier, Endpoint};
use cuframes_mio::{Error, Frame, Publisher, Reconnect, ServedPublisher, Subscriber, SubscriberBuilder};

/// The name of a stream at the far end.
pub(crate) fn far(stream: &Stream) -> Key {
    format!("far-{}", stream.key).parse().unwrap()
}

/// Nobody is ever evicted.
pub(crate) fn patient() -> Timeouts {
    let mut timeouts = Timeouts::default();
    (timeouts.consumer_ack, timeouts.lease) = (LONG, LONG);
    timeouts
}

pub(crate) fn publisher(stream: &Stream, slots: u64, policy: Policy) -> ServedPublisher {
    stream.publisher(slots, policy).timeouts(patient()).create().unwrap().serve().unwrap()
}

pub(crate) fn receiver(stream: &Stream, endpoint: &Endpoint) -> StreamReceiverBuilder {
    let builder = StreamReceiver::builder(endpoint.clone()).prefix("far-").timeouts(patient());
    builder.run_dir(stream.dir.path())
}

pub(crate) fn anywhere() -> Endpoint {
    "tcp://127.0.0.1:0".parse().unwrap()
}

pub(crate) fn sender(stream: &Stream, settings: StreamSenderBuilder) -> StreamSender {
    settings.start(stream.subscriber("sender", STRICT).connect().unwrap()).unwrap()
}

/// A strict sender to this receiver.
pub(crate) fn strict_sender(stream: &Stream, receiver: &StreamReceiver) -> StreamSender {
    sender(stream, StreamSender::builder(receiver.endpoint().clone()).strict())
}

pub(crate) fn far_builder(stream: &Stream) -> SubscriberBuilder {
    Subscriber::builder(far(stream)).run_dir(stream.dir.path()).mode(STRICT)
}

/// One that waits for the stream, and for the next one of its name.
pub(crate) fn far_subscriber(stream: &Stream) -> Subscriber {
    far_builder(stream).reconnect(Reconnect::default()).start().unwrap()
}

/// Drives a sender for a moment.
pub(crate) fn sent<B, C>(sender: &mut StreamSender<B, C>) -> Vec<CourierEvent>
where
    B: Import<Fd = std::os::fd::OwnedFd>,
    C: Carrier,
{
    std::iter::from_fn(|| sender.next_event(Some(MOMENT)).unwrap()).collect()
}

/// Drives a receiver for a moment.
pub(crate) fn received<C: Carrier>(receiver: &mut StreamReceiver<C>) -> Vec<IntakeEvent> {
    std::iter::from_fn(|| receiver.next_event(Some(MOMENT)).unwrap()).collect()
}

/// Drives both ends until something is so.
pub(crate) fn drive(
    sender: &mut StreamSender,
    receiver: &mut StreamReceiver,
    mut is_so: impl FnMut(&[CourierEvent], &[IntakeEvent]) -> bool,
) {
    until("both ends", || {
        let told = sent(sender);
        is_so(&told, &received(receiver))
    });
}

/// A frame, if there is one.
pub(crate) fn look(subscriber: &mut Subscriber) -> Option<Frame> {
    subscriber.next(MOMENT).unwrap()
}

/// Publishes a frame, if there is room for one.
pub(crate) fn offer(publisher: &mut ServedPublisher) -> Option<u64> {
    let mut claim = publisher.try_claim().ok()?;
    fill(&mut claim);
    Some(claim.commit())
}

/// The numbers of the frames that were published.
pub(crate) fn numbers(events: &[IntakeEvent]) -> Vec<u64> {
    let number = |event: &IntakeEvent| match event {
        IntakeEvent::Frame { info, .. } => Some(info.seq),
        _ => None,
    };
    events.iter().filter_map(number).collect()
}

/// Publishes the first frame, which makes the stream at the far end; who looks for that gets it.
pub(crate) fn first_frame(
    publisher: &mut ServedPublisher,
    sender: &mut StreamSender,
    receiver: &mut StreamReceiver,
    subscriber: &mut Subscriber,
) {
    let seq = publish(publisher);
    drive(sender, receiver, |_, _| look(subscriber).is_some_and(|frame| frame.seq() == seq));
}

pub(crate) fn assert_gone(key: &Key) {
    assert!(!Path::new("/dev/shm").join(key.region_file()).exists(), "the region of {key} is left behind");
}

#[test]
fn frames_arrive_with_number_time_stamp_geometry_and_bytes() {
    let stream = Stream::new();
    let mut publisher = publisher(&stream, 4, Policy::STRICT_WAIT);
    let mut receiver = receiver(&stream, &anywhere()).listen().unwrap();
    let mut sender = strict_sender(&stream, &receiver);
    let mut subscriber = far_subscriber(&stream);
    for seq in 1..=40_i64 {
        let mut claim = publisher.claim().unwrap();
        fill(&mut claim);
        claim.commit_with(seq * 1000, meta().frame_size_bytes);
        let mut frame = None;
        drive(&mut sender, &mut receiver, |_, _| {
            frame = look(&mut subscriber);
            frame.is_some()
        });
        let frame = frame.unwrap();
        assert_eq!((frame.seq(), frame.lost(), frame.pts_ns()), (seq.unsigned_abs(), 0, seq * 1000));
        check(&frame);
        assert_eq!(frame.meta(), publisher.meta());
    }
    let stats = sender.stats();
    assert_eq!((stats.refused, stats.given_up, stats.lost_connections, stats.resent), (0, 0, 0, 0));
    receiver.shut_down().unwrap();
    assert_gone(&far(&stream));
}

#[test]
fn of_a_frame_only_the_valid_bytes_are_sent() {
    let stream = Stream::new();
    let meta = FrameMeta::new(Format::BYTES, 1 << 20, 1).unwrap();
    let builder = Publisher::builder(stream.key.clone(), meta).run_dir(stream.dir.path());
    let builder = builder.ring_size(RingSize::new(2).unwrap()).policy(Policy::STRICT_WAIT);
    let mut publisher = builder.timeouts(patient()).create().unwrap().serve().unwrap();
    let mut receiver = receiver(&stream, &anywhere()).listen().unwrap();
    let mut sender = strict_sender(&stream, &receiver);
    let mut subscriber = far_subscriber(&stream);
    let lengths = [1 << 20, 0, 1, 70_000, 0, (1 << 20) - 1];
    for (seq, len) in (1_u8..).zip(lengths) {
        let mut claim = publisher.claim().unwrap();
        claim.bytes_mut().fill(seq);
        claim.commit_with(1, u64::try_from(len).unwrap());
        drive(&mut sender, &mut receiver, |_, _| {
            let frame = look(&mut subscriber);
            frame.iter().for_each(|frame| assert_eq!(frame.bytes(), Some(&vec![seq; len][..])));
            frame.is_some()
        });
    }
    until("the last answer", || {
        received(&mut receiver);
        sent(&mut sender);
        sender.stats().delivered == 6
    });
    assert_eq!(sender.stats().bytes, u64::try_from(lengths.iter().sum::<usize>()).unwrap());
}

/// A stream with both of its ends.
struct Way {
    publisher: ServedPublisher,
    sender: StreamSender,
    subscriber: Subscriber,
    /// What was published.
    sent: Vec<Vec<u8>>,
    got: usize,
}

impl Way {
    fn publish(&mut self, random: &mut fastrand::Rng) {
        let Ok(mut claim) = self.publisher.try_claim() else { return };
        random.fill(claim.bytes_mut());
        self.sent.push(claim.bytes_mut().to_vec());
        claim.commit();
    }

    fn take(&mut self) {
        while let Some(frame) = look(&mut self.subscriber) {
            assert_eq!((frame.seq(), frame.lost()), (u64::try_from(self.got).unwrap() + 1, 0));
            assert_eq!(frame.meta(), self.publisher.meta());
            assert!(frame.bytes() == Some(&self.sent[self.got]), "frame {} has other bytes", frame.seq());
            self.got += 1;
        }
    }
}

#[test]
fn several_streams_go_over_connections_of_their_own_byte_for_byte() {
    const FRAMES: usize = 30;
    let streams = [(); 3].map(|()| Stream::new());
    let mut receiver = receiver(&streams[0], &anywhere()).listen().unwrap();
    let metas = [(Format::NV12, 322, 242), (Format::RGB24, 101, 37), (Format::GRAY8, 1024, 768)];
    let mut ways: Vec<Way> = streams
        .iter()
        .zip(metas)
        .map(|(stream, (format, width, height))| {
            let meta = FrameMeta::new(format, width, height).unwrap();
            let builder = Publisher::builder(stream.key.clone(), meta).run_dir(stream.dir.path());
            let builder = builder.ring_size(RingSize::new(4).unwrap()).policy(Policy::STRICT_WAIT);
            let publisher = builder.timeouts(patient()).create().unwrap().serve().unwrap();
            let builder = Subscriber::builder(far(stream)).run_dir(streams[0].dir.path()).mode(STRICT);
            let subscriber = builder.reconnect(Reconnect::default()).start().unwrap();
            Way { publisher, sender: strict_sender(stream, &receiver), subscriber, sent: vec![], got: 0 }
        })
        .collect();
    let mut random = fastrand::Rng::with_seed(7);
    until("all frames", || {
        for way in &mut ways {
            // The others come when there is somebody to get them.
            if way.sent.is_empty() || way.got > 0 && way.sent.len() < FRAMES {
                way.publish(&mut random);
            }
            sent(&mut way.sender);
            way.take();
        }
        received(&mut receiver);
        ways.iter().all(|way| way.got == FRAMES)
    });
    assert_eq!(receiver.senders(), 3);
    drop(ways);
    receiver.shut_down().unwrap();
    streams.iter().for_each(|stream| assert_gone(&far(stream)));
}

#[test]
fn another_publisher_with_another_format_is_another_stream_at_the_far_end() {
    let stream = Stream::new();
    let mut first = publisher(&stream, 4, Policy::STRICT_WAIT);
    let mut receiver = receiver(&stream, &anywhere()).listen().unwrap();
    let settings = StreamSender::builder(receiver.endpoint().clone()).strict();
    let mut sender = settings.start(stream.reconnecting(STRICT).connect().unwrap()).unwrap();
    let mut patient = far_subscriber(&stream);
    first_frame(&mut first, &mut sender, &mut receiver, &mut patient);
    let mut old = far_builder(&stream).connect().unwrap();
    let epoch = look(&mut old).expect("the newest frame").epoch();
    // What was published before the end comes before the new one.
    assert_eq!((publish(&mut first), publish(&mut first)), (2, 3));
    let ending = thread::spawn(move || first.shut_down(ShutdownReason::NORMAL));
    let mut got = Vec::new();
    drive(&mut sender, &mut receiver, |_, _| {
        got.extend(look(&mut patient).map(|frame| (frame.epoch(), frame.seq())));
        ending.is_finished() && got.len() == 2
    });
    ending.join().unwrap().unwrap();
    assert_eq!(got, [(epoch, 2), (epoch, 3)]);

    let meta = FrameMeta::new(Format::GRAY8, 64, 48).unwrap();
    let builder = Publisher::builder(stream.key.clone(), meta).run_dir(stream.dir.path());
    let mut second = builder.ring_size(RingSize::new(3).unwrap()).create().unwrap().serve().unwrap();
    drive(&mut sender, &mut receiver, |_, _| !second.members().is_empty());
    publish(&mut second);
    let (mut frame, mut events, mut last_words) = (None, Vec::new(), None);
    drive(&mut sender, &mut receiver, |_, told| {
        events.extend(told.iter().filter_map(|event| match event {
            IntakeEvent::Published { info, .. } => Some(info.meta),
            _ => None,
        }));
        // Who goes on with nobody is told why, and the stream waits for it.
        if last_words.is_none() {
            last_words = old.next(MOMENT).err();
        }
        frame = frame.take().or_else(|| look(&mut patient));
        frame.is_some()
    });
    let frame = frame.unwrap();
    assert_ne!(frame.epoch(), epoch);
    assert_eq!((frame.seq(), frame.meta()), (1, &meta));
    assert_eq!(patient.header().unwrap().ring_size.get(), 3, "as at the near end");
    assert_eq!(events, [meta]);
    let last_words = last_words.unwrap();
    let upgrade = Gone::Shutdown(ShutdownReason::UPGRADE);
    assert!(matches!(last_words, Error::Gone { gone, .. } if gone == upgrade), "{last_words}");
    assert_eq!(sender.stats().lost_connections, 0);
    drop((frame, patient, old));
    receiver.shut_down().unwrap();
    assert_gone(&far(&stream));
}

#[test]
fn a_stream_that_is_not_wanted_is_refused_and_its_sender_is_finished() {
    let stream = Stream::new();
    let _publisher = publisher(&stream, 4, Policy::DROP_OLDEST);
    let mut receiver = receiver(&stream, &anywhere()).key("other".parse().unwrap()).listen().unwrap();
    let mut sender = strict_sender(&stream, &receiver);
    let mut words = Vec::new();
    drive(&mut sender, &mut receiver, |told, _| {
        words.extend(told.iter().filter_map(|event| match event {
            CourierEvent::Link(SenderEvent::Refused(why)) => Some(why.clone()),
            _ => None,
        }));
        !words.is_empty()
    });
    assert_eq!(words, [format!("stream {} is not wanted here", stream.key)]);
    assert!(sender.courier().is_finished());
    sender.finish(LONG).unwrap();
}

/// For how long there is nothing to do when an end is driven.
pub(crate) const MOMENT: Duration = Duration::from_millis(1);
