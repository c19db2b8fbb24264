//! Frames arrive, whole and in time, over both ways to share memory.

use cuframes_core::Backend;

use crate::stage::{Actor, Stage};

const BOTH: [Backend; 2] = [Backend::CUDA_IPC, Backend::CUDA_VMM];

/// Ends with success, and tells this.
fn ends_well(actor: Actor, told: &[&str]) {
    let (status, heard) = actor.end();
    assert!(status.success(), "{heard:?}");
    assert_eq!(heard, told);
}

#[test]
fn every_subscriber_sees_every_frame_of_a_strict_publisher() {
    for (backend, in_turns) in BOTH.into_iter().flat_map(|backend| [(backend, false), (backend, true)]) {
        let stage = Stage::new(backend).in_turns(in_turns);
        let mut publisher =
            Actor::start(stage.role("publishes").env("TEST_STRICT", "1").env("TEST_WAIT", "3"));
        publisher.wait_for("ready");
        let subscribers = [(); 3].map(|()| Actor::start(&mut stage.role("subscribes")));
        for subscriber in subscribers {
            ends_well(subscriber, &["attached", "seen 20", "well"]);
        }
        ends_well(publisher, &["well"]);
        stage.check(4);
    }
}

#[test]
fn no_frame_is_seen_before_it_is_complete_or_after_it_was_overwritten() {
    // Every copy has two halves, with 5 ms between them, and giving a frame back takes 5 ms.
    for backend in BOTH {
        for strict in ["0", "1"] {
            let stage = Stage::new(backend).slow(5).in_turns(strict == "0");
            let mut publisher = stage.role("publishes");
            publisher.env("TEST_STRICT", strict).env("TEST_RING", "2").env("TEST_WAIT", "2");
            let mut publisher = Actor::start(&mut publisher);
            publisher.wait_for("ready");
            let subscribers = [(); 2].map(|()| Actor::start(&mut stage.role("subscribes")));
            for subscriber in subscribers {
                let (status, heard) = subscriber.end();
                assert!(status.success() && heard.last().is_some_and(|last| last == "well"), "{heard:?}");
                if strict == "1" {
                    assert!(heard.contains(&"seen 20".to_string()), "{heard:?}");
                }
            }
            ends_well(publisher, &["well"]);
            stage.check(3);
        }
    }
}

#[test]
fn committing_does_not_wait_for_the_stream() {
    for backend in BOTH {
        let stage = Stage::new(backend);
        let publisher = Actor::start(
            stage
                .role("publishes_on_a_stream_that_stands_still")
                .env("FAKE_CUDA_FAIL", "cuLaunchHostFunc@1=hang"),
        );
        ends_well(publisher, &["well"]);
    }
}

#[test]
fn frames_of_the_caller_s_own_are_shared_where_they_are() {
    let stage = Stage::new(Backend::CUDA_IPC);
    let mut publisher = Actor::start(stage.role("publishes_frames_of_its_own").env("TEST_STRICT", "1"));
    publisher.wait_for("ready");
    ends_well(Actor::start(&mut stage.role("subscribes")), &["attached", "seen 20", "well"]);
    ends_well(publisher, &["well"]);
    stage.check(2);
}

#[test]
fn who_has_no_device_is_told_where_the_frames_are() {
    for (backend, text) in [(Backend::CUDA_IPC, "memory of kind cuda"), (Backend::CUDA_VMM, "UNSUPPORTED")] {
        let stage = Stage::new(backend);
        let mut publisher = Actor::start(stage.role("publishes").env("TEST_FRAMES", "0"));
        publisher.wait_for("ready");
        let (_, heard) = Actor::start(&mut stage.role("subscribes_without_a_device")).end();
        assert!(matches!(&heard[..], [error] if error.contains(text)), "{heard:?}");
        // The stream goes on.
        let few = Actor::start(stage.role("subscribes").env("TEST_TAKE", "5"));
        ends_well(few, &["attached", "seen 5", "well"]);
        stage.stop();
        ends_well(publisher, &["well"]);
    }
}

