//! Each fault ends the start for everybody, as the original decides it, and nobody is told; and what the original does not see.

use cuframes_barrier::{ConfigError, Fault, Frontend, FrontendEvent, Progress, Socket, Stage};
use cuframes_core::Instant;
use cuframes_core::streams::Machine as _;

use crate::bytes::{MORE, dealer, frame, hello, init, map, opening, ready, registration, text, vector};
use crate::world::{World, config};

/// A start of two in which participant 0 has come through the handshake, and 1 says this on the handshake socket.
fn at_ready(bytes: &[u8]) -> World {
    let mut world = World::new(config(2));
    let other = world.call(Socket::Handshake, &[dealer(0), hello(), ready()].concat());
    let handshake = world.call(Socket::Handshake, bytes);
    let sent = [opening("ROUTER", None), init(false)].concat();
    assert_eq!(world.got(other), sent);
    // Who fails it is not told, either.
    assert!(sent.starts_with(world.got(handshake)));
    world
}

/// A start of two in which both are ready, and 1 says this on the input socket.
fn at_registration(bytes: &[u8]) -> World {
    let mut world = at_ready(&[dealer(1), hello(), ready()].concat());
    assert_eq!(world.frontend.stage(), Some(Stage::Registration));
    let input = world.call(Socket::Input, bytes);
    assert_eq!(world.got(input), opening("ROUTER", None));
    world
}

/// A failed start has no connections.
fn fault(world: &World) -> Fault {
    assert_eq!(world.connections(), 0);
    assert!(world.frontend.is_finished());
    world.fault().clone()
}

#[test]
fn hello_twice() {
    let world = at_ready(&[dealer(1), hello(), hello()].concat());
    assert_eq!(fault(&world), Fault::HelloTwice { index: 1 });
    let mut world = at_ready(&[dealer(1), hello()].concat());
    world.call(Socket::Handshake, &[dealer(0), hello()].concat());
    assert_eq!(fault(&world), Fault::HelloTwice { index: 0 });
}

#[test]
fn ready_before_hello_and_ready_twice() {
    assert_eq!(fault(&at_ready(&[dealer(1), ready()].concat())), Fault::ReadyBeforeHello { index: 1 });
    let mut world = World::new(config(2));
    world.call(Socket::Handshake, &[dealer(0), hello(), ready(), ready()].concat());
    assert_eq!(fault(&world), Fault::ReadyTwice { index: 0 });
}

#[test]
fn an_id_that_is_not_two_bytes() {
    for id in [&[][..], &[1], &[1, 0, 0], &[7; 255]] {
        let identity = Fault::Identity { stage: Stage::Ready, identity: id.to_vec() };
        let opening = opening("DEALER", Some(id));
        assert_eq!(fault(&at_ready(&[&opening[..], &hello()].concat())), identity);
        let identity = Fault::Identity { stage: Stage::Registration, identity: id.to_vec() };
        assert_eq!(fault(&at_registration(&[&opening[..], &registration(1, 2)].concat())), identity);
    }
    let nameless = fault(&at_ready(&[opening("DEALER", None), hello()].concat()));
    assert_eq!(
        nameless.to_string(),
        "at READY: a participant has no routing id, which must be its index in two bytes"
    );
}

#[test]
fn an_id_that_is_not_expected() {
    for index in [2, 256, u16::MAX] {
        let unexpected = Fault::Unexpected { stage: Stage::Ready, index };
        assert_eq!(fault(&at_ready(&[dealer(index), hello()].concat())), unexpected);
        let unexpected = Fault::Unexpected { stage: Stage::Registration, index };
        assert_eq!(fault(&at_registration(&[dealer(index), registration(1, 2)].concat())), unexpected);
    }
    let mut config = config(2);
    config.first_index = 7;
    let mut world = World::new(config);
    world.call(Socket::Handshake, &[dealer(6), hello()].concat());
    assert_eq!(fault(&world), Fault::Unexpected { stage: Stage::Ready, index: 6 });
}

#[test]
fn more_frames_than_one_and_an_empty_delimiter() {
    for (first, frames) in [(vector!("hello"), 2), (vec![], 2), (vec![], 3)] {
        let message = |last: &[u8]| {
            let more = frame(MORE, &first).repeat(frames - 1);
            [dealer(1), more, frame(0, last)].concat()
        };
        let stage = Stage::Ready;
        let expected = Fault::Frames { stage, identity: vec![1, 0], frames };
        assert_eq!(fault(&at_ready(&message(&vector!("hello")))), expected);
        let expected = Fault::Frames { stage: Stage::Registration, identity: vec![1, 0], frames };
        assert_eq!(fault(&at_registration(&message(&vector!("registration")))), expected);
    }
}

