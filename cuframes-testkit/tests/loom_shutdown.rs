//! Model of the shutdown flag: whoever sees it finds everything that was published before (§2, D-30).

#![cfg(loom)]
#![expect(clippy::unwrap_used, reason = "a failure ends the test")]

use cuframes_core::{Features, Policy, SubscriberMode};
use cuframes_testkit::loom::weakened::FlagBeforeFrames;
use cuframes_testkit::loom::{AsShipped, Field, LoomRing, Weakening, check};
use loom::thread;

/// One thread publishes the last frames, another sets the flag then.
fn shuts_down<K: Weakening>() {
    let words = [Field::GlobalSeq, Field::Seq, Field::ShutdownFlag];
    let mut ring = LoomRing::<K>::new(2, Policy::DROP_OLDEST, &words);
    let mut reader = ring.join(SubscriberMode::STRICT_ORDER, Features::NONE);
    let reading = thread::spawn(move || {
        let shutting_down = reader.ring.is_shutting_down();
        (shutting_down, [reader.read_next(), reader.read_next()].into_iter().flatten().count())
    });
    let LoomRing { mut roster, mut writer, place: _ } = ring;
    let publishing = thread::spawn(move || [writer.publish(), writer.publish()]);
    publishing.join().unwrap();
    roster.shut_down();
    let (shutting_down, seen) = reading.join().unwrap();
    assert!(!shutting_down || seen == 2, "the flag was seen, and only {seen} of 2 frames");
}

// 339 executions, under 1 s.
#[test]
fn who_sees_the_shutdown_flag_finds_the_last_frame() {
    check(shuts_down::<AsShipped>);
}

#[test]
#[should_panic(expected = "the flag was seen")]
fn who_sees_the_shutdown_flag_misses_the_last_frame_if_the_flag_may_come_first() {
    check(shuts_down::<FlagBeforeFrames>);
}