#[test]
fn a_killed_subscriber_does_not_stop_the_others() {
    for backend in BOTH {
        let stage = Stage::new(backend);
        let mut publisher =
            Actor::start(stage.role("publishes").env("TEST_STRICT", "1").env("TEST_WAIT", "2"));
        publisher.wait_for("ready");
        let mut victim = Actor::start(&mut stage.role("holds_a_frame"));
        victim.wait_for("attached");
        let good = Actor::start(&mut stage.role("subscribes"));
        victim.wait_for("holds 1");
        victim.kill();
        ends_well(good, &["attached", "seen 20", "well"]);
        ends_well(publisher, &["well"]);
        stage.check_reports(2);
    }
}

#[test]
fn a_killed_publisher_ends_its_subscribers_with_an_error_and_they_leave_nothing_open() {
    for backend in BOTH {
        let stage = Stage::new(backend);
        let mut publisher = Actor::start(stage.role("publishes").env("TEST_WAIT", "31"));
        publisher.wait_for("ready");
        let mut subscriber = Actor::start(&mut stage.role("subscribes"));
        subscriber.wait_for("attached");
        publisher.kill();
        let (_, heard) = subscriber.end();
        assert!(matches!(&heard[..], [error] if error.contains("the connection ended")), "{heard:?}");
        stage.check_reports(1);
    }
}

#[test]
fn a_publisher_that_is_killed_while_frames_are_read_ends_its_subscribers_with_an_error() {
    for backend in BOTH {
        let stage = Stage::new(backend).slow(2);
        let mut publisher =
            Actor::start(stage.role("publishes").env("TEST_FRAMES", "0").env("TEST_STRICT", "1"));
        publisher.wait_for("ready");
        let mut reads = Actor::start(stage.role("subscribes").env("TEST_TELL", "1"));
        let mut holds = Actor::start(&mut stage.role("holds_a_frame"));
        reads.wait_for("read 3");
        holds.wait_for("attached");
        assert!(holds.hear().unwrap().starts_with("holds"));
        publisher.kill();
        let (_, heard) = reads.end();
        let last = heard.last().unwrap();
        assert!(last.starts_with("error: ") && last.contains("the connection ended"), "{heard:?}");
        holds.kill();
        stage.check_reports(1);
    }
}

#[test]
fn a_publisher_that_is_killed_with_a_frame_under_way_ends_its_subscribers_with_an_error() {
    for backend in BOTH {
        let stage = Stage::new(backend);
        let mut publisher = Actor::start(&mut stage.role("publishes_one_and_has_the_next_under_way"));
        publisher.wait_for("ready");
        let mut subscriber = Actor::start(stage.role("subscribes").env("TEST_TELL", "1"));
        subscriber.wait_for("read 1");
        publisher.wait_for("under way");
        publisher.kill();
        let (_, heard) = subscriber.end();
        assert!(matches!(&heard[..], [error] if error.contains("the connection ended")), "{heard:?}");
        stage.check_reports(1);
    }
}

#[test]
fn a_complete_frame_does_not_wait_for_the_next_one() {
    for (backend, in_turns) in BOTH.into_iter().flat_map(|backend| [(backend, false), (backend, true)]) {
        let stage = Stage::new(backend).in_turns(in_turns);
        let mut publisher = Actor::start(&mut stage.role("publishes_one_and_has_the_next_under_way"));
        publisher.wait_for("ready");
        let mut subscriber = Actor::start(&mut stage.role("takes_one_while_the_next_is_under_way"));
        subscriber.wait_for("taken");
        publisher.wait_for("under way");
        stage.say("go");
        // The next one is not, before the test says so.
        subscriber.wait_for("complete");
        stage.stop();
        ends_well(publisher, &["well"]);
        ends_well(subscriber, &["well"]);
        stage.check(2);
    }
}
