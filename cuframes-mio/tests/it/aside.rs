//! Claims that are set aside, and resumed.

use crate::common::{STRICT, Stream, check, fill, meta, next, publish};
use crate::embed::Loop;
use crate::slow::Slow;
use cuframes_mio::core::Policy;
use cuframes_mio::core::wire::ShutdownReason;
use cuframes_mio::{ServedPublisher, SetAside, now};

fn serve(stream: &Stream, slots: u64) -> ServedPublisher {
    stream.publisher(slots, Policy::DROP_OLDEST).create().unwrap().serve().unwrap()
}

/// Claims a frame and sets it aside.
fn aside(publisher: &mut ServedPublisher) -> SetAside {
    publisher.try_claim().unwrap().set_aside()
}

#[test]
fn a_frame_is_written_piece_by_piece_between_other_work_and_seen_when_it_is_whole() {
    let stream = Stream::new();
    let mut publisher = serve(&stream, 2);
    let mut subscriber = stream.subscriber("eye", STRICT).connect().unwrap();
    for seq in [5_u64, 6, 70] {
        let mut claim = publisher.try_claim_as(seq).unwrap();
        let (slot, memory) = (claim.slot(), claim.bytes_mut().as_ptr());
        let mut aside = claim.set_aside();
        let pieces = usize::try_from(meta().frame_size_bytes).unwrap().div_ceil(1000);
        for piece in 0..pieces {
            assert_eq!(aside.seq(), seq);
            assert!(subscriber.try_next().unwrap().is_none());
            let mut claim = publisher.resume_claim(aside).unwrap();
            assert_eq!((claim.seq(), claim.slot(), claim.bytes_mut().as_ptr()), (seq, slot, memory));
            let piece = claim.bytes_mut().chunks_mut(1000).nth(piece).unwrap();
            piece.chunks_mut(8).for_each(|word| word.copy_from_slice(&seq.to_le_bytes()));
            aside = claim.set_aside();
        }
        assert_eq!(publisher.resume_claim(aside).unwrap().commit(), seq);
        check(&next(&mut subscriber));
    }
}

#[test]
fn setting_aside_and_resuming_allocates_nothing() {
    let stream = Stream::new();
    let mut publisher = serve(&stream, 2);
    let mut kept = Some(aside(&mut publisher));
    let allocations = allocation_counter::measure(|| {
        for _ in 0..100 {
            let claim = kept.take().and_then(|aside| publisher.resume_claim(aside)).unwrap();
            kept = Some(claim.set_aside());
        }
    });
    assert_eq!(allocations.count_total, 0);
    assert_eq!(publisher.resume_claim(kept.unwrap()).unwrap().commit(), 1);
}

#[test]
fn dropping_a_resumed_claim_cancels_it() {
    let stream = Stream::new();
    let mut publisher = serve(&stream, 1);
    let aside = aside(&mut publisher);
    drop(publisher.resume_claim(aside).unwrap());
    assert_eq!(publish(&mut publisher), 1);
}

#[test]
fn what_another_publisher_set_aside_is_not_resumed_and_breaks_nothing() {
    let (here, there) = (Stream::new(), Stream::new());
    let (mut publisher, mut other) = (serve(&here, 2), serve(&there, 2));
    let mut subscriber = here.subscriber("eye", STRICT).connect().unwrap();
    let (ours, theirs) = (aside(&mut publisher), aside(&mut other));
    assert_eq!((ours.seq(), theirs.seq()), (1, 1));
    assert!(publisher.resume_claim(theirs).is_none());
    let mut claim = publisher.resume_claim(ours).unwrap();
    fill(&mut claim);
    assert_eq!(claim.commit(), 1);
    check(&next(&mut subscriber));
    assert_eq!(publish(&mut other), 1, "theirs was lost, and given up");
}

#[test]
fn what_was_given_up_is_not_resumed_although_its_number_was_set_aside_again() {
    let stream = Stream::new();
    let mut publisher = serve(&stream, 2);
    let old = aside(&mut publisher);
    let new = aside(&mut publisher);
    assert_eq!((old.seq(), new.seq()), (1, 1));
    assert!(publisher.resume_claim(old).is_none());
    assert_eq!(publisher.resume_claim(new).unwrap().commit(), 1);
}

#[test]
fn what_was_set_aside_and_lost_blocks_nothing() {
    let stream = Stream::new();
    let mut publisher = serve(&stream, 1);
    let mut subscriber = stream.subscriber("eye", STRICT).connect().unwrap();
    for seq in 1..=5 {
        // One slot, and it is claimed.
        drop(publisher.try_claim_as(seq + 100).unwrap().set_aside());
        assert_eq!(publish(&mut publisher), seq);
        check(&next(&mut subscriber));
    }
    drop(publisher.try_claim().unwrap().set_aside());
    publisher.shut_down(ShutdownReason::NORMAL).unwrap();
    stream.assert_nothing_left();
}

#[test]
fn a_claim_that_fails_gives_up_what_was_set_aside() {
    let stream = Stream::new();
    let mut publisher = serve(&stream, 2);
    let mut subscriber = stream.subscriber("eye", STRICT).connect().unwrap();
    assert_eq!(publish(&mut publisher), 1);
    let held = next(&mut subscriber);
    let aside = aside(&mut publisher);
    assert_eq!(aside.seq(), 2);
    assert!(publisher.try_claim_as(3).is_err(), "the slot of the frame that is held");
    assert!(publisher.resume_claim(aside).is_none());
    check(&held);
    assert_eq!(publish(&mut publisher), 2);
}

#[test]
fn in_a_loop_and_with_the_thread_that_serves_it_later_it_is_the_same_claim() {
    let stream = Stream::new();
    let publisher = stream.publisher(2, Policy::STRICT_WAIT).create().unwrap();
    let mut lives = Loop::new(publisher, stream.subscriber("eye", STRICT).start().unwrap());
    let claim = lives.publisher.try_claim_as(now(), 40).unwrap();
    let (slot, aside) = (claim.slot(), claim.set_aside());
    while !lives.subscriber.is_ready() {
        lives.turn();
    }
    let mut claim = lives.publisher.resume_claim(aside).unwrap();
    assert_eq!((claim.seq(), claim.slot()), (40, slot));
    fill(&mut claim);
    let aside = claim.set_aside();
    let Loop { publisher, mut subscriber, .. } = lives;
    let mut publisher = publisher.serve().unwrap();
    assert!(subscriber.poll_next().unwrap().is_none());
    assert_eq!(publisher.resume_claim(aside).unwrap().commit(), 40);
    let frame = subscriber.poll_next().unwrap().unwrap();
    assert_eq!(frame.seq(), 40);
    check(&frame);
}

#[test]
fn the_memory_of_a_stream_that_ends_is_freed_with_what_was_set_aside() {
    for is_served in [false, true] {
        let stream = Stream::new();
        let device = Slow::new(&stream.key);
        let mut publisher = stream.publisher(2, Policy::DROP_OLDEST).create_on(device.clone()).unwrap();
        let aside = publisher.try_claim(now()).unwrap().set_aside();
        if is_served {
            drop(publisher.serve().unwrap());
        } else {
            drop(publisher);
        }
        assert_eq!(device.open(), 0, "nothing is written any more");
        drop(aside);
        stream.assert_nothing_left();
    }
}
