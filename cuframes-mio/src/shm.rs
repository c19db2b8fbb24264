//! The shared region as mapped memory: [`MappedRegion`] hands out its words (§2, D-14, D-25). And [`Home`], memory that
//! a forked child does not inherit (P-20).

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cuframes_core::error::{Place, Problem};
use cuframes_core::ring::{Standing, Testimony};
use cuframes_core::shm::header::SlotMemory;
use cuframes_core::shm::layout::{HeaderWords, REGION_SIZE, RegionWords, SlotWords, SubscriberWords};
use cuframes_core::shm::{Region, StreamHeader};
use cuframes_core::wire::MessageType;
use cuframes_core::{Key, SubscriberBit, Violation};
use memmap2::{MmapMut, MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, fstatvfs, open};
use rustix::io::{Errno, retry_on_intr};
use rustix::mm::{Advice, madvise};

use crate::error::{Distrust, Error};
use crate::memfd;
use crate::prefetch::{Access, address, prefetch};

/// A region in memory that other processes read and write too. It stays mapped until this is dropped, whatever happens
/// to its file.
#[derive(Debug)]
pub(crate) struct MappedRegion {
    map: MmapRaw,
}

impl MappedRegion {
    /// Opens the region of stream `key`. `peer` is the publisher's user.
    ///
    /// # Errors
    /// The file can't be trusted (D-14) or is too short, or an error of the operating system.
    pub(crate) fn open(path: &Path, key: &Key, peer: u32) -> Result<Self, Error> {
        let file = open_region(path, OFlags::RDWR).map_err(|errno| match errno {
            Errno::LOOP => Error::Untrusted { path: path.into(), problem: Distrust::NotARegularFile },
            _ => Error::io("open the region", path, errno).hint(
                io::ErrorKind::NotFound,
                "publisher and subscriber need the same /dev/shm (container: --ipc) or fd-passing",
            ),
        })?;
        Self::map_foreign(&file, key, path, peer)
    }

    /// Maps the region of stream `key` that came over the socket. `peer` is the publisher's user.
    ///
    /// # Errors
    /// As [`MappedRegion::open`].
    pub(crate) fn from_fd(fd: OwnedFd, key: &Key, peer: u32) -> Result<Self, Error> {
        Self::map_foreign(&File::from(fd), key, Path::new(&format!("the region of stream {key}")), peer)
    }

    /// Maps a region of our own; `path` is for the error.
    ///
    /// # Errors
    /// An error of the operating system.
    pub(crate) fn map(file: &File, path: &Path) -> Result<Self, Error> {
        match MmapOptions::new().len(REGION_SIZE).map_raw(file) {
            Ok(map) => Ok(Self { map }),
            Err(error) => Err(Error::io("map", path, error)),
        }
    }

    fn map_foreign(file: &File, key: &Key, path: &Path, peer: u32) -> Result<Self, Error> {
        let metadata = file.metadata().map_err(|error| Error::io("look at", path, error))?;
        if let Some(problem) = distrust(&metadata, peer) {
            return Err(Error::Untrusted { path: path.to_path_buf(), problem });
        }
        // Mapping more than there is would mean a SIGBUS at the first touch (P-14). More is fine (D-34).
        if metadata.size() < REGION_BYTES {
            let problem = Problem::Truncated { needed: REGION_BYTES, available: metadata.size() };
            return Err(Error::violation(key, Violation { place: Place::Region, field: "size", problem }));
        }
        Self::map(file, path)
    }

    /// A region without a name, for what only the publisher may say. Others can only read it: `initialise` fills
    /// it, and then it is sealed.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if memory is short, or an error of the operating system.
    pub(crate) fn sealed(key: &Key, initialise: impl FnOnce(&Self)) -> Result<(Self, OwnedFd), Error> {
        let (fd, path) = memfd::create(&format!("cuframes-{key}-witness"), REGION_SIZE)?;
        let file = File::from(fd);
        let map = Self::map(&file, &path)?;
        initialise(&map);
        let fd = OwnedFd::from(file);
        memfd::seal(&fd, &path)?;
        Ok((map, fd))
    }

