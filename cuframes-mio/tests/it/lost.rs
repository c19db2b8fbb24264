//! Files that are deleted under a stream, and words of the region that somebody writes over: the stream goes on, and the
//! publisher says so and puts right what it can (P-21, D-23).

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crate::common::{LONG, NEWEST, STRICT, Stream, check, fill, until};
use cuframes_mio::core::error::ErrorCode;
use cuframes_mio::core::{Features, Policy};
use cuframes_mio::{ServedPublisher, Subscriber};

fn pass_a_frame(publisher: &mut ServedPublisher, subscriber: &mut Subscriber) {
    let mut claim = publisher.claim().unwrap();
    fill(&mut claim);
    let seq = claim.commit();
    let frame = subscriber.next(LONG).unwrap().expect("a frame in time");
    check(&frame);
    assert_eq!(frame.seq(), seq);
}

#[test]
fn when_the_region_is_deleted_or_replaced_the_stream_goes_on_and_others_may_join() {
    for replace in [false, true] {
        let stream = Stream::new();
        let mut publisher = stream.publisher(2, Policy::STRICT_WAIT).create().unwrap().serve().unwrap();
        let mut before = stream.subscriber("before", STRICT).connect().unwrap();
        pass_a_frame(&mut publisher, &mut before);
        assert!(!publisher.stats().region_lost);
        fs::remove_file(stream.region()).unwrap();
        if replace {
            fs::write(stream.region(), "somebody else's").unwrap();
        }
        until("the publisher to notice", || publisher.stats().region_lost);
        pass_a_frame(&mut publisher, &mut before);
        drop(before);
        let mut after = stream.subscriber("after", NEWEST).connect().unwrap();
        pass_a_frame(&mut publisher, &mut after);
        drop((after, publisher));
        assert_eq!(stream.region().exists(), replace, "what is not ours stays");
    }
}

#[test]
fn when_the_socket_is_deleted_the_stream_goes_on_and_the_publisher_says_so() {
    let stream = Stream::new();
    let mut publisher = stream.publisher(2, Policy::STRICT_WAIT).create().unwrap().serve().unwrap();
    let mut subscriber = stream.subscriber("eye", STRICT).connect().unwrap();
    fs::remove_file(stream.socket()).unwrap();
    until("the publisher to notice", || publisher.stats().socket_lost);
    pass_a_frame(&mut publisher, &mut subscriber);
    let error = stream.subscriber("late", STRICT).connect().unwrap_err();
    assert_eq!(error.code(), ErrorCode::NOT_FOUND);
    let error = stream.publisher(2, Policy::STRICT_WAIT).create().unwrap_err();
    assert_eq!(error.code(), ErrorCode::ALREADY_EXISTS, "the key is still taken: {error}");
}

#[test]
fn words_that_only_the_publisher_writes_are_put_right() {
    let stream = Stream::new();
    let mut publisher = stream.publisher(2, Policy::STRICT_WAIT).create().unwrap().serve().unwrap();
    let mut subscriber = stream.subscriber("eye", STRICT).connect().unwrap();
    let region = OpenOptions::new().read(true).write(true).open(stream.region()).unwrap();
    let before = fs::read(stream.region()).unwrap();
    // The header but for the three words that change, what slot 0 is made of, and whose bit 1 is.
    let ranges =
        [0x00..0xC0, 0xC8..0xF0, 0x120..0x180, 0xD00 + 0x80..0xD00 + 0x90, 0xD00 + 0xA0..0xD00 + 0xC0];
    for range in ranges.clone() {
        region.write_all_at(&vec![0xA5; range.len()], u64::try_from(range.start).unwrap()).unwrap();
    }
    // Whoever joins finds it as it should be, although it looks at the region alone.
    let plain = Features::FD_PASSING.union(Features::LEASE).union(Features::WAKE_HINT);
    let late = stream.subscriber("late", STRICT).features(plain).connect().unwrap();
    let words: usize = ranges.clone().map(|range| range.len() / 8).iter().sum();
    assert_eq!(publisher.stats().restored_words, u64::try_from(words).unwrap());
    let after = fs::read(stream.region()).unwrap();
    for range in ranges {
        // But for `subscriber_bitmap`, where the new one is.
        let changed: Vec<_> = range.filter(|&at| at != 0xC8 && before[at] != after[at]).collect();
        assert_eq!(changed, [0; 0]);
    }
    drop(late);
    until("the late one to be gone", || publisher.members().len() == 1);
    pass_a_frame(&mut publisher, &mut subscriber);

    // Without anybody who joins it takes a moment; until then it looks as if the subscriber were evicted.
    region.write_all_at(&[0xA5; 8], 0xD00 + 0x80).unwrap();
    let restored = u64::try_from(words).unwrap() + 1;
    until("the word to be put right", || publisher.stats().restored_words == restored);
    pass_a_frame(&mut publisher, &mut subscriber);
}

#[test]
fn frames_that_are_missed_because_somebody_wrote_over_a_state_are_counted() {
    let stream = Stream::new();
    let mut publisher = stream.publisher(4, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
    // Without the witness, which nobody can write over.
    let mut subscriber = stream.subscriber("eye", STRICT).features(Features(0b00_0111)).connect().unwrap();
    let region = OpenOptions::new().write(true).open(stream.region()).unwrap();
    let state = |value: u64| region.write_all_at(&value.to_le_bytes(), 0xD00 + 0x80).unwrap();
    let (mut got, mut lost, mut is_missed) = (0, 0, false);
    // The publisher may put it right before we look.
    while !is_missed {
        state(0);
        publisher.claim().unwrap().commit();
        let early = subscriber.try_next().unwrap();
        state(2);
        is_missed = early.is_none();
        publisher.claim().unwrap().commit();
        for frame in [early, Some(subscriber.next(LONG).unwrap().expect("a frame in time"))] {
            got += u64::from(frame.is_some());
            lost += frame.map_or(0, |frame| frame.lost());
        }
    }
    let stats = subscriber.stats();
    assert_eq!((stats.frames, stats.lost), (got, lost));
    assert_eq!(got + lost, publisher.stats().frames, "each is one or the other: {stats:?}");
}

#[test]
fn a_number_that_somebody_else_writes_makes_no_frame_of_other_bytes() {
    let stream = Stream::new();
    let mut publisher = stream.publisher(2, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
    for features in [Features(0b10_0111), Features(0b10_0101)] {
        let mut subscriber = stream.subscriber("eye", STRICT).features(features).connect().unwrap();
        let region = OpenOptions::new().write(true).open(stream.region()).unwrap();
        let mut claim = publisher.claim().unwrap();
        fill(&mut claim);
        let published = claim.commit();
        while subscriber.next(LONG).unwrap().expect("a frame in time").seq() != published {}
        // The slot that holds it, and `global_seq`: as if it were a later one.
        let forged = published + 2;
        region.write_all_at(&forged.to_le_bytes(), 0x100 + 0xC0 * (published % 2)).unwrap();
        region.write_all_at(&forged.to_le_bytes(), 0xC0).unwrap();
        assert!(subscriber.next(Duration::from_millis(50)).unwrap().is_none());
        let mut claim = publisher.claim().unwrap();
        fill(&mut claim);
        let seq = claim.commit();
        let frame = subscriber.next(LONG).unwrap().expect("a frame in time");
        let mut copy = vec![0; frame.len()];
        frame.copy_to(&mut copy).unwrap();
        crate::common::check_bytes(seq, &copy);
        assert_eq!((frame.seq(), frame.lost()), (seq, 0));
    }
}
