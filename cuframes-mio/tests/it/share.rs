//! Frames pass from a publisher to its subscribers, and everything that can be done with them.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::common::{LONG, NEWEST, STRICT, Stream, check, check_bytes, meta, next, publish, until};
use cuframes_mio::core::error::ErrorCode;
use cuframes_mio::core::wire::ShutdownReason;
use cuframes_mio::core::wire::meta::Plane;
use cuframes_mio::core::{Features, Gone, Policy, Timeouts};
use cuframes_mio::{Accusation, Error, FrameLost, Leave, MemberEvent};

#[test]
fn a_frame_arrives_with_its_bytes_number_time_and_geometry() {
    let stream = Stream::new();
    let mut publisher = stream.publisher(4, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
    let mut subscriber = stream.subscriber("eye", NEWEST).connect().unwrap();
    assert!(subscriber.try_next().unwrap().is_none());
    let before = cuframes_mio::now().as_nanos();
    assert_eq!(publish(&mut publisher), 1);
    let frame = next(&mut subscriber);
    check(&frame);
    assert_eq!((frame.seq(), frame.lost(), *frame.meta()), (1, 0, meta()));
    assert!(frame.pts_ns() >= before && frame.pts_ns() <= cuframes_mio::now().as_nanos());
    assert_eq!(frame.plane_rows(0).unwrap().map(<[u8]>::len).collect::<Vec<_>>(), [320; 240]);
    assert_eq!(frame.plane_rows(1).unwrap().count(), 120);
    assert!(frame.plane_rows(2).is_none());
    frame.release().unwrap();
    let member = &publisher.members()[0];
    assert_eq!((member.bit.get(), member.name.as_str(), member.pid), (1, "eye", std::process::id().into()));
}

#[test]
fn what_is_written_by_rows_is_read_by_rows_and_padding_stays_as_it_was() {
    let stream = Stream::new();
    let mut publisher = stream.publisher(1, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
    let mut subscriber = stream.subscriber("eye", NEWEST).connect().unwrap();
    let mut claim = publisher.claim().unwrap();
    claim.bytes_mut().fill(0xEE);
    let numbers = || 0..=0xED;
    for plane in [0, 1] {
        for (row, number) in claim.plane_rows_mut(plane).unwrap().zip(numbers().cycle()) {
            row.fill(number);
        }
    }
    assert!(claim.plane_rows_mut(2).is_none());
    claim.commit();

    let frame = next(&mut subscriber);
    for (index, plane) in meta().planes().enumerate() {
        let rows: Vec<_> = frame.plane_rows(index).unwrap().collect();
        assert_eq!(rows.len(), usize::try_from(plane.rows).unwrap());
        for (row, number) in rows.into_iter().zip(numbers().cycle()) {
            assert_eq!(row, vec![number; usize::try_from(plane.row_bytes).unwrap()]);
        }
    }
    let padding: u32 = meta().planes().map(|plane| plane.rows * (plane.pitch - plane.row_bytes)).sum();
    let untouched = frame.bytes().unwrap().iter().filter(|byte| **byte == 0xEE).count();
    assert_eq!(untouched, usize::try_from(padding).unwrap());
}

#[test]
fn the_rows_of_a_frames_tiles_are_all_its_rows_piece_by_piece() {
    let stream = Stream::new();
    let mut publisher = stream.publisher(1, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
    let mut subscriber = stream.subscriber("eye", NEWEST).connect().unwrap();
    publish(&mut publisher);
    let frame = next(&mut subscriber);
    let tiles = frame.meta().tiles(100, 96).unwrap();
    assert_eq!(tiles.len(), 12);
    for (index, plane) in meta().planes().enumerate() {
        let mut rows: Vec<Vec<u8>> = vec![Vec::new(); usize::try_from(plane.rows).unwrap()];
        for tile in tiles.iter() {
            let part = frame.meta().tile_planes(&tile).unwrap().nth(index).unwrap();
            let first = usize::try_from(if index == 0 { tile.y } else { tile.y / 2 }).unwrap();
            // Those of one row of tiles come from left to right.
            for (row, piece) in rows.iter_mut().skip(first).zip(frame.rows(part).unwrap()) {
                row.extend_from_slice(piece);
            }
        }
        assert_eq!(rows, frame.plane_rows(index).unwrap().collect::<Vec<_>>());
    }
}

#[test]
fn rows_that_are_not_in_the_frame_are_not_to_be_had() {
    let stream = Stream::new();
    let mut publisher = stream.publisher(1, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
    let mut subscriber = stream.subscriber("eye", NEWEST).connect().unwrap();
    publish(&mut publisher);
    let frame = next(&mut subscriber);
    let size = meta().frame_size_bytes;
    let rows = |offset, pitch, row_bytes, rows| {
        frame
            .rows(Plane { offset, pitch, row_bytes, rows })
            .map(|rows| rows.map(<[u8]>::len).collect::<Vec<_>>())
    };
    assert_eq!(rows(size - 70, 32, 6, 3), Some(vec![6; 3]));
    assert_eq!(rows(size - 69, 32, 6, 3), None);
    assert_eq!(rows(0, 6, 6, 1), Some(vec![6]));
    for (offset, pitch, row_bytes, number) in [
        (0, 0, 0, 1),
        (0, 0, 1, 1),
        (0, 5, 6, 1),
        (0, 6, 0, 1),
        (0, 6, 6, 0),
        (size, 1, 1, 1),
        (u64::MAX, 1, 1, 2),
        (0, u32::MAX, u32::MAX, u32::MAX),
    ] {
        assert_eq!(rows(offset, pitch, row_bytes, number), None, "{offset} {pitch} {row_bytes} {number}");
    }
}

#[test]
fn nobody_loses_a_frame_under_strict_wait_and_the_stream_ends_with_a_word() {
    let stream = Stream::new();
    let mut publisher = stream.publisher(3, Policy::STRICT_WAIT).create().unwrap().serve().unwrap();
    let readers: Vec<_> = (0..3)
        .map(|number| {
            let mut subscriber = stream.subscriber("strict", STRICT).connect().unwrap();
            thread::spawn(move || {
                let mut expected = 1;
                loop {
                    match subscriber.next(LONG) {
                        Ok(frame) => {
                            let frame = frame.expect("a frame in time");
                            check(&frame);
                            assert_eq!((frame.seq(), frame.lost()), (expected, 0), "reader {number}");
                            expected += 1;
                        }
                        Err(Error::Gone { gone, .. }) => return (expected - 1, gone),
                        Err(error) => panic!("{error}"),
                    }
                }
            })
        })
        .collect();
    publisher.wait_for(3, LONG).unwrap();
    for _ in 0..500 {
        publish(&mut publisher);
    }
    publisher.shut_down(ShutdownReason::UPGRADE).unwrap();
    for reader in readers {
        assert_eq!(reader.join().unwrap(), (500, Gone::Shutdown(ShutdownReason::UPGRADE)));
    }
    stream.assert_nothing_left();
}

#[test]
fn a_slow_reader_under_drop_oldest_sees_gaps_and_no_other_bytes() {
    for lease in [true, false] {
        let stream = Stream::new();
        let mut publisher = stream.publisher(2, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
        let features = if lease { Features(0b111) } else { Features(0b101) };
        let mut subscriber = stream.subscriber("slow", STRICT).features(features).connect().unwrap();
        let reader = thread::spawn(move || {
            let (mut seen, mut lost, mut overwritten, mut first, mut last) = (0, 0, 0, None, 0);
            let mut copy = vec![0; meta().frame_size_bytes.try_into().unwrap()];
            loop {
                let frame = match subscriber.next(LONG) {
                    Ok(frame) => frame.expect("a frame in time"),
                    Err(Error::Gone { .. }) => return (seen, lost, overwritten, first, last),
                    Err(error) => panic!("{error}"),
                };
                lost += frame.lost();
                last = frame.seq();
                first.get_or_insert(last);
                thread::sleep(Duration::from_micros(200));
                assert_eq!(frame.bytes().is_some(), lease);
                match frame.copy_to(&mut copy) {
                    Ok(len) => {
                        assert_eq!(len, copy.len());
                        check_bytes(frame.seq(), &copy);
                        seen += 1;
                    }
                    Err(FrameLost::Overwritten) if !lease => overwritten += 1,
                    Err(error) => panic!("{error}"),
                }
                assert!(frame.release().is_ok() || !lease);
            }
        });
        let mut published = 0;
        for _ in 0..3000 {
            published = publish(&mut publisher);
        }
        publisher.shut_down(ShutdownReason::NORMAL).unwrap();
        let (seen, lost, overwritten, first, last) = reader.join().unwrap();
        assert!(seen > 0 && last <= published, "{seen} seen");
        assert!(lost > 0, "a reader this slow can't have kept up");
        // What was overwritten before the first look is no gap (D-33).
        let numbers = last - first.unwrap() + 1;
        assert_eq!(seen + overwritten + lost, numbers, "every number is accounted for");
    }
}

#[test]
fn frames_are_held_together_and_sent_to_other_threads() {
    let stream = Stream::new();
    let mut publisher = stream.publisher(4, Policy::STRICT_WAIT).create().unwrap().serve().unwrap();
    let mut subscriber = stream.subscriber("batch", STRICT).connect().unwrap();
    let (to_worker, frames) = mpsc::channel::<Vec<cuframes_mio::Frame>>();
    let worker = thread::spawn(move || {
        let mut released = 0;
        for batch in frames {
            batch.iter().for_each(check);
            for frame in batch.into_iter().rev() {
                frame.release().unwrap();
                released += 1;
            }
        }
        released
    });
    for _ in 0..50 {
        for _ in 0..3 {
            publish(&mut publisher);
        }
        to_worker.send((0..3).map(|_| next(&mut subscriber)).collect()).unwrap();
    }
    drop(to_worker);
    assert_eq!(worker.join().unwrap(), 150);
}

#[test]
fn a_frame_outlives_its_subscriber_and_the_goodbye_waits_for_it() {
    let stream = Stream::new();
    let mut publisher = stream.publisher(1, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
    let mut subscriber = stream.subscriber("short", NEWEST).connect().unwrap();
    publish(&mut publisher);
    let frame = next(&mut subscriber);
    drop(subscriber);
    assert_eq!(publisher.try_claim().unwrap_err().waiting_for_leases, 0b10);
    check(&frame);
    frame.release().unwrap();
    assert_eq!(publish(&mut publisher), 2);
    // UNSUBSCRIBE frees the bit at once, with no quarantine.
    until("bit 1 to be free", || {
        stream.subscriber("after", NEWEST).connect().unwrap().bit().unwrap().get() == 1
    });
}

#[test]
fn who_joins_late_starts_with_the_current_frame() {
    let stream = Stream::new();
    let mut publisher = stream.publisher(4, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
    for _ in 0..6 {
        publish(&mut publisher);
    }
    for mode in [NEWEST, STRICT] {
        let mut subscriber = stream.subscriber("late", mode).connect().unwrap();
        let frame = next(&mut subscriber);
        check(&frame);
        assert_eq!((frame.seq(), frame.lost()), (6, 0));
    }
}

#[test]
fn waiting_for_subscribers_says_who_came() {
    let stream = Stream::new();
    let publisher = stream.publisher(2, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
    let _one = stream.subscriber("recorder", NEWEST).connect().unwrap();
    publisher.wait_for(1, LONG).unwrap();
    let error = publisher.wait_for(2, Duration::from_millis(20)).unwrap_err();
    assert_eq!((error.wanted, error.members.len()), (2, 1));
    let expected = format!("1 of 2 subscribers came within 20ms: recorder (pid {})", std::process::id());
    assert_eq!(error.to_string(), expected);
}

#[test]
fn who_does_not_acknowledge_is_evicted_and_the_others_go_on() {
    let stream = Stream::new();
    let mut timeouts = Timeouts::default();
    timeouts.consumer_ack = Duration::from_secs(1);
    let builder = stream.publisher(2, Policy::STRICT_WAIT).timeouts(timeouts);
    let mut publisher = builder.create().unwrap().serve().unwrap();
    let mut asleep = stream.subscriber("asleep", STRICT).connect().unwrap();
    let mut good = stream.subscriber("good", STRICT).connect().unwrap();
    let reader = thread::spawn(move || {
        (1..=40).for_each(|expected| {
            let frame = next(&mut good);
            check(&frame);
            assert_eq!((frame.seq(), frame.lost()), (expected, 0));
        });
    });
    for _ in 0..40 {
        publish(&mut publisher);
    }
    reader.join().unwrap();
    let error = asleep.next(LONG).unwrap_err();
    assert_eq!(error.code(), ErrorCode::EVICTED, "{error}");
    let events: Vec<_> = std::iter::from_fn(|| publisher.poll_event()).collect();
    let evicted = |event: &MemberEvent| match event {
        MemberEvent::Left(member, how) => {
            member.name.as_str() == "asleep" && *how == Leave::Evicted(Accusation::Ack)
        }
        _ => false,
    };
    assert!(events.iter().any(evicted), "{events:?}");
}

#[test]
fn a_lease_held_for_too_long_is_taken_back_and_the_frame_says_so() {
    let stream = Stream::new();
    let mut timeouts = Timeouts::default();
    timeouts.lease = Duration::from_millis(150);
    let builder = stream.publisher(1, Policy::DROP_OLDEST).timeouts(timeouts);
    let mut publisher = builder.create().unwrap().serve().unwrap();
    let mut subscriber = stream.subscriber("holder", NEWEST).connect().unwrap();
    publish(&mut publisher);
    let frame = next(&mut subscriber);
    assert_eq!(publish(&mut publisher), 2, "after the eviction");
    assert_eq!(frame.release(), Err(FrameLost::Evicted));
    assert_eq!(subscriber.next(LONG).unwrap_err().code(), ErrorCode::EVICTED);
}

#[test]
fn a_claim_that_is_dropped_is_never_seen() {
    let stream = Stream::new();
    let mut publisher = stream.publisher(2, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
    let mut subscriber = stream.subscriber("eye", STRICT).connect().unwrap();
    drop(publisher.claim().unwrap());
    assert!(subscriber.next(Duration::from_millis(20)).unwrap().is_none());
    assert_eq!(publish(&mut publisher), 1);
    assert_eq!(next(&mut subscriber).seq(), 1);
}

#[test]
fn thirty_one_subscribers_are_served_and_the_next_is_refused() {
    let stream = Stream::new();
    let mut publisher = stream.publisher(2, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
    let mut subscribers: Vec<_> =
        (0..31).map(|_| stream.subscriber("one of many", NEWEST).connect().unwrap()).collect();
    let error = stream.subscriber("too late", NEWEST).connect().unwrap_err();
    assert_eq!(error.code(), ErrorCode::TOO_MANY);
    assert!(error.to_string().contains(stream.key.as_str()), "{error}");
    publish(&mut publisher);
    for subscriber in &mut subscribers {
        check(&next(subscriber));
    }
}

#[test]
fn a_publisher_that_is_dropped_says_so_and_leaves_nothing() {
    let stream = Stream::new();
    let publisher = stream.publisher(2, Policy::DROP_OLDEST).create().unwrap();
    drop(publisher);
    stream.assert_nothing_left();
    let publisher = stream.publisher(2, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
    let mut subscriber = stream.subscriber("eye", NEWEST).connect().unwrap();
    let dropped = thread::spawn(move || drop(publisher));
    let Err(Error::Gone { gone, .. }) = subscriber.next(LONG) else { panic!("the stream has ended") };
    assert_eq!(gone, Gone::Shutdown(ShutdownReason::NORMAL));
    drop(subscriber);
    dropped.join().unwrap();
    stream.assert_nothing_left();
}

#[test]
fn errors_name_the_stream_and_the_remedy() {
    let stream = Stream::new();
    let error = stream.subscriber("eye", NEWEST).connect().unwrap_err();
    assert_eq!(error.code(), ErrorCode::NOT_FOUND);
    assert!(error.to_string().contains(&stream.dir.path().display().to_string()), "{error}");
    let _publisher = stream.publisher(2, Policy::DROP_OLDEST).create().unwrap();
    let error = stream.publisher(2, Policy::DROP_OLDEST).create().unwrap_err();
    assert_eq!(error.code(), ErrorCode::ALREADY_EXISTS);
    assert!(error.to_string().contains(stream.key.as_str()), "{error}");
}
