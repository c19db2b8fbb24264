//! Whatever arrives at the publisher's socket, the others go on (D-15, D-29). What the sender hears is in the conformance suite.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::common::{LONG, STRICT, Stream, check, fill, until};
use crate::raw::{RawPeer, error_in};
use cuframes_mio::core::error::ErrorCode;
use cuframes_mio::core::{Policy, Timeouts};
use cuframes_mio::{Publisher, Subscriber};
use cuframes_testkit::vectors::vector;

/// A publisher and a good subscriber, between which frames pass.
struct Good {
    // Dropped first: the publisher waits for it.
    subscriber: Subscriber,
    publisher: cuframes_mio::ServedPublisher,
    stream: Stream,
}

impl Good {
    fn new(timeouts: Timeouts) -> Self {
        let stream = Stream::new();
        let publisher: Publisher =
            stream.publisher(2, Policy::STRICT_WAIT).timeouts(timeouts).create().unwrap();
        let publisher = publisher.serve().unwrap();
        let subscriber = stream.subscriber("good", STRICT).connect().unwrap();
        Self { subscriber, publisher, stream }
    }

    fn goes_on(&mut self) {
        for _ in 0..4 {
            let mut claim = self.publisher.claim().unwrap();
            fill(&mut claim);
            let seq = claim.commit();
            let frame = self.subscriber.next(LONG).unwrap().expect("a frame in time");
            check(&frame);
            assert_eq!((frame.seq(), frame.lost()), (seq, 0));
        }
    }

    /// Sends bytes on a connection of their own and returns everything that comes back until it is closed.
    fn answer_to(&self, bytes: &[u8]) -> Vec<u8> {
        let mut peer = RawPeer::connect(self.stream.socket());
        // The publisher may close before it has read everything.
        let _ = peer.socket.write_all(bytes);
        peer.rest()
    }
}

#[test]
fn peers_that_break_the_protocol_or_say_nothing_do_not_disturb_the_others() {
    let mut timeouts = Timeouts::default();
    timeouts.handshake = Duration::from_millis(50);
    let mut good = Good::new(timeouts);
    for name in ["oversize", "hello_req_v2", "hello_req_nv", "hello_req_features", "subscribe_req"] {
        let _ = good.answer_to(&vector(name));
        good.goes_on();
    }
    let _ = good.answer_to(&[]);
    good.goes_on();
}

#[test]
fn connections_that_never_subscribe_are_limited_and_do_not_keep_others_out() {
    let mut timeouts = Timeouts::default();
    timeouts.handshake = Duration::from_secs(3600);
    let mut good = Good::new(timeouts);
    let idle: Vec<_> = (0..128).map(|_| UnixStream::connect(good.stream.socket()).unwrap()).collect();
    let error = error_in(&good.answer_to(&[]));
    assert_eq!(error.code, ErrorCode::TOO_MANY);
    good.goes_on();
    drop(idle);
    let another = good.stream.subscriber("another", STRICT);
    until("room for another", || another.clone().connect().is_ok());
    good.goes_on();
}

#[test]
fn a_peer_of_another_user_is_refused() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: needs root to become another user");
        return;
    }
    let mut good = Good::new(Timeouts::default());
    // Another user can't even reach the socket, unless its group is let in.
    let all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(good.stream.dir.path(), all).unwrap();
    let all = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    std::fs::set_permissions(good.stream.socket(), all).unwrap();
    let program = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); \
                   s.settimeout(60); sys.stdout.buffer.write(s.recv(4096))";
    let mut command = std::process::Command::new("python3");
    std::os::unix::process::CommandExt::uid(&mut command, 65534);
    let Ok(output) = command.args(["-c", program]).arg(good.stream.socket()).output() else {
        println!("SKIPPED: needs python3");
        return;
    };
    assert_eq!(error_in(&output.stdout).code, ErrorCode::PERMISSION);
    good.goes_on();
}
