//! Where the fuzzing of the start-up barrier starts.

use cuframes_barrier::message::{Init, Registration, Status};

use super::start::{frame, opening};

type Seeds = Vec<(String, Vec<u8>)>;

fn messages() -> [(&'static str, Vec<u8>); 5] {
    let mut init = Init::default();
    init.addresses.inputs.push("tcp://127.0.0.1:21000".into());
    init.parallel_config.push("cuframes", 1);
    let mut registration = Registration { kv_cache_max_concurrency: Some(1.5), ..Registration::new(1, 2) };
    registration.kv_events_config = Some(init.parallel_config.clone());
    [
        ("hello", Status::new(Status::HELLO).encode()),
        ("ready", Status::new(Status::READY).encode()),
        ("init", init.encode()),
        ("registration", registration.encode()),
        ("empty", vec![0x80]),
    ]
}

/// Each message as it is.
pub(super) fn start_message() -> Seeds {
    messages().into_iter().map(|(name, bytes)| (name.to_string(), bytes)).collect()
}

/// Each message after an opening, at a ROUTER, in pieces of five bytes; and what else a link hears.
pub(super) fn zmtp() -> Seeds {
    let stream =
        |ours: u8, kind: &str, rest: &[u8]| [&[ours, 5], &opening(kind, Some(&[5, 0]))[..], rest].concat();
    let mut seeds: Seeds = messages()
        .into_iter()
        .map(|(name, bytes)| (name.to_string(), stream(0, "DEALER", &frame(bytes))))
        .collect();
    let others: [(&str, u8, &str, &[u8]); 6] = [
        ("ping", 0, "DEALER", b"\x04\x08\x04PING\x00\x00!"),
        ("error", 0, "DEALER", b"\x04\x09\x05ERROR\x02no"),
        ("two-frames", 0, "DEALER", b"\x01\x00\x00\x02hi"),
        ("too-long", 0, "DEALER", b"\x02\x40\x00\x00\x00\x00\x00\x00\x00"),
        ("init-at-dealer", 1, "ROUTER", b"\x00\x01\x80"),
        ("result-at-pull", 2, "PUSH", b"\x00\x06result"),
    ];
    seeds.extend(others.map(|(name, ours, kind, rest)| (name.into(), stream(ours, kind, rest))));
    seeds.push(("wrong-socket".into(), stream(3, "PUSH", b"")));
    seeds
}

/// Stories of two participants, with all options: `a` and `b` begin, say HELLO, READY and register.
pub(super) fn start_frontend() -> Seeds {
    const HELLO: u8 = 0;
    const READY: u8 = 1;
    const REGISTER: u8 = 2;
    const KNOWS: u8 = 3;
    const CANCEL: u8 = 4;
    /// Connects to a socket and greets as this participant: it is the newest connection then.
    fn greet(socket: u8, participant: u8) -> Vec<u8> {
        vec![socket << 3, 1, participant]
    }
    /// Says a word on the newest connection.
    const fn say(word: u8, rank: u8) -> [u8; 2] {
        [2, word | rank << 3]
    }
    let handshake =
        |participant| [&greet(0, participant)[..], &say(HELLO, 0), &[5, 255], &say(KNOWS, 0)].concat();
    let readies = |participant| [&handshake(participant)[..], &say(READY, 0)].concat();
    let registers = |participant| [&greet(1, participant)[..], &say(REGISTER, participant)].concat();
    let all = [
        readies(0),
        greet(2, 0),
        registers(0),
        readies(1),
        registers(1),
        vec![5, 255, 6 | 31 << 3, 6 | 31 << 3],
    ];
    let stories = [
        ("all", all.concat()),
        ("early-registrations", [registers(0), registers(1), readies(0), readies(1)].concat()),
        ("restart", [readies(0), registers(0), handshake(0), say(READY, 0).into(), readies(1)].concat()),
        ("lost", [readies(0), readies(1), registers(0), vec![4], registers(0), registers(1)].concat()),
        ("timeout", [readies(0), [6 | 31 << 3; 6].to_vec(), vec![5, 255]].concat()),
        ("cancel", [handshake(1), handshake(0), say(CANCEL, 0).into(), vec![5 | 1 << 3, 255]].concat()),
        ("aborted", [handshake(0), vec![7 | 31 << 3, 5, 9, 5, 255]].concat()),
        ("flood", [[24 << 3; 20].to_vec(), readies(0)].concat()),
        ("noise", [greet(0, 0), vec![3, 4, 0xff, 0, 1, 2], greet(0, 1), vec![2, 7, 5, 255, 4]].concat()),
    ];
    let mut seeds = Vec::new();
    for (name, steps) in stories {
        for options in 0..4 {
            let data = [&[options, 2], &steps[..]].concat();
            seeds.push((format!("{name}-{options}"), data));
        }
    }
    // At the last indices, and a start that is not possible.
    seeds.push(("last-indices".into(), [&[7, 2, 1], &registers(0)[..]].concat()));
    seeds.push(("nobody".into(), vec![0, 0]));
    seeds
}
