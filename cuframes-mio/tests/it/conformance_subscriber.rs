//! Our subscriber passes the suite for subscribers, over a socket; and what it says of a region and a pool that are not what
//! they must be (§1.1, §2.2, §2.4).

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::pipe;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixListener;
use std::rc::Rc;
use std::time::Duration;

use crate::common::{self, STRICT};
use crate::raw_socket::{Driven, RawSocket, settle};
use cuframes_mio::core::error::ErrorCode;
use cuframes_mio::core::{Features, Gone, Policy};
use cuframes_mio::{Error, Pollable, Reconnect, Subscriber, SubscriberBuilder};
use cuframes_testkit::conformance::session::bytes::{
    ERROR, FD_PASSING, FORMAT, HOST_POOL, Hello, LEASE, PROTOCOL, REGION, Stream, UNSUPPORTED, WAKE_HINT,
    WAKE_UP, WITNESSED, event_fd, meta, subscribe_req, subscribe_resp,
};
use cuframes_testkit::conformance::session::publisher::purposes;
use cuframes_testkit::conformance::session::subscriber::{self, End, Subscriber as _};
use cuframes_testkit::conformance::session::{LONG, Raw};
use cuframes_testkit::layout;
use cuframes_testkit::subscriber_conformance;
use cuframes_testkit::vectors::vector;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

/// A subscriber to a stream in host memory.
struct HostMemory {
    subscriber: Driven<Subscriber>,
    stream: common::Stream,
    features: u32,
    /// The wake-up eventfd that it gets.
    wake_up: Rc<OwnedFd>,
    end: Cell<Option<End>>,
}

subscriber_conformance!(host_memory, HostMemory);

impl HostMemory {
    /// Begins to subscribe to a stream with this region and this pool.
    fn start(features: u32, patience: Duration, memory: (File, OwnedFd)) -> (Self, RawSocket<Subscriber>) {
        Self::start_with(features, |builder| builder.timeout(patience), memory, new_eventfd())
    }

    fn start_with(
        features: u32,
        settings: impl Fn(SubscriberBuilder) -> SubscriberBuilder,
        memory: (File, OwnedFd),
        wake_up: OwnedFd,
    ) -> (Self, RawSocket<Subscriber>) {
        let stream = common::Stream::new();
        let listener = UnixListener::bind(stream.socket()).unwrap();
        let builder = settings(stream.subscriber("rec", STRICT).features(Features(features)));
        let subscriber = Pollable::new(builder.start().unwrap()).unwrap();
        let subscriber = Rc::new(RefCell::new(Some(subscriber)));
        let (socket, _) = listener.accept().unwrap();
        let wake_up = Rc::new(wake_up);
        let to_send = Rc::clone(&wake_up);
        let descriptor = move |purpose| match purpose {
            REGION => memory.0.try_clone().unwrap().into(),
            HOST_POOL => memory.1.try_clone().unwrap(),
            WAKE_UP => to_send.try_clone().unwrap(),
            _ => new_eventfd(),
        };
        let raw = RawSocket::new(socket, &subscriber, Box::new(descriptor));
        (Self { subscriber, stream, features, wake_up, end: Cell::new(None) }, raw)
    }

    /// Answers the handshake up to the last descriptor.
    fn welcome(
        memory: (File, OwnedFd),
        stream: impl Fn(Stream) -> Stream,
    ) -> (Self, Raw<RawSocket<Subscriber>>) {
        Self::welcomed(Self::start(ALL, LONG, memory), stream)
    }

    /// As [`welcome`](Self::welcome), one that has begun.
    fn welcomed(
        (subscriber, wire): (Self, RawSocket<Subscriber>),
        stream: impl Fn(Stream) -> Stream,
    ) -> (Self, Raw<RawSocket<Subscriber>>) {
        let mut raw = Raw::new(wire);
        raw.expect(&subscriber.hello().message());
        raw.send(&stream(subscriber.stream()).message());
        raw.expect(&subscribe_req(1));
        raw.send(&subscribe_resp(0, 1, 41));
        for purpose in purposes(ALL) {
            raw.send_with(&event_fd(purpose), &[purpose]);
        }
        (subscriber, raw)
    }
}

impl subscriber::Subscriber for HostMemory {
    type Wire = RawSocket<Subscriber>;
    const NEEDED: u32 = FD_PASSING;

    fn new(features: u32, patience: Duration) -> (Self, RawSocket<Subscriber>) {
        let memory = (region(&[]), pool(POOL_SIZE, SEALS));
        Self::start(features, patience, memory)
    }

    fn hello(&self) -> Hello {
        Hello { device: -1, ..Hello::rec(self.features) }
    }

