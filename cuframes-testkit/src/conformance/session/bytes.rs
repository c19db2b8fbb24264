//! Messages put together by hand from the tables of §3, so that a mistake of the codec does not hide itself.

/// `message_type` of each message (§3.2).
pub const HELLO_REQ: u32 = 0x01;
/// The publisher's answer.
pub const HELLO_RESP: u32 = 0x02;
/// Asks for a bit.
pub const SUBSCRIBE_REQ: u32 = 0x03;
/// The answer with the bit.
pub const SUBSCRIBE_RESP: u32 = 0x04;
/// The orderly end.
pub const UNSUBSCRIBE: u32 = 0x10;
/// Hands over a descriptor.
pub const EVENT_FD: u32 = 0x20;
/// The publisher stops.
pub const SHUTDOWN: u32 = 0x30;
/// Is somebody there?
pub const PING: u32 = 0xF0;
/// The answer to PING.
pub const PONG: u32 = 0xF1;
/// A fault.
pub const ERROR: u32 = 0xFE;

/// All types of §3.2 with their names.
pub const TYPES: [(u32, &str); 10] = [
    (HELLO_REQ, "HELLO_REQ"),
    (HELLO_RESP, "HELLO_RESP"),
    (SUBSCRIBE_REQ, "SUBSCRIBE_REQ"),
    (SUBSCRIBE_RESP, "SUBSCRIBE_RESP"),
    (UNSUBSCRIBE, "UNSUBSCRIBE"),
    (EVENT_FD, "EVENT_FD"),
    (SHUTDOWN, "SHUTDOWN"),
    (PING, "PING"),
    (PONG, "PONG"),
    (ERROR, "ERROR"),
];

/// `cuframes_error_t` (§A.1): a value that is not allowed.
pub const INVALID_ARGUMENT: i32 = -1;
/// A violation, or another version.
pub const PROTOCOL: i32 = -4;
/// The format can't be used.
pub const FORMAT: i32 = -5;
/// No bit is left.
pub const TOO_MANY: i32 = -6;
/// A deadline passed.
pub const TIMEOUT: i32 = -8;
/// A needed extension is missing.
pub const UNSUPPORTED: i32 = -13;
/// The subscriber blocked the publisher for too long.
pub const EVICTED: i32 = -15;

/// Feature bits (§6.4): region and pool as descriptors.
pub const FD_PASSING: u32 = 1;
/// A frame in use is never overwritten.
pub const LEASE: u32 = 2;
/// No system call for a peer that is awake.
pub const WAKE_HINT: u32 = 4;
/// The numbers of the slots where only the publisher can write.
pub const WITNESSED: u32 = 32;
/// No frame is required of the subscriber.
pub const NO_ACK: u32 = 64;

/// `fd_purpose` (§3.7): a frame was published.
pub const WAKE_UP: u32 = 1;
/// The region.
pub const REGION: u32 = 2;
/// Host memory of the pool.
pub const HOST_POOL: u32 = 3;
/// The eventfd of the publisher.
pub const PUBLISHER_WAKE_UP: u32 = 5;
/// The witness.
pub const WITNESS: u32 = 6;

/// What HELLO_REQ says (§3.3).
#[derive(Clone, Debug)]
pub struct Hello {
    /// `proto_version`.
    pub version: u32,
    /// `consumer_name`, which may be no text at all.
    pub name: Vec<u8>,
    /// `cuda_device`.
    pub device: i32,
    /// `mode`.
    pub mode: u32,
    /// `features`.
    pub features: u32,
}

/// What a successful HELLO_RESP says (§3.4).
#[derive(Clone, Debug)]
pub struct Stream {
    /// `proto_version_actual`.
    pub version: u32,
    /// `ring_size`.
    pub ring_size: u32,
    /// `ownership_mode`.
    pub ownership: u32,
    /// `frame_meta`.
    pub meta: [u8; 64],
    /// `shm_path`.
    pub shm_path: String,
    /// `features`.
    pub features: u32,
}

