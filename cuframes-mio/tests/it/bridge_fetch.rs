//! Single frames that are asked for.

use crate::bridge::{
    anywhere, drive, far, far_subscriber, first_frame, numbers, publisher, received, receiver, strict_sender,
};
use crate::common::{NEWEST, STRICT, Stream, check_bytes, meta, next, publish};
use cuframes_mio::bridge::{IntakeEvent, StreamReceiver, StreamSender};
use cuframes_mio::core::Policy;

/// One of which frames are asked for only.
fn on_demand(stream: &Stream, receiver: &mut StreamReceiver) -> StreamSender {
    let subscriber = stream.subscriber("sender", NEWEST).no_ack().connect().unwrap();
    let settings = StreamSender::builder(receiver.endpoint().clone()).on_demand();
    let mut sender = settings.start(subscriber).unwrap();
    drive(&mut sender, receiver, |_, heard| {
        heard.iter().any(|event| matches!(event, IntakeEvent::Joined { .. }))
    });
    sender
}

/// Asks for a frame: its number, or why it did not come.
fn fetch(
    stream: &Stream,
    sender: &mut StreamSender,
    receiver: &mut StreamReceiver,
    seq: Option<u64>,
) -> Result<u64, String> {
    assert!(receiver.fetch(&stream.key, seq).unwrap());
    let mut answers = Vec::new();
    drive(sender, receiver, |_, heard| {
        answers.extend(heard.iter().filter_map(|event| match event {
            IntakeEvent::Fetched { key, info, bytes } => {
                assert_eq!(
                    (key, info.meta, info.written_bytes),
                    (&stream.key, meta(), meta().frame_size_bytes)
                );
                check_bytes(info.seq, bytes);
                Some(Ok(info.seq))
            }
            IntakeEvent::NotFetched { key, why } => {
                assert_eq!(key, &stream.key);
                Some(Err(why.clone()))
            }
            _ => None,
        }));
        !answers.is_empty()
    });
    assert_eq!(answers.len(), 1, "{answers:?}");
    answers.remove(0)
}

#[test]
fn frames_are_sent_when_they_are_asked_for_and_only_then() {
    let stream = Stream::new();
    let mut publisher = publisher(&stream, 4, Policy::DROP_OLDEST);
    let mut receiver = receiver(&stream, &anywhere()).on_demand().listen().unwrap();
    let mut sender = on_demand(&stream, &mut receiver);
    let mut ask = |seq| fetch(&stream, &mut sender, &mut receiver, seq);
    assert_eq!(ask(None), Err(format!("stream {}: there is no frame yet", stream.key)));
    (1..=3).for_each(|_| _ = publish(&mut publisher));
    assert_eq!((ask(None), ask(Some(2)), ask(None), ask(Some(2))), (Ok(3), Ok(2), Ok(3), Ok(2)));
    // Who holds a frame keeps it for others.
    let mut holder = stream.subscriber("holder", STRICT).connect().unwrap();
    let held = next(&mut holder);
    assert_eq!(held.seq(), 3);
    (0..20).for_each(|_| _ = publish(&mut publisher));
    let newest = publish(&mut publisher);
    assert_eq!((ask(Some(3)), ask(None)), (Ok(3), Ok(newest)));
    let gone = ask(Some(1)).unwrap_err();
    assert!(gone.contains("frame 1 is not there; it is overwritten, or not published yet"), "{gone}");
    assert!(ask(Some(newest + 100)).unwrap_err().contains("is not there"));
    drop(held);
    (0..4).for_each(|_| _ = publish(&mut publisher));
    assert!(ask(Some(3)).unwrap_err().contains("frame 3 is not there"));
    assert!(!receiver.fetch(&"nobody".parse().unwrap(), None).unwrap(), "nobody sends it");
    assert_eq!(sender.courier().taken(), 0);
    assert_eq!((sender.stats().answered, sender.stats().delivered), (6, 0));
    crate::bridge::assert_gone(&far(&stream));
}

#[test]
fn a_frame_is_asked_for_between_those_that_are_published() {
    let stream = Stream::new();
    let mut publisher = publisher(&stream, 4, Policy::STRICT_WAIT);
    let mut receiver = receiver(&stream, &anywhere()).listen().unwrap();
    let mut sender = strict_sender(&stream, &receiver);
    let mut subscriber = far_subscriber(&stream);
    first_frame(&mut publisher, &mut sender, &mut receiver, &mut subscriber);
    drop(subscriber);
    let mut arrived = Vec::new();
    for round in 1..=10 {
        let seq = publish(&mut publisher);
        // Some are still on their way, some have come.
        if round % 2 == 0 {
            drive(&mut sender, &mut receiver, |_, heard| {
                arrived.extend(numbers(heard));
                arrived.last() == Some(&seq)
            });
        }
        assert!(receiver.fetch(&stream.key, Some(seq).filter(|_| round % 3 == 0)).unwrap());
        let mut fetched = Vec::new();
        drive(&mut sender, &mut receiver, |_, heard| {
            arrived.extend(numbers(heard));
            fetched.extend(heard.iter().filter_map(|event| match event {
                IntakeEvent::Fetched { info, bytes, .. } => {
                    check_bytes(info.seq, bytes);
                    Some(info.seq)
                }
                IntakeEvent::NotFetched { why, .. } => panic!("{why}"),
                _ => None,
            }));
            !fetched.is_empty() && arrived.last() == Some(&seq)
        });
        assert!(fetched == [seq] || fetched == [seq - 1] && round % 3 != 0, "{fetched:?} for {seq}");
    }
    assert_eq!(arrived, (2..=11).collect::<Vec<_>>());
    assert_eq!(sender.stats().answered, 10);
}

#[test]
fn a_frame_that_needs_more_memory_than_there_may_be_is_refused_and_the_link_goes_on() {
    let stream = Stream::new();
    let mut publisher = publisher(&stream, 4, Policy::DROP_OLDEST);
    let mut receiver = receiver(&stream, &anywhere()).on_demand().memory(100_000).listen().unwrap();
    let mut sender = on_demand(&stream, &mut receiver);
    publish(&mut publisher);
    for _ in 0..2 {
        let why = fetch(&stream, &mut sender, &mut receiver, None).unwrap_err();
        let bytes = meta().frame_size_bytes;
        let expected =
            format!("it needs {bytes} bytes of memory; of 100000 that may be used 100000 are left");
        assert_eq!(why, expected);
    }
    assert_eq!((receiver.senders(), sender.stats().lost_connections), (1, 0));
}

#[test]
fn whoever_waits_for_a_frame_hears_that_its_sender_is_gone() {
    let stream = Stream::new();
    let mut publisher = publisher(&stream, 4, Policy::DROP_OLDEST);
    let mut receiver = receiver(&stream, &anywhere()).on_demand().listen().unwrap();
    let sender = on_demand(&stream, &mut receiver);
    publish(&mut publisher);
    assert!(receiver.fetch(&stream.key, None).unwrap());
    drop(sender);
    let mut heard = Vec::new();
    crate::common::until("its end", || {
        heard.extend(received(&mut receiver));
        heard.iter().any(|event| matches!(event, IntakeEvent::Left { .. }))
    });
    let first = heard.first();
    assert!(
        matches!(first, Some(IntakeEvent::NotFetched { why, .. }) if why.contains("is lost")),
        "{heard:?}"
    );
}
