//! Notices: words that only peers hear who know them.

use cuframes_barrier::message::{Init, Registration};
use cuframes_barrier::{ConfigError, Fault, FrontendConfig, JoinError, JoinStage, Socket, Stage};

use crate::bytes::{
    COMMAND, INPUT, OUTPUT, dealer, frame, hello, init, map, notice, opening, ready, registration, text,
};
use crate::world::{TIMEOUT, World, config};

fn with_notices(count: u16) -> FrontendConfig {
    let mut config = config(count);
    config.notices = true;
    config
}

/// What a ROUTER says before anything else.
fn router() -> Vec<u8> {
    opening("ROUTER", None)
}

#[test]
fn who_does_not_know_them_gets_the_original_and_a_mark_in_init() {
    for fails in [false, true] {
        let mut world = World::new(with_notices(1));
        let handshake = world.call(Socket::Handshake, &[dealer(0), hello(), ready()].concat());
        let input = world.call(Socket::Input, &[dealer(0), registration(u8::from(fails), 1)].concat());
        assert_eq!(matches!(world.events.last(), Some(cuframes_barrier::FrontendEvent::Failed(_))), fails);
        assert_eq!(world.got(handshake), [router(), init(true)].concat());
        assert_eq!(world.got(input), router());
        assert!(world.is_closed(handshake));
    }
}

#[test]
fn who_knows_them_is_told_when_all_are_there() {
    let mut world = World::new(with_notices(2));
    let mut handshakes = Vec::new();
    for index in 0..2 {
        let words = [dealer(index), hello(), notice("KNOWS", None), ready()].concat();
        handshakes.push(world.call(Socket::Handshake, &words));
        let rank = u8::try_from(index).unwrap();
        world.call(Socket::Input, &[dealer(index), registration(rank, 2)].concat());
    }
    for handshake in handshakes {
        assert_eq!(world.got(handshake), [router(), init(true), notice("GO", None)].concat());
        assert!(world.is_closed(handshake));
    }
    assert_eq!(world.indices(), [0, 1]);
}

#[test]
fn who_knows_them_is_told_why_a_start_failed_and_who_does_not_is_not() {
    let mut world = World::new(with_notices(2));
    let knows = world.call(Socket::Handshake, &[dealer(0), hello(), notice("KNOWS", None)].concat());
    let does_not = world.call(Socket::Handshake, &[dealer(1), hello()].concat());
    world.pass(TIMEOUT);
    let reason = "no READY within 30s from 0 (said HELLO), 1 (said HELLO)";
    assert_eq!(world.got(knows), [router(), init(true), notice("CANCEL", Some(reason))].concat());
    assert_eq!(world.got(does_not), [router(), init(true)].concat());
    assert!(world.is_closed(knows) && world.is_closed(does_not));
}

#[test]
fn a_cancel_reaches_participants_at_every_stage() {
    for last in [JoinStage::Prepare, JoinStage::Registration, JoinStage::Go] {
        let mut world = World::new(with_notices(2));
        world.is_listening = [true, last != JoinStage::Registration, last != JoinStage::Registration];
        let participant = world.prepare(0);
        world.run();
        if last != JoinStage::Prepare {
            world.ready(participant, 0, 2);
        }
        assert_eq!(world.participants[participant].machine.stage(), Some(last));
        world.frontend.cancel(world.now, "no camera");
        world.run();
        let reason = "cancelled: no camera".into();
        assert_eq!(*world.join_error(participant), JoinError::Cancelled { reason });
        assert!(world.participants[participant].machine.is_finished());
        assert_eq!(world.connections(), 0);
    }
}

#[test]
fn the_cancel_of_a_participant_fails_the_start_with_its_reason_at_every_stage() {
    for stage in [JoinStage::Prepare, JoinStage::Go] {
        let mut world = World::new(with_notices(2));
        let (one, other) = (world.prepare(0), world.prepare(1));
        world.run();
        if stage == JoinStage::Go {
            world.ready(one, 0, 2);
        }
        let now = world.now;
        world.participants[one].machine.cancel(now, "no memory");
        world.run();
        let fault = Fault::Cancelled { index: 0, reason: "no memory".into() };
        assert_eq!(*world.fault(), fault);
        assert_eq!(*world.join_error(one), JoinError::Aborted { reason: "no memory".into() });
        let reason = "participant 0 cancelled: no memory".into();
        assert_eq!(*world.join_error(other), JoinError::Cancelled { reason });
    }
}

#[test]
fn a_cancel_counts_after_all_are_ready_too() {
    let mut world = World::new(with_notices(1));
    let words = [dealer(0), hello(), notice("KNOWS", None), ready()].concat();
    let handshake = world.call(Socket::Handshake, &words);
    assert_eq!(world.frontend.stage(), Some(Stage::Registration));
    world.say(handshake, &notice("CANCEL", None));
    assert_eq!(*world.fault(), Fault::Cancelled { index: 0, reason: String::new() });
}

