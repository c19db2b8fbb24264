//! [`PublisherBuilder`]: the settings of a stream, and how it is brought to life.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;

use cuframes_core::gpu::EventHandle;
use cuframes_core::ring::RingWriter;
use cuframes_core::roster::Roster;
use cuframes_core::session::PublisherOffer;
use cuframes_core::shm::StreamHeader;
use cuframes_core::shm::header::SlotMemory;
use cuframes_core::{Backend, Features, FrameMeta, Key, Ownership, Policy, RingSize, Timeouts};
use rustix::process::geteuid;

use crate::clock;
use crate::error::Error;
use crate::handover::Handouts;
use crate::host::HostPool;
use crate::publisher::{Producer, Publisher, mapped_bytes};
use crate::report::Report;
use crate::rundir::{Access, Places};
use crate::service::{Service, Setup};
use crate::shared::Shared;
use crate::shm::MappedRegion;
use crate::stale::Claimed;
use crate::upkeep::Upkeep;

/// Settings of a new stream; [`create`](Self::create) makes it.
#[derive(Clone, Debug)]
#[must_use]
pub struct PublisherBuilder {
    key: Key,
    meta: FrameMeta,
    ring_size: RingSize,
    policy: Policy,
    timeouts: Timeouts,
    run_dir: Option<PathBuf>,
    access: Access,
    allowed_uids: Vec<u32>,
}

impl PublisherBuilder {
    pub(crate) fn new(key: Key, meta: FrameMeta) -> Self {
        Self {
            key,
            meta,
            ring_size: DEFAULT_RING_SIZE,
            policy: Policy::DROP_OLDEST,
            timeouts: Timeouts::default(),
            run_dir: None,
            access: Access::default(),
            allowed_uids: vec![0, geteuid().as_raw()],
        }
    }

    /// Slots of the ring; 8 by default. Each holds one frame.
    pub const fn ring_size(mut self, ring_size: RingSize) -> Self {
        self.ring_size = ring_size;
        self
    }

    /// What to do about slow subscribers; DROP_OLDEST by default.
    pub const fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Deadlines.
    pub const fn timeouts(mut self, timeouts: Timeouts) -> Self {
        self.timeouts = timeouts;
        self
    }

    /// The directory for the socket, made if it is missing; by default the first usable one of `$CUFRAMES_RUN_DIR`,
    /// `/run/cuframes`, `$XDG_RUNTIME_DIR/cuframes`, `/tmp/cuframes-<uid>` (D-14).
    pub fn run_dir(mut self, run_dir: impl Into<PathBuf>) -> Self {
        self.run_dir = Some(run_dir.into());
        self
    }

    /// Lets the members of a group connect, too; name the users with [`allow_uids`](Self::allow_uids) (D-15).
    pub const fn group(mut self, gid: u32) -> Self {
        self.access = Access { group: Some(gid) };
        self
    }

    /// More users whose processes may subscribe, besides our own and root (D-15).
    pub fn allow_uids(mut self, uids: impl IntoIterator<Item = u32>) -> Self {
        self.allowed_uids.extend(uids);
        self
    }