    fn words(&self) -> &RegionWords<AtomicU64> {
        let words = self.map.as_ptr().cast::<RegionWords<AtomicU64>>();
        // SAFETY: every constructor maps `REGION_SIZE` bytes, which is the size of `RegionWords<AtomicU64>` (asserted
        // in core). `mmap` returned the address, so it is not null and a multiple of the page size, hence of 8. The map
        // is readable, and lives as long as `self`, which the reference borrows. It is writable, too, but for that of a
        // `Witness`, which lets nobody have the words and only does relaxed loads of them: these are allowed (see "Atomic
        // accesses to read-only memory" in `std::sync::atomic`). The type is made of
        // `AtomicU64` only: every bit pattern is valid, and whatever other threads and processes store meanwhile is an
        // atomic access as well, for nobody in this process makes another reference into the map. A peer that shortens
        // the file gets us a SIGBUS, which ends the process: not undefined behaviour.
        unsafe { &*words }
    }
}

/// What the publisher says about slots and bits, where nobody else can write: a subscriber's view of a
/// [sealed](MappedRegion::sealed) region. It is mapped read-only, so nothing here may do more than load a word, relaxed.
#[derive(Debug)]
pub(crate) struct Witness(MappedRegion);

impl Witness {
    /// Maps the witness that came over the socket.
    ///
    /// # Errors
    /// [`Error::Violation`] if others can write it or it is too short, or an error of the operating system.
    pub(crate) fn open(key: &Key, fd: &OwnedFd) -> Result<Self, Error> {
        let path = Path::new("the publisher's witness");
        let available = memfd::sealed_size(key, fd, path, "seals of the witness")?;
        if available < REGION_BYTES {
            let problem = Problem::Truncated { needed: REGION_BYTES, available };
            return Err(Error::violation(key, Violation::new(MessageType::EVENT_FD, "witness", problem)));
        }
        match MmapOptions::new().len(REGION_SIZE).map_raw_read_only(fd) {
            Ok(map) => Ok(Self(MappedRegion { map })),
            Err(error) => Err(Error::io("map", path, error)),
        }
    }

    /// The stream's header.
    ///
    /// # Errors
    /// As [`StreamHeader::read`], which only loads.
    pub(crate) fn header(&self) -> Result<StreamHeader, Violation> {
        StreamHeader::read(&self.0)
    }

    /// The static part of a slot.
    pub(crate) fn memory(&self, slot: usize) -> SlotMemory {
        SlotMemory::read(&self.0, slot)
    }

    /// What it says about the frame in `slot`.
    #[inline]
    pub(crate) fn testimony(&self, slot: usize) -> Testimony {
        let SlotWords { seq, pts_ns, written_bytes, .. } = self.0.slot(slot);
        Testimony {
            seq: seq.load(Ordering::Relaxed),
            pts_ns: pts_ns.load(Ordering::Relaxed),
            written_bytes: written_bytes.load(Ordering::Relaxed),
        }
    }

    /// Lets the processor fetch what it says about the frame in `slot`.
    #[inline]
    pub(crate) fn prefetch(&self, slot: usize) {
        prefetch(address(&self.0.slot(slot).seq), Access::Read);
    }

    /// What it says about who has `bit`.
    #[inline]
    pub(crate) fn standing(&self, bit: SubscriberBit) -> Standing {
        let SubscriberWords { state, term, .. } = self.0.subscriber(bit.get().into());
        Standing { state: state.load(Ordering::Relaxed), term: term.load(Ordering::Relaxed) }
    }
}

impl Region for MappedRegion {
    type Word = AtomicU64;

    #[inline]
    fn header(&self) -> &HeaderWords<AtomicU64> {
        self.words().header()
    }

    #[inline]
    fn slot(&self, index: usize) -> &SlotWords<AtomicU64> {
        self.words().slot(index)
    }

    #[inline]
    fn subscriber(&self, bit: usize) -> &SubscriberWords<AtomicU64> {
        self.words().subscriber(bit)
    }

    #[inline]
    fn prefetch_lease(&self, index: usize) {
        prefetch(address(&self.slot(index).lease_bitmap), Access::Write);
    }
}

/// Tells the process that made it from children that it forks, without a system call: the kernel gives a child zeros in
/// place of this memory. A process id would not do: in pid namespaces of their own both may be the first.
#[derive(Clone, Debug)]
pub(crate) struct Home(Arc<MmapMut>);

