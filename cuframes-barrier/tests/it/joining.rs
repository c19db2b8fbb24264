//! A participant whose frontend is written by hand.

use std::time::Duration;

use cuframes_barrier::message::Registration;
use cuframes_barrier::zmtp::LinkError;
use cuframes_barrier::{JoinError, JoinStage, ParticipantEvent};
use cuframes_core::streams::{ConnId, Machine as _};

use crate::bytes::{
    COMMAND, HANDSHAKE, INPUT, MORE, OUTPUT, dealer, frame, hello, init, map, notice, opening, ready, text,
};
use crate::solo::{Solo, said};
use crate::world::TIMEOUT;

const STAGES: [JoinStage; 5] =
    [JoinStage::Connect, JoinStage::Init, JoinStage::Prepare, JoinStage::Registration, JoinStage::Go];

/// The stages that a participant comes to, with and without notices.
fn stages() -> impl Iterator<Item = (JoinStage, bool)> {
    let with = STAGES.map(|stage| (stage, true));
    let without = STAGES.into_iter().filter(|stage| *stage != JoinStage::Go).map(|stage| (stage, false));
    with.into_iter().chain(without)
}

fn registration() -> Vec<u8> {
    let payload = Registration::new(0, 1).encode();
    [&[2, 0, 0, 0, 0, 0, 0], &u16::try_from(payload.len()).unwrap().to_be_bytes()[..], &payload].concat()
}

#[test]
fn what_it_says_is_what_the_original_says() {
    let mut solo = Solo::at(JoinStage::Registration, false);
    solo.open_input();
    assert_eq!(solo.sent(HANDSHAKE), said());
    assert_eq!(solo.sent(INPUT), [dealer(5), registration()].concat());
    // READY is said, and the registration sent, before the output socket is there: it is in when that is.
    assert_eq!(solo.events.len(), 1);
    solo.open_output();
    assert_eq!(solo.events.last(), Some(&ParticipantEvent::Started { confirmed: false }));
    assert_eq!(solo.sent(OUTPUT), opening("PUSH", None));
    assert!(!solo.asked.contains_key(HANDSHAKE));
    assert!(solo.asked.contains_key(INPUT) && solo.asked.contains_key(OUTPUT));
    assert_eq!((solo.machine.stage(), solo.machine.poll_timeout()), (None, None));
}

#[test]
fn with_notices_the_only_other_word_is_knows() {
    let solo = Solo::at(JoinStage::Go, true);
    assert_eq!(solo.sent(HANDSHAKE), [dealer(5), hello(), notice("KNOWS", None), ready()].concat());
    assert_eq!(solo.sent(INPUT), [dealer(5), registration()].concat());
}

#[test]
fn hello_waits_until_the_frontend_is_ready() {
    let mut solo = Solo::new();
    solo.connect(HANDSHAKE);
    assert_eq!(*solo.sent(HANDSHAKE), dealer(5)[..64]);
    solo.feed(HANDSHAKE, &opening("ROUTER", None)[..64]);
    assert_eq!(solo.sent(HANDSHAKE), dealer(5));
    solo.feed(HANDSHAKE, &opening("ROUTER", None)[64..]);
    assert_eq!(solo.sent(HANDSHAKE), [dealer(5), hello()].concat());
}

#[test]
fn a_timeout_names_the_stage() {
    for (stage, marked) in stages() {
        let mut solo = Solo::at(stage, marked);
        let events = solo.events.len();
        assert_eq!(solo.machine.poll_timeout(), Some(solo.now + TIMEOUT));
        solo.pass(TIMEOUT - Duration::from_nanos(1));
        assert_eq!(solo.events.len(), events);
        solo.pass(Duration::from_nanos(1));
        assert_eq!(*solo.error(), JoinError::Timeout { stage, after: TIMEOUT });
        assert!(solo.asked.is_empty() && solo.machine.is_finished());
        assert_eq!(solo.machine.poll_timeout(), None);
        solo.pass(TIMEOUT);
        assert_eq!(solo.events.len(), events + 1);
    }
    let text = |stage| JoinError::Timeout { stage, after: TIMEOUT }.to_string();
    assert_eq!(text(JoinStage::Init), "waited 30s for INIT");
    assert_eq!(text(JoinStage::Go), "waited 30s for the other participants");
}

