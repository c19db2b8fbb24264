//! Peers that mean no good, or are no peers at all: what they can take is bounded, and only their own connection ends.

use allocation_counter::measure;
use cuframes_barrier::zmtp::{Link, LinkError, MAX_COMMAND, MAX_PAYLOAD, SocketType};
use cuframes_barrier::{Fault, FrontendEvent, Socket};
use cuframes_core::streams::Machine as _;

use crate::bytes::{
    COMMAND, MORE, dealer, frame, greeting, hello, opening, ready, ready_command, registration,
};
use crate::world::{Caller, World, config};

/// A participant gets in after what these bytes do to a connection.
fn dropped(socket: Socket, bytes: &[u8]) -> Option<LinkError> {
    let mut world = World::new(config(1));
    let caller = world.call(socket, bytes);
    let error = world.events.pop().map(|event| match event {
        FrontendEvent::Dropped { socket: at, error } if at == socket => error,
        event => panic!("{event:?}"),
    });
    assert_eq!(world.is_closed(caller), error.is_some());
    world.join(0, 0, 1);
    world.run();
    assert_eq!(world.indices(), [0]);
    error
}

#[test]
fn nine_bytes_that_announce_2_to_the_62_end_only_their_connection() {
    for (flags, max) in [(2, MAX_PAYLOAD), (3, MAX_PAYLOAD), (6, MAX_COMMAND)] {
        let len = 1_u64 << 62;
        let header = [&[flags], &len.to_be_bytes()[..]].concat();
        let too_long = Some(LinkError::TooLong { len, max });
        assert_eq!(dropped(Socket::Handshake, &[dealer(0), header.clone()].concat()), too_long);
        let info = measure(|| {
            let mut link = Link::new(SocketType::Router, &[]);
            assert!(link.receive(&mut &[dealer(0), header].concat()[..]).is_err());
        });
        assert!(info.bytes_max < 4096, "{} bytes", info.bytes_max);
    }
}

#[test]
fn a_length_within_the_cap_takes_memory_only_as_its_bytes_come() {
    let header = [&[2], &u64::try_from(MAX_PAYLOAD).unwrap().to_be_bytes()[..], &[1; 100]].concat();
    let info = measure(|| {
        let mut link = Link::new(SocketType::Router, &[]);
        assert_eq!(link.receive(&mut &[dealer(0), header].concat()[..]), Ok(None));
    });
    assert!(info.bytes_max < 4096, "{} bytes", info.bytes_max);
    let over = [&[2], &u64::try_from(MAX_PAYLOAD + 1).unwrap().to_be_bytes()[..]].concat();
    let too_long = LinkError::TooLong { len: 1_048_577, max: MAX_PAYLOAD };
    assert_eq!(dropped(Socket::Input, &[dealer(0), over].concat()), Some(too_long));
}

#[test]
fn strangers_at_every_socket_leave_room_for_300_participants() {
    let mut world = World::new(config(300));
    let mut most = 0;
    for (index, socket) in (0..).zip(Socket::ALL) {
        world.flood(socket, &[], 1000);
        world.join(index, index, 300);
        world.run();
        most = most.max(world.connections());
    }
    for index in 3..300 {
        world.join(index, index, 300);
        world.run();
        most = most.max(world.connections());
    }
    assert_eq!(world.indices().len(), 300);
    // Less is left to them than a process with 1024 descriptors has.
    assert!((900..=1000).contains(&most), "{most} connections");
}

#[test]
fn a_message_without_end_takes_the_memory_of_its_first_frame() {
    let info = measure(|| {
        let mut link = Link::new(SocketType::Router, &[]);
        link.receive(&mut &dealer(0)[..]).unwrap();
        let more = frame(MORE, &[7; 60_000]);
        for _ in 0..1000 {
            assert_eq!(link.receive(&mut &more[..]), Ok(None));
        }
        let message = link.receive(&mut &frame(0, b"")[..]).unwrap().unwrap();
        assert_eq!((message.payload.len(), message.frames), (60_000, 1001));
    });
    assert!(info.bytes_max < 512 * 1024, "{} bytes", info.bytes_max);
}