#[test]
fn words_on_a_connection_that_has_not_got_init_are_no_words() {
    for word in ["KNOWS", "CANCEL", "GO"] {
        let mut world = World::new(with_notices(1));
        world.call(Socket::Handshake, &[dealer(0), notice(word, None)].concat());
        assert_eq!(*world.fault(), Fault::Status { index: 0, status: Some(word.into()) });
    }
}

#[test]
fn without_notices_a_participant_of_ours_says_no_word_of_them() {
    let mut world = World::new(config(2));
    let participant = world.prepare(0);
    world.run();
    let now = world.now;
    world.participants[participant].machine.cancel(now, "no memory");
    world.run();
    // The connection ends, and that ends nothing.
    assert_eq!(world.frontend.stage(), Some(Stage::Ready));
    assert_eq!(world.connections(), 0);
}

#[test]
fn an_init_that_has_the_mark_without_notices_is_refused() {
    let mut config = config(1);
    config.init.parallel_config.push("cuframes", "camera 0");
    let error = cuframes_barrier::Frontend::new(cuframes_core::Instant::ZERO, config.clone()).err();
    assert_eq!(error, Some(ConfigError::Mark));
    config.notices = true;
    let mut world = World::new(config);
    let participant = world.join(0, 0, 1);
    world.run();
    assert_eq!(world.is_in(participant), Some(true));
}

#[test]
fn a_reason_that_is_long_is_cut_so_that_it_arrives() {
    let mut world = World::new(with_notices(2));
    let other = world.join(1, 1, 2);
    world.run();
    let words = map(&[("status", &[&[0xda, 0xff, 0xff][..], &[b'\x01'; 0xffff]].concat())]);
    world.call(Socket::Handshake, &[dealer(0), frame_of(&words)].concat());
    assert!(matches!(world.fault(), Fault::Status { index: 0, .. }));
    let JoinError::Cancelled { reason } = world.join_error(other) else { panic!("another error") };
    assert!(reason.starts_with("at READY: participant 0 said \"\\u{1}"));
    assert!((1000..=1024).contains(&reason.len()), "{}", reason.len());

    // The reason of a participant, at a border within a character.
    let mut world = World::new(with_notices(1));
    let participant = world.prepare(0);
    world.run();
    let now = world.now;
    world.participants[participant].machine.cancel(now, &"\u{20ac}".repeat(1 << 20));
    world.run();
    assert_eq!(*world.fault(), Fault::Cancelled { index: 0, reason: "\u{20ac}".repeat(341) });
}

/// One frame of any length.
fn frame_of(body: &[u8]) -> Vec<u8> {
    [&[2][..], &u64::try_from(body.len()).unwrap().to_be_bytes(), body].concat()
}

#[test]
fn last_words_to_who_does_not_read_take_a_second_at_most() {
    let mut world = World::new(with_notices(1));
    let participant = world.prepare(0);
    world.run();
    world.width = 0;
    world.frontend.cancel(world.now, "no camera");
    world.run();
    assert!(!world.frontend.is_finished());
    let until = cuframes_core::streams::Machine::poll_timeout(&world.frontend).unwrap();
    assert_eq!(until, world.now + std::time::Duration::from_secs(1));
    world.pass(std::time::Duration::from_secs(1));
    assert!(world.frontend.is_finished());
    assert_eq!(cuframes_core::streams::Machine::poll_timeout(&world.frontend), None);
    let stage = JoinStage::Prepare;
    assert_eq!(*world.join_error(participant), JoinError::Gone { stage });
}

#[test]
fn an_unknown_notice_says_nothing_to_a_participant() {
    let mut solo = crate::solo::Solo::at(JoinStage::Go, true);
    for payload in [map(&[("status", &text("NEWS"))]), map(&[]), b"?".to_vec(), vec![]] {
        solo.feed(crate::bytes::HANDSHAKE, &frame(0, &payload));
    }
    solo.feed(crate::bytes::HANDSHAKE, &frame(COMMAND, b"\x04NEWS"));
    assert_eq!(solo.machine.stage(), Some(JoinStage::Go));
    solo.feed(crate::bytes::HANDSHAKE, &notice("GO", None));
    assert_eq!(solo.machine.stage(), None);
}

#[test]
fn the_mark_is_all_that_differs_in_init() {
    let payload = &init(true)[2..];
    let read = Init::decode(payload).unwrap();
    assert_eq!((read.addresses.inputs, read.addresses.outputs), (vec![INPUT.into()], vec![OUTPUT.into()]));
    assert_eq!(read.parallel_config.pairs(), [("cuframes".into(), 1.into())]);
    assert_eq!(Registration::new(0, 1), Registration::default());
}
