//! Our publisher passes the suite for publishers, over a socket.

use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Duration;

use crate::common::{self, meta};
use crate::raw_socket::{Driven, RawSocket, settle};
use cuframes_mio::core::wire::ShutdownReason;
use cuframes_mio::core::{Policy, Timeouts};
use cuframes_mio::{Claim, Pollable, Publisher, now};
use cuframes_testkit::conformance::session::bytes::{self, FD_PASSING};
use cuframes_testkit::conformance::session::publisher;
use cuframes_testkit::publisher_conformance;

/// A publisher of frames in host memory.
struct HostMemory {
    publisher: Driven<Publisher>,
    region: File,
    stream: common::Stream,
}

publisher_conformance!(host_memory, HostMemory);

impl publisher::Publisher for HostMemory {
    type Wire = RawSocket<Publisher>;

    fn new(timeouts: publisher::Timeouts) -> Self {
        let stream = common::Stream::new();
        let mut deadlines = Timeouts::default();
        deadlines.handshake = timeouts.handshake;
        deadlines.consumer_ack = timeouts.consumer_ack;
        deadlines.shutdown_grace = timeouts.grace;
        let publisher = stream.publisher(8, Policy::STRICT_WAIT).timeouts(deadlines).create().unwrap();
        let region = File::open(stream.region()).unwrap();
        let publisher = Rc::new(RefCell::new(Some(Pollable::new(publisher).unwrap())));
        Self { publisher, region, stream }
    }

    fn stream(&self) -> bytes::Stream {
        let meta = meta();
        assert_eq!((meta.width, meta.height), (320, 240));
        bytes::Stream {
            version: 1,
            ring_size: 8,
            ownership: 0,
            meta: bytes::meta(1, [320, 240], [512, 512], 12, 512 * 360),
            shm_path: format!("/dev/shm/cuframes-{}", self.stream.key),
            features: 0b110_0111,
        }
    }

    fn required(&self) -> u32 {
        FD_PASSING
    }

    fn peer_pid(&self) -> u64 {
        std::process::id().into()
    }

    fn connect(&self) -> RawSocket<Publisher> {
        let socket = UnixStream::connect(self.stream.socket()).unwrap();
        let none = |purpose| panic!("a subscriber has no descriptor for purpose {purpose}");
        RawSocket::new(socket, &self.publisher, Box::new(none))
    }

    fn publish(&self) {
        let publisher = &mut *self.publisher.borrow_mut();
        let publisher = publisher.as_mut().unwrap();
        while publisher.with(|publisher| publisher.try_claim(now()).map(Claim::commit)).unwrap().is_err() {
            let _ = publisher.wait(Some(Duration::from_secs(1))).unwrap();
        }
    }

    fn shut_down(&self, reason: u32) {
        let publisher = &mut *self.publisher.borrow_mut();
        publisher.as_mut().unwrap().with(|it| it.shut_down(now(), ShutdownReason(reason))).unwrap();
    }

    fn word(&self, offset: usize) -> u64 {
        settle(&self.publisher);
        let mut word = [0; 8];
        self.region.read_exact_at(&mut word, u64::try_from(offset).unwrap()).unwrap();
        u64::from_le_bytes(word)
    }
}
