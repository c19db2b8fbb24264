//! The core alone: the handshake and the ring of a stream without a system call. The socket is a loop, the region lies on the
//! heap, and time passes when this says so. A driver for another event loop does the same with a real socket.
//!
//! ```sh
//! cargo run --package cuframes-core --example sans_io
//! ```

#![expect(clippy::print_stdout, reason = "it shows what happens")]

mod driver;

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use cuframes_core::gpu::EventHandle;
use cuframes_core::ring::{RingReader, RingWriter, Seat};
use cuframes_core::roster::{Departure, Roster};
use cuframes_core::session::{PublisherOffer, PublisherSession, Session, SubscriberHello, SubscriberSession};
use cuframes_core::shm::{RegionWords, StreamHeader};
use cuframes_core::wire::subscribe::Subscribed;
use cuframes_core::{
    Backend, Features, Format, FrameMeta, Instant, Ownership, Policy, RingSize, SubscriberMode,
};

use crate::driver::{Outside, carry, handshake};

fn main() -> Result<(), Box<dyn Error>> {
    let mut now = Instant::ZERO;
    let meta = FrameMeta::new(Format::GRAY8, 16, 16)?;
    let header = StreamHeader {
        lib_version: [0, 1, 0],
        producer_pid: 1,
        ring_size: RingSize::new(3).ok_or("1 to 16")?,
        ownership: Ownership::LIBRARY,
        policy: Policy::STRICT_WAIT,
        meta,
        ipc_event_handle: EventHandle::NONE,
        features: Features::LEASE,
        backend: Backend::HOST,
        epoch: 1,
    };
    let region = Arc::new(RegionWords::<AtomicU64>::zeroed());
    header.write(&region);
    let mut memory = [[0_u8; 256]; 3]; // a frame for each slot

    // The publisher: a roster of who is there, a writer, and a session for each connection.
    let mut roster = Roster::new(Arc::clone(&region), Duration::from_secs(10));
    let members = Arc::clone(roster.membership());
    let mut writer = RingWriter::new(Arc::clone(&region), members, header.ring_size, header.policy);
    let offer = Arc::new(PublisherOffer {
        ring_size: header.ring_size,
        ownership: header.ownership,
        meta,
        shm_path: "/dev/shm/cuframes-cam0".into(),
        features: header.features,
        required: Features::NONE,
        handshake_timeout: Duration::from_secs(5),
    });
    let mut publisher = PublisherSession::new(now, Arc::clone(&offer));

    // The subscriber: a session; then a seat in the ring, and its reader. In between a driver maps region and frames.
    let mode = SubscriberMode::STRICT_ORDER;
    let features = Features::LEASE;
    let hello = SubscriberHello {
        name: "detector".parse()?,
        cuda_device: -1,
        mode,
        features,
        handshake_timeout: Duration::from_secs(5),
    };
    let mut subscriber = SubscriberSession::new(now, hello);
    let Subscribed { bit, initial_seq } = handshake(now, &mut roster, &mut publisher, &mut subscriber)?;
    let seat = Seat::new(region, Outside, header.ring_size, bit, initial_seq.resolve(0), features, false);
    let mut reader = RingReader::new(seat, mode);
    subscriber.attached(now)?;

    for number in 1..=5 {
        now = now + Duration::from_millis(40);
        // Under STRICT_WAIT an error while somebody still has the oldest frame. Then a driver waits.
        let claim = writer.claim()?;
        memory.get_mut(claim.slot()).ok_or("no such slot")?.fill(number);
        let committed = claim.commit(now.as_nanos(), meta.frame_size_bytes);
        // Now a driver rings the bell of everybody in `committed.wake`: who sleeps, that is. This reader does not.

        let frame = reader.next().ok_or("no frame")?;
        let bytes = memory.get(frame.slot()).ok_or("no such slot")?;
        let is_right = frame.seq() == committed.seq && *bytes == [number; 256];
        println!("frame {} of {} ms: intact {is_right}", frame.seq(), frame.pts_ns() / 1_000_000);
        frame.release()?; // dropping it would do
    }

    // Somebody connects and says nothing. Nobody has to wait for five seconds to see what comes of that.
    let mut silent = PublisherSession::<u32>::new(now, offer);
    now = silent.poll_timeout().ok_or("no deadline")?;
    silent.handle_timeout(now);
    println!("at {} ms: {:?}", now.as_nanos() / 1_000_000, silent.poll_event());

    subscriber.unsubscribe(now);
    carry(now, &mut subscriber, &mut publisher);
    println!("{:?}", publisher.poll_event());
    roster.leave(now, bit, Departure::Clean);
    Ok(())
}