#[test]
fn it_can_be_cancelled_at_every_stage() {
    for (stage, marked) in stages() {
        let mut solo = Solo::at(stage, marked);
        let before = solo.sent(HANDSHAKE).to_vec();
        solo.cancel("no memory");
        assert_eq!(*solo.error(), JoinError::Aborted { reason: "no memory".into() });
        assert!(solo.asked.is_empty() && solo.machine.is_finished());
        // Only a frontend that has shown that it knows the words is told.
        let mut expected = before;
        if marked && stage > JoinStage::Init {
            expected.extend(notice("CANCEL", Some("no memory")));
        }
        assert_eq!(solo.sent_anywhere()[0], expected);
        let events = solo.events.len();
        solo.cancel("again");
        assert_eq!(solo.events.len(), events);
    }
}

#[test]
fn the_frontend_may_go_at_every_stage() {
    for (stage, marked) in stages().filter(|(stage, _)| *stage != JoinStage::Connect) {
        let mut solo = Solo::at(stage, marked);
        solo.close(HANDSHAKE);
        assert_eq!(*solo.error(), JoinError::Gone { stage });
        assert!(solo.asked.is_empty());
    }
    for address in [INPUT, OUTPUT] {
        for (stage, marked) in [(JoinStage::Registration, false), (JoinStage::Registration, true)] {
            let mut solo = Solo::at(stage, marked);
            solo.close(address);
            assert_eq!(*solo.error(), JoinError::Gone { stage });
        }
    }
}

#[test]
fn a_frontend_that_knows_our_words_may_close_everything_with_go_whatever_of_it_comes_first() {
    for address in [INPUT, OUTPUT] {
        let mut solo = Solo::at(JoinStage::Go, true);
        solo.close(address);
        assert_eq!(solo.machine.stage(), Some(JoinStage::Go));
        solo.feed(HANDSHAKE, &notice("GO", None));
        assert_eq!(solo.events.last(), Some(&ParticipantEvent::Started { confirmed: true }));
        // Without GO it failed.
        let mut solo = Solo::at(JoinStage::Go, true);
        solo.close(address);
        solo.close(HANDSHAKE);
        assert_eq!(*solo.error(), JoinError::Gone { stage: JoinStage::Go });
    }
}

#[test]
fn an_original_frontend_closes_the_handshake_when_it_has_the_last_registration() {
    let mut solo = Solo::at(JoinStage::Registration, false);
    solo.open_input();
    // The output socket is not there yet, and this is no failure.
    solo.close(HANDSHAKE);
    assert_eq!(solo.machine.stage(), Some(JoinStage::Registration));
    solo.open_output();
    assert_eq!(solo.events.last(), Some(&ParticipantEvent::Started { confirmed: false }));
    // A failed one closes the others, too.
    let mut solo = Solo::at(JoinStage::Registration, false);
    solo.open_input();
    solo.close(HANDSHAKE);
    solo.close(INPUT);
    assert_eq!(*solo.error(), JoinError::Gone { stage: JoinStage::Registration });
}