#[test]
fn a_word_that_is_unknown_or_missing() {
    for (payload, status) in [
        (map(&[("status", &text("hello"))]), Some("hello")),
        (map(&[("status", &text("GO"))]), Some("GO")),
        (map(&[("status", &text("CANCEL")), ("reason", &text("because"))]), Some("CANCEL")),
        (map(&[("status", &text("KNOWS"))]), Some("KNOWS")),
        (map(&[("status", &text(""))]), Some("")),
        (map(&[("status", &[0xc0])]), None),
        (map(&[]), None),
    ] {
        let world = at_ready(&[dealer(1), frame(0, &payload)].concat());
        assert_eq!(fault(&world), Fault::Status { index: 1, status: status.map(Into::into) });
    }
}

#[test]
fn a_payload_that_cannot_be_read() {
    for payload in [&[][..], &[0xc1], &[0x90], b"HELLO", &[0x81], &[0x80, 0]] {
        let world = at_ready(&[dealer(1), frame(0, payload)].concat());
        assert!(matches!(fault(&world), Fault::Payload { stage: Stage::Ready, index: 1, .. }));
        let world = at_registration(&[dealer(1), frame(0, payload)].concat());
        assert!(matches!(fault(&world), Fault::Payload { stage: Stage::Registration, index: 1, .. }));
    }
}

#[test]
fn another_rank_or_another_number_of_participants() {
    for (said, size) in [(0, 2), (2, 2), (1, 1), (1, 3)] {
        let world = at_registration(&[dealer(1), registration(said, size)].concat());
        let expected = Fault::Rank {
            index: 1,
            rank: said.into(),
            size: size.into(),
            expected_rank: 1,
            expected_size: 2,
        };
        assert_eq!(fault(&world), expected);
    }
    // The defaults are rank 0 of 1.
    let world = at_registration(&[dealer(1), frame(0, &[0x80])].concat());
    assert!(matches!(fault(&world), Fault::Rank { rank: 0, size: 1, .. }));
}

#[test]
fn a_second_registration() {
    let world = at_registration(&[dealer(1), registration(1, 2), registration(1, 2)].concat());
    assert_eq!(fault(&world), Fault::RegisteredTwice { index: 1 });
    // On another connection, and both before the others are ready.
    let mut world = World::new(config(2));
    for _ in 0..2 {
        world.call(Socket::Input, &[dealer(0), registration(0, 2)].concat());
    }
    for index in 0..2 {
        world.call(Socket::Handshake, &[dealer(index), hello(), ready()].concat());
    }
    assert_eq!(fault(&world), Fault::RegisteredTwice { index: 0 });
}

#[test]
fn frames_are_looked_at_before_the_id_and_the_id_before_whether_it_is_expected_and_then_the_payload() {
    let two = |payload: &[u8]| [frame(MORE, payload), frame(0, b"")].concat();
    let frames = fault(&at_ready(&[opening("DEALER", Some(b"long")), two(b"?")].concat()));
    assert!(matches!(frames, Fault::Frames { frames: 2, .. }));
    let identity = fault(&at_ready(&[opening("DEALER", Some(b"long")), frame(0, b"?")].concat()));
    assert!(matches!(identity, Fault::Identity { .. }));
    let unexpected = fault(&at_ready(&[dealer(9), frame(0, b"?")].concat()));
    assert!(matches!(unexpected, Fault::Unexpected { .. }));
    // The same with registrations.
    let frames = fault(&at_registration(&[opening("DEALER", Some(b"long")), two(b"?")].concat()));
    assert!(matches!(frames, Fault::Frames { frames: 2, .. }));
    let identity = fault(&at_registration(&[opening("DEALER", Some(b"long")), frame(0, b"?")].concat()));
    assert!(matches!(identity, Fault::Identity { .. }));
    let unexpected = fault(&at_registration(&[dealer(9), frame(0, b"?")].concat()));
    assert!(matches!(unexpected, Fault::Unexpected { .. }));
}

#[test]
fn the_rank_is_looked_at_before_whether_it_is_the_second_registration() {
    let payload = at_registration(&[dealer(1), registration(1, 2), frame(0, b"?")].concat());
    assert!(matches!(fault(&payload), Fault::Payload { .. }));
    let rank = at_registration(&[dealer(1), registration(1, 2), registration(0, 2)].concat());
    assert!(matches!(fault(&rank), Fault::Rank { .. }));
}