#[test]
fn ten_thousand_silent_connections_keep_nobody_out() {
    // Silent from the start, after the greeting, and after READY.
    for (silent, socket) in [
        (vec![], Socket::Handshake),
        (greeting(), Socket::Input),
        (vec![], Socket::Output),
        (dealer(0), Socket::Handshake),
        (dealer(1), Socket::Input),
    ] {
        let mut world = World::new(config(2));
        let early = world.join(0, 0, 2);
        world.run();
        world.flood(socket, &silent, 10_000);
        // Two participants may be there twice, and 64 strangers.
        let (others, most) = (world.connections_of(early), 64 + 2 * 2);
        assert!((60..=others + most).contains(&world.connections()), "{}", world.connections());
        let late = world.join(1, 1, 2);
        world.run();
        assert_eq!(world.indices(), [0, 1]);
        for participant in [early, late] {
            assert_eq!(world.is_in(participant), Some(false), "{silent:?}");
            // Those to the input and the output socket.
            assert_eq!(world.connections_of(participant), 2);
        }
        assert!(world.events.iter().all(|event| !matches!(event, FrontendEvent::Dropped { .. })));
    }
}

#[test]
fn participants_that_wait_for_the_others_are_not_thrown_out_by_silent_connections() {
    let mut config = config(2);
    config.notices = true;
    let mut world = World::new(config);
    let early = world.join(0, 0, 2);
    world.run();
    for socket in [Socket::Output, Socket::Input, Socket::Handshake] {
        world.flood(socket, b"", 1000);
    }
    assert_eq!(world.participants[early].events.len(), 1, "{:?}", world.participants[early].events);
    world.join(1, 1, 2);
    world.run();
    assert_eq!(world.is_in(early), Some(true));
}

#[test]
fn registrations_of_connections_that_come_and_go_are_not_kept_without_bound() {
    let mut world = World::new(config(2));
    // A name makes them long.
    let name = crate::bytes::map(&[("instance_id", &[&[0xda, 0x80, 0][..], &[b'n'; 0x8000]].concat())]);
    let mut held = 0;
    let info = measure(|| {
        for n in 0..2000_u16 {
            // Of one participant, of strangers, and of nobody.
            let id = [0, n.max(2), u16::MAX][usize::from(n) % 3].to_le_bytes();
            let id = if n % 7 == 0 { &b"strange"[..] } else { &id };
            let input = [opening("DEALER", Some(id)), frame(0, &name)].concat();
            let conn = world.frontend.handle_accepted(world.now, 1).unwrap();
            world.frontend.handle_bytes(world.now, conn, &input);
            world.frontend.handle_eof(world.now, conn);
            while world.frontend.poll_action().is_some() {}
            held += 1;
        }
    });
    assert_eq!(held, 2000);
    assert!(info.bytes_max < 1 << 20, "{} bytes", info.bytes_max);
}

#[test]
fn everything_may_come_one_byte_at_a_time() {
    let mut world = World::new(config(1));
    let handshake = world.call(Socket::Handshake, b"");
    let input = world.call(Socket::Input, b"");
    for byte in [dealer(0), hello(), ready()].concat() {
        world.say(handshake, &[byte]);
    }
    for byte in [dealer(0), registration(0, 1)].concat() {
        world.say(input, &[byte]);
    }
    assert_eq!(world.indices(), [0]);
}

#[test]
fn a_ping_gets_a_pong_with_its_context() {
    let mut world = World::new(config(1));
    let caller = world.call(Socket::Handshake, &dealer(0));
    for context in [&b""[..], b"context", &[9; 16]] {
        let before = world.got(caller).len();
        world.say(caller, &frame(COMMAND, &[&b"\x04PING\x00\x0a"[..], context].concat()));
        assert_eq!(world.got(caller)[before..], frame(COMMAND, &[b"\x04PONG", context].concat()));
    }
    world.say(caller, &[frame(COMMAND, b"\x04PONG"), frame(COMMAND, b"\x09SUBSCRIBE?")].concat());
    assert!(!world.is_closed(caller));
    // It may come between the frames of a message, too.
    let ping = frame(COMMAND, b"\x04PING\x00\x00");
    world.say(caller, &[frame(MORE, b"1"), ping, frame(0, b"2")].concat());
    assert!(matches!(world.fault(), Fault::Frames { frames: 2, .. }));
}

#[test]
fn a_ping_that_is_none_ends_the_connection() {
    for ping in [&b"\x04PING"[..], b"\x04PING\x00", &[&b"\x04PING\x00\x00"[..], &[0; 17]].concat()] {
        let bytes = [dealer(0), frame(COMMAND, ping)].concat();
        assert_eq!(dropped(Socket::Handshake, &bytes), Some(LinkError::Command));
    }
    for command in [&b""[..], b"\x09short", b"\x05ERROR", b"\x05ERROR\x09short"] {
        let bytes = [dealer(0), frame(COMMAND, command)].concat();
        assert_eq!(dropped(Socket::Handshake, &bytes), Some(LinkError::Command));
    }
}

