//! What goes over the wire, put together by hand and not by the code under test.

/// A vector of `vectors/`.
macro_rules! vector {
    ($name:literal) => {
        crate::bytes::unhex(include_str!(concat!("../../vectors/", $name, ".hex")))
    };
}
pub(crate) use vector;

pub(crate) const HANDSHAKE: &str = "tcp://127.0.0.1:20999";
pub(crate) const INPUT: &str = "tcp://127.0.0.1:21000";
pub(crate) const OUTPUT: &str = "tcp://127.0.0.1:21001";

/// A frame that another one of the same message follows.
pub(crate) const MORE: u8 = 1;
/// A command.
pub(crate) const COMMAND: u8 = 4;

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    let digits: String = text.lines().filter(|line| !line.starts_with('#')).collect();
    let digits: Vec<u8> = digits.chars().map(|c| u8::try_from(c.to_digit(16).unwrap()).unwrap()).collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// ZMTP 3.1, NULL mechanism.
pub(crate) fn greeting() -> Vec<u8> {
    [&[0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 3, 1], &b"NULL"[..], &[0; 48]].concat()
}

/// A frame of any length below 64 KiB.
pub(crate) fn frame(flags: u8, body: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(body.len()).unwrap().to_be_bytes();
    if high == 0 {
        [&[flags, low], body].concat()
    } else {
        [&[flags | 2, 0, 0, 0, 0, 0, 0, high, low], body].concat()
    }
}

/// The READY command of a socket of this type.
pub(crate) fn ready_command(kind: &str, identity: Option<&[u8]>) -> Vec<u8> {
    let mut body = b"\x05READY".to_vec();
    let identity = identity.map(|identity| ("Identity", identity));
    for (name, value) in [("Socket-Type", kind.as_bytes())].into_iter().chain(identity) {
        body.push(u8::try_from(name.len()).unwrap());
        body.extend(name.as_bytes());
        body.extend(u32::try_from(value.len()).unwrap().to_be_bytes());
        body.extend(value);
    }
    frame(COMMAND, &body)
}

/// Greeting and READY.
pub(crate) fn opening(kind: &str, identity: Option<&[u8]>) -> Vec<u8> {
    [greeting(), ready_command(kind, identity)].concat()
}

/// Greeting and READY of the DEALER of a participant.
pub(crate) fn dealer(index: u16) -> Vec<u8> {
    opening("DEALER", Some(&index.to_le_bytes()))
}

/// A string that is shorter than 32 bytes.
pub(crate) fn text(value: &str) -> Vec<u8> {
    assert!(value.len() < 32);
    [&[0xa0 | u8::try_from(value.len()).unwrap()], value.as_bytes()].concat()
}

/// A map with fewer than 16 keys.
pub(crate) fn map(pairs: &[(&str, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![0x80 | u8::try_from(pairs.len()).unwrap()];
    for (key, value) in pairs {
        bytes.extend(text(key));
        bytes.extend(*value);
    }
    bytes
}

pub(crate) fn hello() -> Vec<u8> {
    frame(0, &vector!("hello"))
}

pub(crate) fn ready() -> Vec<u8> {
    frame(0, &vector!("ready"))
}

/// A registration, with ranks below 128.
pub(crate) fn registration(rank: u8, size: u8) -> Vec<u8> {
    frame(0, &map(&[("data_parallel_rank", &[rank]), ("data_parallel_size", &[size])]))
}

/// INIT with the addresses of the vector, and the mark of the extension if it is `marked`.
pub(crate) fn init(marked: bool) -> Vec<u8> {
    let mut payload = vector!("init");
    if marked {
        // The empty map at its end gets a pair.
        assert_eq!(payload.pop(), Some(0x80));
        payload.extend(map(&[("cuframes", &[1])]));
    }
    frame(0, &payload)
}

/// A word of the extension, as it is sent.
pub(crate) fn notice(word: &str, reason: Option<&str>) -> Vec<u8> {
    let reason = reason.map_or_else(
        || vec![0xc0],
        |reason| match u8::try_from(reason.len()).unwrap() {
            0..32 => text(reason),
            len => [&[0xd9, len], reason.as_bytes()].concat(),
        },
    );
    frame(0, &map(&[("status", &text(word)), ("reason", &reason)]))
}