#[test]
fn of_registrations_that_came_early_the_first_fault_counts() {
    let mut world = World::new(config(2));
    world.call(Socket::Input, &[dealer(1), registration(1, 2)].concat());
    world.call(Socket::Input, &[dealer(5), registration(0, 2)].concat());
    world.call(Socket::Input, &[dealer(1), registration(1, 2)].concat());
    for index in 0..2 {
        assert_eq!(world.frontend.stage(), Some(Stage::Ready));
        world.call(Socket::Handshake, &[dealer(index), hello(), ready()].concat());
    }
    assert_eq!(fault(&world), Fault::Unexpected { stage: Stage::Registration, index: 5 });
}

#[test]
fn nobody_looks_at_the_handshake_socket_when_all_are_ready() {
    let payloads = [ready(), hello(), frame(0, b"?"), frame(MORE, b"")];
    for payload in payloads {
        let mut world = at_registration(&[dealer(1), registration(1, 2)].concat());
        let late = world.call(Socket::Handshake, &[dealer(1), payload].concat());
        assert_eq!(world.got(late), opening("ROUTER", None));
        world.call(Socket::Handshake, &[dealer(9), ready()].concat());
        world.call(Socket::Handshake, &[opening("DEALER", Some(b"x")), ready()].concat());
        world.call(Socket::Input, &[dealer(0), registration(0, 2)].concat());
        assert_eq!(world.indices(), [0, 1]);
    }
}

#[test]
fn a_second_registration_after_the_last_one_is_not_seen() {
    let mut world = at_registration(&[dealer(1), registration(1, 2)].concat());
    world.call(Socket::Input, &[dealer(0), registration(0, 2), registration(0, 2), frame(0, b"?")].concat());
    assert_eq!(world.indices(), [0, 1]);
}

#[test]
fn a_strange_id_that_says_nothing_is_nobodys_business() {
    let mut world = World::new(config(1));
    for id in [Some(&b"stranger"[..]), Some(&[9, 9]), None] {
        world.call(Socket::Handshake, &opening("DEALER", id));
        world.call(Socket::Input, &opening("DEALER", id));
    }
    world.join(0, 0, 1);
    world.run();
    assert_eq!(world.indices(), [0]);
}

#[test]
fn a_connection_that_breaks_off_ends_nothing() {
    let mut world = World::new(config(2));
    for cut in [1, 10, 64, 70, 100, 130] {
        let stream = [dealer(9), hello()].concat();
        let peer = world.call(Socket::Handshake, &stream[..cut.min(stream.len() - 1)]);
        world.hang_up(peer);
        assert_eq!(world.connections(), 0);
    }
    // Those who have said what they had to say are not needed any more.
    let handshake = world.call(Socket::Handshake, &[dealer(0), hello(), ready()].concat());
    world.hang_up(handshake);
    let input = world.call(Socket::Input, &[dealer(0), registration(0, 2)].concat());
    world.hang_up(input);
    assert!(world.events.iter().all(|event| matches!(event, FrontendEvent::Progress { .. })));
    assert!(world.frontend.progress().all(|(_, progress)| progress != Progress::Lost));
    world.join(1, 1, 2);
    world.run();
    assert_eq!(world.indices(), [0, 1]);
}

#[test]
fn who_does_not_speak_zmtp_is_closed_and_told_of() {
    let mut world = World::new(config(1));
    for socket in Socket::ALL {
        let browser = world.call(socket, b"GET / HTTP/1.1\r\n\r\n");
        assert!(world.is_closed(browser));
        let told = world.events.pop();
        assert!(matches!(told, Some(FrontendEvent::Dropped { socket: at, .. }) if at == socket));
    }
    world.join(0, 0, 1);
    world.run();
    assert_eq!(world.indices(), [0]);
}

#[test]
fn a_start_without_participants_or_with_too_many_is_refused() {
    let error = |first_index, count| {
        let mut config = config(count);
        config.first_index = first_index;
        Frontend::new(Instant::ZERO, config).err()
    };
    assert_eq!(error(0, 0), Some(ConfigError::Nobody));
    assert_eq!(error(1, u16::MAX), None);
    assert_eq!(error(2, u16::MAX), Some(ConfigError::Indices { first: 2, count: u16::MAX }));
    assert_eq!(error(u16::MAX, 1), None);
    let mut config = config(1);
    config.init.parallel_config.push("key", "x".repeat(1 << 20));
    let error = Frontend::new(Instant::ZERO, config).err();
    assert!(matches!(error, Some(ConfigError::InitTooLong { len }) if len > 1 << 20));
}

#[test]
fn a_cancelled_start_is_over() {
    let mut world = at_ready(&[dealer(1), hello()].concat());
    world.frontend.cancel(world.now, "no camera");
    world.run();
    assert_eq!(fault(&world), Fault::Aborted { reason: "no camera".into() });
    assert_eq!(world.frontend.poll_timeout(), None);
}