/// Sends a flood to a frontend whose peer does not read; the memory that takes, and whether it was closed.
fn flood(mut world: World, start: &[u8], part: &[u8], times: usize) -> (World, u64, bool) {
    let mut is_closed = false;
    let info = measure(|| {
        let conn = world.frontend.handle_accepted(world.now, 0).unwrap();
        world.frontend.handle_bytes(world.now, conn, start);
        for _ in 0..times {
            world.frontend.handle_bytes(world.now, conn, part);
            while let Some(action) = world.frontend.poll_action() {
                is_closed |= matches!(action, cuframes_core::streams::Action::Close(_));
            }
            while let Some(event) = world.frontend.poll_event() {
                world.events.truncate(9);
                world.events.push(event);
            }
        }
    });
    (world, info.bytes_max, is_closed)
}

#[test]
fn pings_of_who_does_not_read_take_bounded_memory_and_end_its_connection() {
    let ping = frame(COMMAND, &[&b"\x04PING\x00\x00"[..], &[7; 16]].concat());
    let (world, peak, is_closed) = flood(World::new(config(1)), &dealer(0), &ping, 1_000_000);
    assert!(is_closed && peak < 4 << 20, "{peak} bytes");
    let error = LinkError::NotReading;
    assert_eq!(world.events, [FrontendEvent::Dropped { socket: Socket::Handshake, error }]);
}

#[test]
fn hellos_of_who_does_not_read_take_bounded_memory_and_end_its_connection() {
    let mut config = config(1);
    config.restarts = true;
    config.init.parallel_config.push("key", "x".repeat(100_000));
    let (_, peak, is_closed) = flood(World::new(config), &dealer(0), &hello(), 1000);
    assert!(is_closed && peak < 4 << 20, "{peak} bytes");
}

#[test]
fn a_long_init_does_not_make_a_ping_a_fault() {
    let mut config = config(1);
    config.init.parallel_config.push("key", "x".repeat(1_000_000));
    let ping = frame(COMMAND, b"\x04PING\x00\x00");
    let (_, _, is_closed) = flood(World::new(config), &[dealer(0), hello()].concat(), &ping, 1);
    assert!(!is_closed);
}

#[test]
fn who_reads_slowly_but_steadily_is_kept_and_takes_no_memory() {
    let mut link = Link::new(SocketType::Router, &[]);
    let ping = frame(COMMAND, &[&b"\x04PING\x00\x00"[..], &[7; 16]].concat());
    let info = measure(|| {
        link.receive(&mut &dealer(0)[..]).unwrap();
        let mut waiting = link.poll_transmit().unwrap().len();
        for _ in 0..100_000 {
            assert_eq!(link.receive(&mut &ping[..]), Ok(None));
            // One byte is always left.
            waiting += 23;
            assert_eq!(link.poll_transmit().unwrap().len(), waiting);
            link.transmitted(waiting - 1);
            waiting = 1;
        }
    });
    assert!(info.bytes_max < 64 << 10, "{} bytes", info.bytes_max);
}

#[test]
fn what_is_no_zmtp_3_without_security_is_refused_at_its_first_wrong_byte() {
    let mut version_2 = greeting();
    version_2[10] = 2;
    let mut curve = greeting();
    curve[12..17].copy_from_slice(b"CURVE");
    let mut longer = greeting();
    longer[16] = b'2';
    for bytes in [&b"G"[..], &[0xfe], &version_2[..11], &curve[..13], &longer[..17]] {
        assert_eq!(dropped(Socket::Output, bytes), Some(LinkError::Greeting));
        assert_eq!(dropped(Socket::Output, &bytes[..bytes.len() - 1]), None);
    }
    // A later version, any filler, and the as-server bit are nothing to us.
    let mut later = greeting();
    (later[10], later[11], later[32], later[5]) = (4, 9, 1, 0x77);
    assert_eq!(dropped(Socket::Handshake, &later), None);
}

