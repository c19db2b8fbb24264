//! [`PublisherBuilder`]: the settings of a stream, and how it is brought to life.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;

use cuframes_core::gpu::Export;
use cuframes_core::ring::RingWriter;
use cuframes_core::roster::Roster;
use cuframes_core::session::PublisherOffer;
use cuframes_core::shm::StreamHeader;
use cuframes_core::shm::header::SlotMemory;
use cuframes_core::{Features, FrameMeta, Key, Misuse, Ownership, Policy, RingSize, Timeouts};
use rustix::process::geteuid;

use crate::clock;
use crate::error::Error;
use crate::handover::Handouts;
use crate::host::HostMemory;
use crate::producer::{Frames, Producer, mapped_bytes};
use crate::publisher::Publisher;
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

    /// The stream's key.
    #[must_use]
    pub const fn key(&self) -> &Key {
        &self.key
    }

    /// Takes the key, also from a publisher that died (D-13), and starts listening. Frames are in host memory, in a
    /// memfd that only this process can write.
    ///
    /// # Errors
    /// [`Error::Meta`] for a geometry that does not hold together, [`Error::AlreadyExists`] if somebody alive has the
    /// key, [`Error::NoSpace`] if memory is short, and what the operating system refuses. Nothing is left behind then.
    pub fn create(self) -> Result<Publisher, Error> {
        let backend = HostMemory::new(self.key.clone());
        self.create_on(backend)
    }

    /// As [`create`](Self::create), with frames in the memory of `backend`.
    ///
    /// # Errors
    /// As [`create`](Self::create), or [`Error::Device`].
    pub fn create_on<B: Export<Fd = OwnedFd>>(self, backend: B) -> Result<Publisher<B>, Error> {
        self.check()?;
        let pool = backend.alloc_pool(self.ring_size, self.meta.frame_size_bytes);
        let pool = pool.map_err(|error| Error::device(&self.key, error))?;
        self.publish(backend, pool, Ownership::LIBRARY)
    }

    /// As [`create_on`](Self::create_on), with frames of the caller's own, one for each slot: the ring is as large as there
    /// are frames (EXTERNAL ownership, X-5).
    ///
    /// # Errors
    /// As [`create_on`](Self::create_on); [`Error::Device`] for frames that the backend can't share.
    pub fn create_external<B: Export<Fd = OwnedFd>>(
        mut self,
        backend: B,
        frames: Vec<B::External>,
    ) -> Result<Publisher<B>, Error> {
        self.check()?;
        let slots = RingSize::new(u64::try_from(frames.len()).unwrap_or(u64::MAX));
        self.ring_size = slots.ok_or_else(|| Error::Misuse {
            key: self.key.clone(),
            misuse: Misuse::Argument { name: "frames", must: "1 to 16" },
        })?;
        let pool = backend.register_external(frames, self.meta.frame_size_bytes);
        let pool = pool.map_err(|error| Error::device(&self.key, error))?;
        self.publish(backend, pool, Ownership::EXTERNAL)
    }

    fn check(&self) -> Result<(), Error> {
        self.meta.validate().map_err(|error| Error::Meta { key: self.key.clone(), error })
    }

    fn publish<B: Export<Fd = OwnedFd>>(
        self,
        backend: B,
        pool: B::Pool,
        ownership: Ownership,
    ) -> Result<Publisher<B>, Error> {
        let Self { key, meta, ring_size, policy, timeouts, run_dir, access, allowed_uids } = self;
        let failed = |error| Error::system(&key, "make the descriptors of the stream", error);
        let device = |error| Error::device(&key, error);
        let places = Places::from_environment(run_dir.as_deref());
        let run_dir = places.for_publisher(&key, access)?;
        let slots = 0..usize::from(ring_size.get());
        let memory = slots.map(|slot| backend.export_mem(&pool, slot)).collect::<Result<Box<[_]>, _>>();
        let memory = memory.map_err(device)?;
        let handouts = backend.export_fds(&pool).map_err(device)?;
        let (event, handle) = backend.create_event().map_err(device)?;
        let mut required = backend.backend().features();
        if memory.iter().any(|memory| memory.offset != 0) {
            required = required.union(Features::MEM_OFFSET);
        }
        let features = FEATURES.union(required);
        let shared = Shared::new().map_err(failed)?;
        let header = StreamHeader {
            lib_version: LIB_VERSION,
            producer_pid: process::id().into(),
            ring_size,
            ownership,
            policy,
            meta,
            ipc_event_handle: handle,
            features,
            backend: backend.backend(),
            epoch: random_epoch(),
        };
        let blueprint = Blueprint { header, memory };
        let (witness, witness_fd) = MappedRegion::sealed(&key, |region| blueprint.write(region))?;
        let (files, listener) = Claimed::take(run_dir, &places.shm, &key, access, &shared.home, |region| {
            blueprint.write(region);
        })?;
        let offer = PublisherOffer {
            ring_size,
            ownership,
            meta,
            shm_path: shm_path(files.region_path()),
            features,
            required,
            handshake_timeout: timeouts.handshake,
        };
        let region = Arc::clone(files.region());
        let witness = Arc::new(witness);
        let roster = Roster::new(Arc::clone(&region), timeouts.quarantine).with_witness(Arc::clone(&witness));
        let writer =
            RingWriter::new(region, Arc::clone(roster.membership()), ring_size, policy).with_witness(witness);
        let report = Report::new(key.clone());
        report.published(files.socket_path(), files.region_path(), mapped_bytes(&meta, ring_size));
        let frames = Frames { backend: Arc::new(backend), pool: Some(pool), event, handle, ring_size };
        let producer = Producer::new((key, meta), writer, &timeouts, frames, Arc::clone(&shared));
        let setup = Setup {
            files,
            listener,
            roster,
            offer,
            timeouts,
            allowed_uids,
            shared,
            handouts: Handouts { frames: handouts, witness: witness_fd },
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

/// What every publisher honours.
const FEATURES: Features = Features::FD_PASSING
    .union(Features::LEASE)
    .union(Features::WAKE_HINT)
    .union(Features::WITNESS)
    .union(Features::NO_ACK);

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