impl Home {
    /// The home of this process.
    ///
    /// # Errors
    /// No memory is left.
    pub(crate) fn new() -> io::Result<Self> {
        let mut map = MmapMut::map_anon(HERE.len())?;
        // SAFETY: these bytes are one anonymous private map of our own, whose address is that of a page; the advice
        // changes nothing in this process, and in a child the bytes are zero, which every byte may be.
        let advised = unsafe { madvise(map.as_mut_ptr().cast(), map.len(), Advice::LinuxWipeOnFork) };
        // Where the kernel has no such advice (before Linux 4.14) children go unnoticed.
        let _ = advised;
        map.copy_from_slice(HERE);
        Ok(Self(Arc::new(map)))
    }

    /// Whether this is the process that made it.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        self.0.first() == HERE.first()
    }
}

/// The file of a stream's region (§1).
pub(crate) fn region_path(shm: &Path, key: &Key) -> PathBuf {
    shm.join(key.region_file())
}

/// The region of stream `key`, if that is what its publisher names with `shm_path`: a publisher must not be able to make a
/// subscriber open another file (D-14).
///
/// # Errors
/// Anything else is named.
pub(crate) fn named_region(shm: &Path, key: &Key, shm_path: &str) -> Result<PathBuf, Error> {
    let path = region_path(shm, key);
    let short = region_path(Path::new("/"), key);
    if [path.as_os_str(), short.as_os_str()].contains(&OsStr::new(shm_path)) {
        return Ok(path);
    }
    Err(Error::Untrusted { path: shm_path.into(), problem: Distrust::NotTheRegion { region: path } })
}

/// Opens what may be a region, without waiting for a reader if it is a fifo, and without following a symbolic link
/// (`ELOOP`).
pub(crate) fn open_region(path: &Path, access: OFlags) -> Result<File, Errno> {
    let flags = access | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    open(path, flags, Mode::empty()).map(File::from)
}

/// Gives a file `len` bytes that are really there: a sparse one would mean a SIGBUS when the memory runs out (D-25).
///
/// # Errors
/// [`Error::NoSpace`] with the bytes needed and available, or another error of the operating system.
pub(crate) fn allocate(file: impl AsFd, len: usize, path: &Path) -> Result<(), Error> {
    let needed = to_u64(len);
    let available = available(&file);
    let no_space = || Error::NoSpace { path: path.to_path_buf(), needed, available };
    // Asked first, because where memory is the only limit the kernel would rather kill a process than refuse.
    if available.is_some_and(|available| available < needed) {
        return Err(no_space());
    }
    retry_on_intr(|| fallocate(&file, FallocateFlags::empty(), 0, needed)).map_err(|errno| match errno {
        Errno::NOSPC | Errno::DQUOT | Errno::NOMEM => no_space(),
        _ => Error::io("allocate", path, errno),
    })
}

/// Bytes that a file can still get: what is free in its file system, or in memory if it has no size, as that of a memfd.
fn available(file: impl AsFd) -> Option<u64> {
    match fstatvfs(file).ok()? {
        limits if limits.f_blocks != 0 => limits.f_bavail.checked_mul(limits.f_frsize),
        _ => {
            let memory = fs::read_to_string("/proc/meminfo").ok()?;
            let line = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
            line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
        }
    }
}

/// `usize` to `u64`.
#[expect(clippy::as_conversions, reason = "lossless: usize has 64 bits, which the core asserts")]
pub(crate) const fn to_u64(n: usize) -> u64 {
    n as u64
}

/// Why the file of a publisher that runs as user `peer` is not taken for its region (D-14).
fn distrust(metadata: &Metadata, peer: u32) -> Option<Distrust> {
    match metadata.uid() {
        _ if !metadata.is_file() => Some(Distrust::NotARegularFile),
        owner if owner != peer && owner != ROOT => Some(Distrust::Owner { found: owner, expected: peer }),
        _ => None,
    }
}

/// The size of a region's file (D-1).
pub(crate) const REGION_BYTES: u64 = to_u64(REGION_SIZE);

const ROOT: u32 = 0;

/// What [`Home`] holds, where it is not empty.
const HERE: &[u8] = &[1];

#[cfg(test)]
mod tests;