impl Hello {
    /// "rec" with these features, as in the golden vectors.
    #[must_use]
    pub fn rec(features: u32) -> Self {
        Self { version: 1, name: b"rec".to_vec(), device: 2, mode: 1, features }
    }

    /// The message.
    #[must_use]
    pub fn message(&self) -> Vec<u8> {
        let name = text(&self.name);
        let fields = [
            &u32_le(self.version),
            &*name,
            &self.device.to_le_bytes(),
            &u32_le(self.mode),
            &u32_le(self.features),
        ];
        message(HELLO_REQ, &[&fields.concat()[..], &[0; 8]].concat())
    }
}

impl Stream {
    /// The message.
    #[must_use]
    pub fn message(&self) -> Vec<u8> {
        let path = text(self.shm_path.as_bytes());
        let head = [0, self.version, self.ring_size, self.ownership].map(u32::to_le_bytes).concat();
        message(HELLO_RESP, &[&head, &self.meta[..], &path, &u32_le(self.features), &[0; 8]].concat())
    }

    /// `features` in force instead.
    #[must_use]
    pub fn with(&self, features: u32) -> Self {
        Self { features, ..self.clone() }
    }
}

/// A message of this type and payload (§3.1).
///
/// # Panics
/// If the payload is longer than any.
#[must_use]
pub fn message(message_type: u32, payload: &[u8]) -> Vec<u8> {
    [&u32_le(message_type)[..], &u32_le(payload.len().try_into().unwrap()), payload].concat()
}

/// A refusal in HELLO_RESP, in its short form (§3.4).
#[must_use]
pub fn hello_refused(code: i32) -> Vec<u8> {
    message(HELLO_RESP, &[&code.to_le_bytes()[..], &[0; 12]].concat())
}

/// SUBSCRIBE_REQ (§3.5).
#[must_use]
pub fn subscribe_req(version: u32) -> Vec<u8> {
    message(SUBSCRIBE_REQ, &[&u32_le(version)[..], &[0; 12]].concat())
}

/// SUBSCRIBE_RESP, 28 bytes (§3.6).
#[must_use]
pub fn subscribe_resp(result: i32, bit: u32, initial_seq: u64) -> Vec<u8> {
    let fields = [&result.to_le_bytes()[..], &u32_le(bit), &initial_seq.to_le_bytes(), &[0; 12]];
    message(SUBSCRIBE_RESP, &fields.concat())
}

/// SUBSCRIBE_RESP with a short `initial_seq`, 24 bytes (D-2).
#[must_use]
pub fn subscribe_resp_short(bit: u32, initial_seq: u32) -> Vec<u8> {
    message(SUBSCRIBE_RESP, &[&[0, bit, initial_seq].map(u32::to_le_bytes).concat()[..], &[0; 12]].concat())
}

/// EVENT_FD with any index and count (§3.7).
#[must_use]
pub fn event_fd_of(purpose: u32, index: u32, count: u32) -> Vec<u8> {
    message(EVENT_FD, &[purpose, index, count, 0].map(u32::to_le_bytes).concat())
}

/// EVENT_FD for a purpose of which there is one: 0 of 1, and nothing at all for an eventfd (§3.7).
#[must_use]
pub fn event_fd(purpose: u32) -> Vec<u8> {
    event_fd_of(purpose, 0, [REGION, HOST_POOL, WITNESS].contains(&purpose).into())
}

/// SHUTDOWN (§3.8).
#[must_use]
pub fn shutdown(reason: u32) -> Vec<u8> {
    message(SHUTDOWN, &[&u32_le(reason)[..], &[0; 12]].concat())
}

/// ERROR (§3.9).
#[must_use]
pub fn error(code: i32, words: &str) -> Vec<u8> {
    message(ERROR, &[&code.to_le_bytes()[..], &text(words.as_bytes()), &[0; 12]].concat())
}