#[test]
fn a_connection_that_ends_before_anything_is_said_is_tried_again_after_pauses() {
    let mut solo = Solo::new();
    let mut pauses = Vec::new();
    let mut known: Vec<ConnId> = Vec::new();
    for n in 0..8 {
        let (conn, delay) = solo.asked[HANDSHAKE];
        assert!(!known.contains(&conn));
        known.push(conn);
        pauses.push(u64::try_from(delay.as_millis()).unwrap());
        if n % 2 == 0 {
            solo.connect(HANDSHAKE);
            solo.feed(HANDSHAKE, &opening("ROUTER", None)[..70]);
        }
        solo.close(HANDSHAKE);
    }
    assert_eq!(pauses, [0, 50, 100, 200, 400, 800, 1000, 1000]);
    solo.connect(HANDSHAKE);
    solo.feed(HANDSHAKE, &opening("ROUTER", None));
    assert_eq!(solo.sent(HANDSHAKE), [dealer(5), hello()].concat());
}

#[test]
fn an_init_without_addresses_is_refused_after_ready_was_said() {
    let list = |address: &str| [vec![0x91], text(address)].concat();
    for (inputs, outputs, field) in [
        (vec![0x90], list(OUTPUT), "inputs"),
        (list(INPUT), vec![0x90], "outputs"),
        (vec![0x90], vec![0x90], "inputs"),
    ] {
        let addresses = map(&[("inputs", &inputs), ("outputs", &outputs)]);
        let mut solo = Solo::at(JoinStage::Init, false);
        solo.feed(HANDSHAKE, &frame(0, &map(&[("addresses", &addresses)])));
        assert!(matches!(solo.events.last(), Some(ParticipantEvent::Init(_))));
        solo.ready();
        assert_eq!(*solo.error(), JoinError::NoAddress { field });
        assert_eq!(solo.sent_anywhere(), [said()]);
    }
}

#[test]
fn of_several_addresses_the_first_is_taken() {
    let list = |address: &str| [vec![0x92], text(address), text("elsewhere")].concat();
    let addresses = map(&[("inputs", &list(INPUT)), ("outputs", &list(OUTPUT))]);
    let mut solo = Solo::at(JoinStage::Init, false);
    solo.feed(HANDSHAKE, &frame(0, &map(&[("addresses", &addresses)])));
    solo.ready();
    assert!(solo.asked.keys().eq([HANDSHAKE, INPUT, OUTPUT]));
    assert!(solo.asked.values().all(|(_, delay)| delay.is_zero()));
}

#[test]
fn an_init_of_two_frames_or_one_that_cannot_be_read_is_an_error() {
    let mut solo = Solo::at(JoinStage::Init, false);
    solo.feed(HANDSHAKE, &[frame(MORE, b""), init(false)].concat());
    assert_eq!(*solo.error(), JoinError::Frames { frames: 2 });
    for payload in [&[][..], b"?", &[0x80], &[0x90]] {
        let mut solo = Solo::at(JoinStage::Init, false);
        solo.feed(HANDSHAKE, &frame(0, payload));
        assert!(matches!(solo.error(), JoinError::Init { .. }));
        assert!(solo.asked.is_empty());
    }
}

#[test]
fn go_counts_before_the_output_socket_is_connected() {
    let mut solo = Solo::at(JoinStage::Registration, true);
    // It has not registered: this is no word for it.
    solo.feed(HANDSHAKE, &notice("GO", None));
    assert_eq!(solo.machine.stage(), Some(JoinStage::Registration));
    solo.open_input();
    solo.feed(HANDSHAKE, &notice("GO", None));
    assert_eq!(solo.events.last(), Some(&ParticipantEvent::Started { confirmed: true }));
    // The output socket may still come.
    solo.open_output();
    assert_eq!(solo.sent(OUTPUT), opening("PUSH", None));
    assert_eq!(solo.events.len(), 2);
}

#[test]
fn go_and_the_end_of_the_connection_may_come_together() {
    let mut solo = Solo::at(JoinStage::Go, true);
    let go = [notice("GO", None), frame(COMMAND, b"\x04PING\x00\x00"), notice("CANCEL", Some("late"))];
    solo.feed(HANDSHAKE, &go.concat());
    assert_eq!(solo.events.last(), Some(&ParticipantEvent::Started { confirmed: true }));
    assert_eq!(solo.events.len(), 2);
}