    /// Takes the key, also from a publisher that died (D-13), and starts listening. Frames are in host memory, in a
    /// memfd that only this process can write.
    ///
    /// # Errors
    /// [`Error::Meta`] for a geometry that does not hold together, [`Error::AlreadyExists`] if somebody alive has the
    /// key, [`Error::NoSpace`] if memory is short, and what the operating system refuses. Nothing is left behind then.
    pub fn create(self) -> Result<Publisher, Error> {
        let Self { key, meta, ring_size, policy, timeouts, run_dir, access, allowed_uids } = self;
        meta.validate().map_err(|error| Error::Meta { key: key.clone(), error })?;
        let failed = |error| Error::system(&key, error);
        let places = Places::from_environment(run_dir.as_deref());
        let run_dir = places.for_publisher(access)?;
        let pool = HostPool::create(&key, meta.frame_size_bytes, ring_size)?;
        let pool_fd = pool.fd().try_clone_to_owned().map_err(failed)?;
        let shared = Shared::new().map_err(failed)?;
        let header = StreamHeader {
            lib_version: LIB_VERSION,
            producer_pid: process::id().into(),
            ring_size,
            ownership: Ownership::LIBRARY,
            policy,
            meta,
            ipc_event_handle: EventHandle::NONE,
            features: FEATURES,
            backend: Backend::HOST,
            epoch: random_epoch(),
        };
        let slots = 0..usize::from(ring_size.get());
        let blueprint = Blueprint { header, memory: slots.map(|slot| pool.memory(slot)).collect() };
        let (witness, witness_fd) = MappedRegion::sealed(&key, |region| blueprint.write(region))?;
        let (files, listener) =
            Claimed::take(run_dir, &places.shm, &key, access, |region| blueprint.write(region))?;
        let offer = PublisherOffer {
            ring_size,
            ownership: Ownership::LIBRARY,
            meta,
            shm_path: shm_path(files.region_path()),
            features: FEATURES,
            required: Features::FD_PASSING,
            handshake_timeout: timeouts.handshake,
        };
        let region = Arc::clone(files.region());
        let witness = Arc::new(witness);
        let roster = Roster::new(Arc::clone(&region), timeouts.quarantine).with_witness(Arc::clone(&witness));
        let writer =
            RingWriter::new(region, Arc::clone(roster.membership()), ring_size, policy).with_witness(witness);
        let report = Report::new(key.clone());
        report.published(files.socket_path(), files.region_path(), mapped_bytes(&pool));
        let producer = Producer::new(key, meta, writer, &timeouts, pool, Arc::clone(&shared));
        let setup = Setup {
            files,
            listener,
            roster,
            offer,
            timeouts,
            allowed_uids,
            shared,
            handouts: Handouts { pool: pool_fd, witness: witness_fd },
            upkeep: Upkeep::new(blueprint, clock::now()),
            report,
        };
        Ok(Publisher::new(Service::new(setup), producer))
    }
}

/// The static part of a region, which only the publisher may write, but others can.
#[derive(Debug)]
pub(crate) struct Blueprint {
    header: StreamHeader,
    memory: Box<[SlotMemory]>,
}

impl Blueprint {
    /// Fills a fresh region.
    fn write(&self, region: &MappedRegion) {
        for (slot, memory) in self.memory.iter().enumerate() {
            memory.write(region, slot);
        }
        self.header.write(region);
    }

    /// Puts right what somebody has written over, and says how many words that were (D-23).
    pub(crate) fn restore(&self, region: &MappedRegion) -> usize {
        let slots = self.memory.iter().enumerate().map(|(slot, memory)| memory.restore(region, slot));
        slots.sum::<usize>() + self.header.restore(region)
    }
}

fn shm_path(path: &Path) -> String {
    path.display().to_string()
}

/// A number that no earlier publisher of the key had, and not 0.
fn random_epoch() -> u64 {
    // The seed of a hash table is the randomness of the standard library.
    RandomState::new().build_hasher().finish().max(1)
}

/// What a publisher of frames in host memory honours.
const FEATURES: Features =
    Features::FD_PASSING.union(Features::LEASE).union(Features::WAKE_HINT).union(Features::WITNESS);

const DEFAULT_RING_SIZE: RingSize = RingSize::new(8).expect("8 is between 1 and 16");

/// Major, minor and patch number of this crate (§6.2).
const LIB_VERSION: [u32; 3] = [
    number(env!("CARGO_PKG_VERSION_MAJOR")),
    number(env!("CARGO_PKG_VERSION_MINOR")),
    number(env!("CARGO_PKG_VERSION_PATCH")),
];

#[expect(clippy::panic, reason = "it would be at compile time")]
const fn number(text: &str) -> u32 {
    match u32::from_str_radix(text, 10) {
        Ok(number) => number,
        Err(_) => panic!("cargo gives numbers"),
    }
}