/// A message that is well-formed, of each type.
///
/// # Panics
/// If there is no such type.
#[must_use]
pub fn any(message_type: u32) -> Vec<u8> {
    match message_type {
        HELLO_REQ => Hello::rec(7).message(),
        HELLO_RESP => hello_refused(PROTOCOL),
        SUBSCRIBE_REQ => subscribe_req(1),
        SUBSCRIBE_RESP => subscribe_resp(0, 1, 41),
        UNSUBSCRIBE => message(UNSUBSCRIBE, &[]),
        EVENT_FD => event_fd(WAKE_UP),
        SHUTDOWN => shutdown(0),
        PING => message(PING, &[]),
        PONG => message(PONG, &[]),
        ERROR => error(PROTOCOL, "length 4097"),
        other => panic!("no type {other:#x}"),
    }
}

/// `message` with other bytes in its payload from `at` on.
///
/// # Panics
/// If it is too short.
#[must_use]
pub fn patched(message: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut message = message.to_vec();
    message.get_mut(8 + at..8 + at + bytes.len()).unwrap().copy_from_slice(bytes);
    message
}

/// `message` with a payload of another length: cut, or with zeros behind it.
///
/// # Panics
/// Never.
#[must_use]
pub fn resized(message: &[u8], len: usize) -> Vec<u8> {
    let mut message = message.to_vec();
    message.resize(8 + len, 0);
    message.splice(4..8, u32_le(len.try_into().unwrap()));
    message
}

/// Frame meta (§2.1).
#[must_use]
pub fn meta(format: u32, size: [u32; 2], pitch: [u32; 2], bits_per_pixel: u32, frame_size: u64) -> [u8; 64] {
    let words = [format, size[0], size[1], pitch[0], pitch[1], bits_per_pixel].map(u32::to_le_bytes).concat();
    let mut meta = [0; 64];
    for (to, from) in meta.iter_mut().zip(words.into_iter().chain(frame_size.to_le_bytes())) {
        *to = from;
    }
    meta
}

/// The first `len` bytes of a message.
///
/// # Panics
/// If it is shorter.
#[must_use]
pub fn begun(message: &[u8], len: usize) -> Vec<u8> {
    message.get(..len).unwrap().to_vec()
}

fn text(bytes: &[u8]) -> Vec<u8> {
    [&u32_le(bytes.len().try_into().unwrap())[..], bytes].concat()
}

const fn u32_le(value: u32) -> [u8; 4] {
    value.to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vectors::vector;

    #[test]
    fn what_is_put_together_by_hand_is_golden() {
        let stream = Stream {
            version: 1,
            ring_size: 8,
            ownership: 0,
            meta: meta(1, [1920, 1080], [2048, 2048], 12, 3_317_760),
            shm_path: "/dev/shm/cuframes-cam0".into(),
            features: 0,
        };
        let detector = Hello { name: b"detector".to_vec(), device: 0, mode: 0, ..Hello::rec(0) };
        let v2 = Hello { version: 2, name: b"x".to_vec(), device: -1, mode: 0, features: 0 };
        let cases = [
            ("hello_req_nv", detector.message()),
            ("hello_req_features", Hello::rec(7).message()),
            ("hello_req_v2", v2.message()),
            ("hello_resp_ok", stream.message()),
            ("hello_resp_features", stream.with(7).message()),
            ("hello_resp_refused", hello_refused(PROTOCOL)),
            ("subscribe_req", subscribe_req(1)),
            ("subscribe_resp", subscribe_resp(0, 1, 41)),
            ("subscribe_resp_full", subscribe_resp(TOO_MANY, 0, 0)),
            ("subscribe_resp_u32", subscribe_resp_short(31, 41)),
            ("unsubscribe", any(UNSUBSCRIBE)),
            ("event_fd_wake", event_fd(WAKE_UP)),
            ("event_fd_pool", event_fd(HOST_POOL)),
            ("shutdown_normal", shutdown(0)),
            ("ping", any(PING)),
            ("pong", any(PONG)),
            ("error_protocol", error(PROTOCOL, "length 4097")),
        ];
        for (name, bytes) in cases {
            assert_eq!(bytes, vector(name), "{name}");
        }
    }
}