    fn stream(&self) -> Stream {
        Stream {
            version: 1,
            ring_size: 8,
            ownership: 0,
            meta: frame_meta(),
            shm_path: format!("/dev/shm/cuframes-{}", self.stream.key),
            features: self.features,
        }
    }

    fn is_ready(&self) -> bool {
        settle(&self.subscriber);
        self.subscriber.borrow().as_ref().unwrap().get_ref().is_ready()
    }

    fn leave(&self) {
        self.end.set(Some(End::Unsubscribed));
        drop(self.subscriber.take());
    }

    fn end(&self) -> Option<End> {
        settle(&self.subscriber);
        // Why it ended itself is told once.
        if self.end.get().is_none() {
            let subscriber = &mut *self.subscriber.borrow_mut();
            let next = subscriber.as_mut().unwrap().with(|subscriber| {
                // There may be a frame before the end.
                subscriber.poll_next().and_then(|_| subscriber.poll_next()).map(drop)
            });
            self.end.set(next.unwrap().err().map(|error| match error {
                Error::Violation { .. } => End::Violation,
                Error::Refused { refused, .. } => End::Refused(refused.code.0),
                Error::Gone { gone: Gone::Shutdown(reason), .. } => End::Shutdown(reason.0),
                Error::Gone { gone: Gone::Disconnected, .. } => End::Disconnected,
                Error::Gone { gone: Gone::Timeout { .. }, .. } => End::Timeout,
                Error::Gone { gone: Gone::NotReading, .. } => End::NotReading,
                other => panic!("{other}"),
            }));
        }
        self.end.get()
    }
}

fn new_eventfd() -> OwnedFd {
    eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap()
}

/// NV12, 320 x 240.
fn frame_meta() -> [u8; 64] {
    meta(1, [320, 240], [512, 512], 12, 512 * 360)
}

/// The region of a publisher that has published 41 frames, in slot 41 mod 8, with other bytes at some offsets.
fn region(changes: &[(usize, &[u8])]) -> File {
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(&vector("region_empty"), 0).unwrap();
    let word = |at: usize, value: u64| (at, value.to_le_bytes().to_vec());
    let mut contents =
        vec![(0x40, frame_meta().to_vec()), word(0xC0, 41), word(0xC8, 2), word(0xD8, ALL.into())];
    contents.extend([word(0xE0, 1), word(0xE8, 0x1234), word(layout::slot(1), 41)]);
    for slot in 0..8 {
        let handle = layout::slot(slot) + 0x20;
        let offset = u64::try_from(slot).unwrap() * STRIDE;
        contents.extend([
            (handle, b"CUFHOST1".to_vec()),
            word(handle + 8, offset),
            word(handle + 16, 512 * 360),
        ]);
    }
    let seat = layout::subscriber(1);
    contents.extend([word(seat, 2), word(seat + 0x10, 41), word(seat + 0x50, 1)]);
    contents.extend(changes.iter().map(|(at, bytes)| (*at, bytes.to_vec())));
    for (at, bytes) in contents {
        file.write_all_at(&bytes, u64::try_from(at).unwrap()).unwrap();
    }
    file
}

/// Memory for eight frames.
fn pool(size: u64, seals: SealFlags) -> OwnedFd {
    let pool = memfd_create("pool", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&pool, size).unwrap();
    fcntl_add_seals(&pool, seals).unwrap();
    pool
}

/// What a pool must have (§3.7).
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE);
/// From one frame to the next.
const STRIDE: u64 = 512 * 360;
const POOL_SIZE: u64 = 8 * STRIDE;
const ALL: u32 = FD_PASSING | LEASE | WAKE_HINT;

#[test]
fn a_ready_subscriber_says_how_it_wakes_takes_the_current_frame_and_acknowledges_it() {
    let region = region(&[]);
    let memory = (region.try_clone().unwrap(), pool(POOL_SIZE, SEALS));
    let (subscriber, mut raw) = HostMemory::welcome(memory, |stream| stream);
    raw.expect_silence();
    let word = |at: usize| {
        let mut word = [0; 8];
        region.read_exact_at(&mut word, u64::try_from(at).unwrap()).unwrap();
        u64::from_le_bytes(word)
    };
    let seat = layout::subscriber(1);
    assert_eq!(word(seat + 0x40), 1, "wake_mode (X-3)");
    let subscriber = &mut *subscriber.subscriber.borrow_mut();
    let frame =
        subscriber.as_mut().unwrap().with(|subscriber| subscriber.poll_next().unwrap().unwrap()).unwrap();
    assert_eq!((frame.seq(), frame.lost()), (41, 0), "the current frame (D-17)");
    assert_eq!(word(layout::slot(1) + 0x80), 2, "lease_bitmap (X-2)");
    frame.release().unwrap();
    assert_eq!((word(layout::slot(1) + 0x80), word(seat + 0x10)), (0, 41), "lease_bitmap, last_seen_seq");
    assert_eq!(word(layout::slot(1) + 0x10), 0, "no ack bit for a frame up to initial_seq (D-5)");
}

