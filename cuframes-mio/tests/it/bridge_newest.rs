//! A link that is too slow for a stream of which the newest frames are wanted; and bytes that are carried in another way.

use crate::bridge::{
    anywhere, drive, far_subscriber, first_frame, look, numbers, offer, publisher, receiver, sent,
};
use crate::common::{NEWEST, STRICT, Stream, check, publish, until};
use crate::net_carriers::Trickle;
use cuframes_mio::Error;
use cuframes_mio::bridge::{StreamSendError, StreamSender};
use cuframes_mio::core::Policy;

#[test]
fn a_link_that_is_too_slow_leaves_out_whole_frames_and_counts_them() {
    let stream = Stream::new();
    let mut publisher = publisher(&stream, 4, Policy::DROP_OLDEST);
    let mut receiver = receiver(&stream, &anywhere()).listen().unwrap();
    let settings = StreamSender::builder(receiver.endpoint().clone());
    let subscriber = stream.subscriber("sender", NEWEST).no_ack().connect().unwrap();
    let mut sender = settings.start(subscriber).unwrap();
    assert_eq!(sender.window(), 2);
    let mut subscriber = far_subscriber(&stream);
    first_frame(&mut publisher, &mut sender, &mut receiver, &mut subscriber);
    let (mut arrived, mut lost) = (vec![1], 0);
    for _ in 0..5 {
        // The receiver is busy with something else.
        for _ in 0..40 {
            publish(&mut publisher);
            sent(&mut sender);
        }
        let newest = publish(&mut publisher);
        drive(&mut sender, &mut receiver, |_, heard| {
            arrived.extend(numbers(heard));
            while let Some(frame) = look(&mut subscriber) {
                check(&frame);
                lost += frame.lost();
            }
            arrived.last() == Some(&newest)
        });
    }
    let newest = *arrived.last().unwrap();
    assert!(arrived.is_sorted_by(|a, b| a < b), "{arrived:?}");
    // Two that were on the way, and the newest, each time.
    assert!(arrived.len() <= 16, "{arrived:?}");
    let courier = sender.courier();
    assert_eq!(courier.taken(), u64::try_from(arrived.len()).unwrap());
    assert_eq!(courier.taken() + courier.lost(), newest);
    // Who looks at the far end sees the same gaps; what came last is among those that it looked at.
    until("the last one", || {
        lost += look(&mut subscriber).map_or(0, |frame| frame.lost());
        lost == courier.lost()
    });
    assert_eq!((sender.stats().given_up, sender.stats().refused), (0, 0));
}

#[test]
fn frames_that_are_published_while_no_receiver_is_there_are_counted() {
    let stream = Stream::new();
    let mut publisher = publisher(&stream, 4, Policy::DROP_OLDEST);
    // Nobody listens there any more.
    let gone = receiver(&stream, &anywhere()).listen().unwrap().endpoint().clone();
    let subscriber = stream.subscriber("sender", NEWEST).no_ack().connect().unwrap();
    let mut sender = StreamSender::builder(gone).start(subscriber).unwrap();
    for _ in 0..3 {
        let before = sender.courier().lost();
        for _ in 0..20 {
            publish(&mut publisher);
        }
        until("a look at the stream", || {
            sent(&mut sender);
            sender.courier().lost() > before
        });
    }
    // It has joined at the first frame that it looked at.
    assert!((41..=60).contains(&sender.courier().lost()), "{}", sender.courier().lost());
    assert_eq!(sender.courier().taken(), 0);
}

#[test]
fn a_link_over_another_carrier_works_in_the_same_way() {
    let stream = Stream::new();
    let mut publisher = publisher(&stream, 4, Policy::STRICT_WAIT);
    let carrier = Trickle { most: 1000 };
    let mut receiver = receiver(&stream, &anywhere()).listen_over(carrier).unwrap();
    let copier = Box::new(|frame: &cuframes_mio::Frame| -> Result<Vec<u8>, Error> {
        unreachable!("frame {} is in host memory", frame.seq())
    });
    let settings = StreamSender::builder(receiver.endpoint().clone()).strict();
    let subscriber = stream.subscriber("sender", STRICT).connect().unwrap();
    let mut sender = settings.start_over(subscriber, copier, carrier).unwrap();
    let mut far = far_subscriber(&stream);
    let mut next = 1;
    publish(&mut publisher);
    until("all frames", || {
        if next > 1 && publisher.stats().frames < 30 {
            offer(&mut publisher);
        }
        sent(&mut sender);
        crate::bridge::received(&mut receiver);
        while let Some(frame) = look(&mut far) {
            assert_eq!((frame.seq(), frame.lost()), (next, 0));
            check(&frame);
            next += 1;
        }
        next > 30
    });
    assert_eq!(sender.stats().lost_connections, 0);
}

#[test]
fn frames_that_may_be_overwritten_while_they_are_sent_are_not_sent() {
    let stream = Stream::new();
    let subscriber = stream.reconnecting(STRICT).start().unwrap();
    let error = StreamSender::builder(anywhere()).start(subscriber).unwrap_err();
    assert!(matches!(error, StreamSendError::NoLeases { .. }));
    assert!(error.to_string().contains("its publisher grants no leases"), "{error}");
}