#[test]
fn sockets_that_do_not_fit_are_refused() {
    for kind in ["PUSH", "PULL", "REP", "PUB", "dealer", ""] {
        let error = LinkError::SocketType { ours: SocketType::Router };
        assert_eq!(dropped(Socket::Handshake, &opening(kind, None)), Some(error.clone()));
        assert_eq!(dropped(Socket::Input, &opening(kind, None)), Some(error));
    }
    for kind in ["DEALER", "PULL", "ROUTER"] {
        let error = LinkError::SocketType { ours: SocketType::Pull };
        assert_eq!(dropped(Socket::Output, &opening(kind, None)), Some(error));
    }
    let nothing = [greeting(), frame(COMMAND, b"\x05READY")].concat();
    assert_eq!(dropped(Socket::Output, &nothing), Some(LinkError::SocketType { ours: SocketType::Pull }));
    for kind in ["REQ", "ROUTER"] {
        assert_eq!(dropped(Socket::Handshake, &opening(kind, Some(b"id"))), None);
    }
}

#[test]
fn an_error_command_is_told() {
    for before in [greeting(), dealer(0)] {
        let bytes = [before, frame(COMMAND, b"\x05ERROR\x07go away")].concat();
        let error = dropped(Socket::Handshake, &bytes).unwrap();
        assert_eq!(error, LinkError::Refused(b"go away".into()));
        assert_eq!(error.to_string(), "it refused: go away");
    }
}

#[test]
fn ready_may_be_long_but_not_too_long() {
    let padding = |len: usize| {
        let mut body = ready_command("DEALER", Some(&[0, 0]))[2..].to_vec();
        body.extend(b"\x05X-Pad");
        body.extend(u32::try_from(len).unwrap().to_be_bytes());
        body.extend(vec![b'p'; len]);
        frame(COMMAND, &body)
    };
    let mut world = World::new(config(1));
    world.call(Socket::Handshake, &[greeting(), padding(8000), hello(), ready()].concat());
    world.call(Socket::Input, &[greeting(), padding(300), registration(0, 1)].concat());
    assert_eq!(world.indices(), [0]);
    let error = dropped(Socket::Handshake, &[greeting(), padding(MAX_COMMAND)].concat());
    assert!(matches!(error, Some(LinkError::TooLong { max: MAX_COMMAND, .. })));
}

#[test]
fn a_ready_that_does_not_parse_is_refused() {
    let body = ready_command("DEALER", Some(&[0, 0]))[2..].to_vec();
    for len in 7..body.len() {
        let bytes = [greeting(), frame(COMMAND, &body[..len])].concat();
        match dropped(Socket::Handshake, &bytes) {
            Some(LinkError::Command) => {}
            // The end of the first property.
            None if len == 6 + 12 + 4 + 6 => {}
            other => panic!("{len}: {other:?}"),
        }
    }
    // The names of properties are compared without case, and the last one counts.
    let mixed = ready_command("DEALER", None)[2..].to_vec();
    let mixed =
        [&mixed[..], b"\x08iDENTITY\x00\x00\x00\x02\x00\x00\x0bsocket-TYPE\x00\x00\x00\x03REQ"].concat();
    let mut world = World::new(config(1));
    world.call(Socket::Handshake, &[greeting(), frame(COMMAND, &mixed), hello(), ready()].concat());
    world.call(Socket::Input, &[dealer(0), registration(0, 1)].concat());
    assert_eq!(world.indices(), [0]);
}

#[test]
fn nothing_but_ready_may_follow_the_greeting() {
    for early in
        [hello(), frame(MORE, b""), frame(COMMAND, b"\x04PING\x00\x00"), frame(COMMAND, b"\x05HELLO")]
    {
        let bytes = [greeting(), early].concat();
        assert_eq!(dropped(Socket::Handshake, &bytes), Some(LinkError::NotReady));
    }
    for flags in [8, 0x80, 5, 7, 0xff] {
        let bytes = [dealer(0), vec![flags]].concat();
        assert_eq!(dropped(Socket::Input, &bytes), Some(LinkError::Flags(flags)));
    }
}

#[test]
fn events_of_strangers_do_not_pile_up() {
    let mut world = World::new(config(1));
    for _ in 0..10_000 {
        let conn = world.frontend.handle_accepted(world.now, 0).unwrap();
        world.frontend.handle_bytes(world.now, conn, b"GET /");
    }
    assert_eq!(std::iter::from_fn(|| world.frontend.poll_event()).count(), 64);
}

#[test]
fn a_stranger_on_the_output_socket_may_say_what_it_likes() {
    let mut world = World::new(config(1));
    let push: Caller = world.call(Socket::Output, &opening("PUSH", None));
    for _ in 0..100 {
        world.say(push, &[frame(MORE, &[1; 60_000]), frame(0, b"")].concat());
    }
    assert!(world.events.is_empty() && !world.is_closed(push));
}