#[test]
fn what_comes_on_a_connection_that_is_about_to_be_closed_is_not_read() {
    let mut solo = Solo::at(JoinStage::Prepare, true);
    solo.is_reading = false;
    solo.cancel("no memory");
    assert!(!solo.machine.is_finished());
    solo.feed(HANDSHAKE, &[notice("CANCEL", Some("why")), vec![0xff; 9]].concat());
    assert_eq!(*solo.error(), JoinError::Aborted { reason: "no memory".into() });
    assert_eq!(solo.machine.poll_timeout(), Some(solo.now + Duration::from_secs(1)));
    solo.pass(Duration::from_secs(1));
    assert!(solo.machine.is_finished() && solo.asked.is_empty());
    assert_eq!(solo.machine.poll_timeout(), None);
}

#[test]
fn it_is_not_finished_before_its_registration_is_sent() {
    let mut solo = Solo::at(JoinStage::Registration, false);
    solo.open_output();
    solo.connect(INPUT);
    solo.is_reading = false;
    solo.feed(INPUT, &opening("ROUTER", None));
    assert_eq!(solo.events.last(), Some(&ParticipantEvent::Started { confirmed: false }));
    assert!(!solo.machine.is_finished());
    solo.is_reading = true;
    solo.drain();
    assert_eq!(solo.sent(INPUT), [dealer(5), registration()].concat());
    assert!(solo.machine.is_finished());
}

#[test]
fn what_does_not_speak_zmtp_is_named_with_the_stage() {
    let mut solo = Solo::new();
    solo.connect(HANDSHAKE);
    solo.feed(HANDSHAKE, b"SSH-2.0");
    let error = LinkError::Greeting;
    assert_eq!(*solo.error(), JoinError::Link { stage: JoinStage::Connect, error });
    for (address, kind) in [(INPUT, "PULL"), (OUTPUT, "ROUTER")] {
        let mut solo = Solo::at(JoinStage::Registration, false);
        solo.connect(address);
        solo.feed(address, &opening(kind, None));
        let JoinError::Link { stage, error: LinkError::SocketType { .. } } = solo.error() else {
            panic!("{:?}", solo.error())
        };
        assert_eq!(*stage, JoinStage::Registration);
        assert!(solo.asked.is_empty());
    }
}

#[test]
fn ready_counts_once_and_only_after_init() {
    let mut solo = Solo::at(JoinStage::Init, false);
    solo.ready();
    assert_eq!(solo.machine.stage(), Some(JoinStage::Init));
    solo.feed(HANDSHAKE, &init(false));
    solo.ready();
    solo.ready();
    assert_eq!(solo.sent(HANDSHAKE), said());
    assert_eq!(solo.asked.len(), 3);
}

#[test]
fn what_an_original_frontend_says_after_init_says_nothing() {
    let mut solo = Solo::at(JoinStage::Prepare, false);
    solo.feed(HANDSHAKE, &[notice("CANCEL", Some("not for us")), notice("GO", None), init(false)].concat());
    assert_eq!(solo.machine.stage(), Some(JoinStage::Prepare));
    solo.ready();
    solo.open_input();
    solo.feed(INPUT, &frame(0, b"work"));
    solo.open_output();
    assert_eq!(solo.events.len(), 2);
    assert!(solo.machine.handle_accepted(solo.now, 0).is_none());
}

#[test]
fn an_init_that_comes_together_with_ready_of_the_frontend_is_read() {
    let mut solo = Solo::new();
    solo.connect(HANDSHAKE);
    solo.feed(HANDSHAKE, &[opening("ROUTER", None), init(false)].concat());
    assert_eq!(solo.machine.stage(), Some(JoinStage::Prepare));
    assert_eq!(solo.sent(HANDSHAKE), [dealer(5), hello()].concat());
}