/// A plain v1 publisher may leave 0 in `written_bytes`, which says nothing (D-35).
#[test]
fn no_valid_bytes_are_none_only_from_a_publisher_that_says_so() {
    let whole = usize::try_from(STRIDE).unwrap();
    for (epoch, len) in [(0_u64, whole), (0x1234, 0)] {
        let memory = (region(&[(0xE8, &epoch.to_le_bytes())]), pool(POOL_SIZE, SEALS));
        let (subscriber, mut raw) = HostMemory::welcome(memory, |stream| stream);
        raw.expect_silence();
        let subscriber = &mut *subscriber.subscriber.borrow_mut();
        let frame = subscriber.as_mut().unwrap().with(|subscriber| subscriber.poll_next().unwrap().unwrap());
        let (frame, mut copy) = (frame.unwrap(), vec![1; whole]);
        assert_eq!((frame.epoch(), frame.len(), frame.bytes().unwrap().len()), (epoch, len, len));
        assert_eq!(frame.copy_to_host(&(), &mut copy, LONG).unwrap(), len);
        assert!(copy[..len].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn a_wake_up_eventfd_that_comes_when_it_is_ready_already_wakes_its_loop() {
    let memory = (region(&[]), pool(POOL_SIZE, SEALS));
    let (subscriber, wire) = HostMemory::start(FD_PASSING | LEASE, LONG, memory);
    let mut raw = Raw::new(wire);
    raw.expect(&subscriber.hello().message());
    raw.send(&subscriber.stream().message());
    raw.expect(&subscribe_req(1));
    raw.send(&subscribe_resp(0, 1, 41));
    [REGION, HOST_POOL].iter().for_each(|purpose| raw.send_with(&event_fd(*purpose), &[*purpose]));
    raw.expect_silence();
    assert!(subscriber.is_ready());
    raw.send_with(&event_fd(WAKE_UP), &[WAKE_UP]);
    raw.expect_silence();
    let is_awake = || {
        settle(&subscriber.subscriber);
        let mut counter = [0; 8];
        rustix::io::read(&*subscriber.wake_up, &mut counter).is_err()
    };
    assert!(is_awake(), "nobody rang");
    rustix::io::write(&*subscriber.wake_up, &1_u64.to_ne_bytes()).unwrap();
    assert!(is_awake(), "the loop has emptied it");
}

#[test]
fn a_region_that_is_not_what_it_must_be_is_refused_by_its_field() {
    let handle = layout::slot(7) + 0x20;
    let cases: [(usize, &[u8], i32, &str); 16] = [
        (0x00, b"\xCD", PROTOCOL, "magic"),
        (0x04, &[2], PROTOCOL, "proto_version"),
        (0x20, &[0], PROTOCOL, "ring_size"),
        (0x20, &[17], PROTOCOL, "ring_size"),
        (0x20, &[7], PROTOCOL, "ring_size"),
        (0x28, &[1], PROTOCOL, "ownership_mode"),
        (0x40, &[2], PROTOCOL, "pitch_y"),
        (0x44, &319_u32.to_le_bytes(), PROTOCOL, "meta"),
        (0x58, &[1], PROTOCOL, "frame_size_bytes"),
        (0x40, &[99], FORMAT, "format"),
        (0xE0, &[0], UNSUPPORTED, "memory of kind"),
        (0xE0, &[2], UNSUPPORTED, "memory of kind"),
        (0xE0, &[99], UNSUPPORTED, "memory of kind"),
        (handle, b"CUFVMM01", PROTOCOL, "cuda_mem_handle"),
        (handle + 8, &(7 * STRIDE + 8).to_le_bytes(), PROTOCOL, "cuda_mem_handle"),
        (handle + 16, &(STRIDE - 1).to_le_bytes(), PROTOCOL, "cuda_mem_handle"),
    ];
    for (at, bytes, code, field) in cases {
        let memory = (region(&[(at, bytes)]), pool(POOL_SIZE, SEALS));
        let (subscriber, mut raw) = HostMemory::welcome(memory, |stream| stream);
        raw.expect_error(code, &[field]);
        assert!(!subscriber.is_ready(), "{field}");
    }
    let short = region(&[]);
    short.set_len(7423).unwrap();
    let (_subscriber, mut raw) = HostMemory::welcome((short, pool(POOL_SIZE, SEALS)), |stream| stream);
    raw.expect_error(PROTOCOL, &["region size"]);
}

#[test]
fn what_a_later_version_may_change_in_a_region_is_no_fault() {
    let cases: [(usize, &[u8]); 7] = [
        (0x08, &[9; 12]),
        (0x30, &[99]),
        (0x38, &[99]),
        (0xD8, &[0xFF; 8]),
        (0xF8, &[0xFF; 8]),
        (layout::slot(1) + 0x98, &[0xFF; 40]),
        // A longer region (D-34).
        (0x1D00, b"more"),
    ];
    for (at, bytes) in cases {
        let (subscriber, mut raw) =
            HostMemory::welcome((region(&[(at, bytes)]), pool(POOL_SIZE, SEALS)), |stream| stream);
        raw.expect_silence();
        assert!(subscriber.is_ready(), "{at:#x}");
    }
}

#[test]
fn a_pool_that_may_shrink_or_that_others_may_write_or_that_is_too_small_is_refused() {
    let unsafe_pools = [
        (POOL_SIZE, SealFlags::empty(), "seals"),
        (POOL_SIZE, SealFlags::GROW.union(SealFlags::FUTURE_WRITE), "seals"),
        (POOL_SIZE, SealFlags::SHRINK.union(SealFlags::GROW), "seals"),
        (POOL_SIZE - 1, SEALS, "cuda_mem_handle"),
        (0, SEALS, "cuda_mem_handle"),
    ];
    for (size, seals, field) in unsafe_pools {
        let (_subscriber, mut raw) = HostMemory::welcome((region(&[]), pool(size, seals)), |stream| stream);
        raw.expect_error(PROTOCOL, &[field]);
    }
}

#[test]
fn what_others_could_write_is_no_witness() {
    let (subscriber, wire) = HostMemory::start(ALL | WITNESSED, LONG, (region(&[]), pool(POOL_SIZE, SEALS)));
    let mut raw = Raw::new(wire);
    raw.expect(&subscriber.hello().message());
    raw.send(&subscriber.stream().message());
    raw.expect(&subscribe_req(1));
    raw.send(&subscribe_resp(0, 1, 41));
    for purpose in purposes(ALL | WITNESSED) {
        assert!(!subscriber.is_ready(), "before purpose {purpose}");
        raw.send_with(&event_fd(purpose), &[purpose]);
    }
    raw.expect_error(PROTOCOL, &["seals of the witness"]);
    assert!(!subscriber.is_ready());
}

#[test]
fn a_path_that_is_not_that_of_the_region_is_refused_though_it_is_not_opened() {
    let memory = || (region(&[]), pool(POOL_SIZE, SEALS));
    for shm_path in ["/etc/passwd", "/dev/shm/cuframes-other", "", "cuframes-x"] {
        let (subscriber, mut raw) =
            HostMemory::welcome(memory(), |stream| Stream { shm_path: shm_path.into(), ..stream });
        assert!(raw.next().is_some_and(|answer| answer.message_type() == ERROR), "{shm_path:?}");
        assert!(!subscriber.is_ready(), "{shm_path:?}");
    }
    let short = |stream: Stream| Stream { shm_path: stream.shm_path.replace("/dev/shm", ""), ..stream };
    let (subscriber, mut raw) = HostMemory::welcome(memory(), short);
    raw.expect_silence();
    assert!(subscriber.is_ready(), "the short form means the same file (D-14)");
}

#[test]
fn a_wake_up_that_can_not_be_read_ends_the_connection_and_not_the_search_for_the_next_publisher() {
    let no_reader: fn() -> OwnedFd = || pipe().unwrap().1.into();
    for wake_up in [no_reader, || pipe().unwrap().0.into()] {
        let memory = (region(&[]), pool(POOL_SIZE, SEALS));
        let reconnecting = |builder: SubscriberBuilder| builder.reconnect(Reconnect::default());
        let started = HostMemory::start_with(ALL, reconnecting, memory, wake_up());
        let (subscriber, mut raw) = HostMemory::welcomed(started, |stream| stream);
        raw.expect_error(ErrorCode::IO.0, &["can't read the publisher's wake-up"]);
        let mut subscriber_of = subscriber.subscriber.borrow_mut();
        let reader = subscriber_of.as_mut().unwrap();
        assert!(!reader.get_ref().is_attached() && reader.get_ref().is_ready());
        let publisher = subscriber.stream.publisher(2, Policy::DROP_OLDEST).create().unwrap();
        let mut publisher = publisher.serve().unwrap();
        common::publish(&mut publisher);
        reader.with(|reader| common::check(&common::next(reader))).unwrap();
        drop(subscriber_of.take());
    }
}
