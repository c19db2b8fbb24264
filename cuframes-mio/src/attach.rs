//! From a handshake's answers to a mapped ring: [`Arrivals`] collects them, [`Attached`] is what they make (D-26, D-28).

use std::collections::BTreeMap;
use std::mem;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;
use std::time::Duration;

use cuframes_core::error::{Place, Problem};
use cuframes_core::gpu::{EventHandle, Import};
use cuframes_core::ring::{RingReader, Seat};
use cuframes_core::shm::header::SlotMemory;
use cuframes_core::shm::{Region, StreamHeader};
use cuframes_core::wire::FdPurpose;
use cuframes_core::wire::hello::Stream;
use cuframes_core::wire::subscribe::Subscribed;
use cuframes_core::{Backend, Features, Key, SubscriberBit, SubscriberMode, Violation};

use crate::error::Error;
use crate::frame::{Attachment, Memory};
use crate::shm::{MappedRegion, Witness, named_region};
use crate::tally::Common;
use crate::wake::EventFd;

/// What a subscriber has been told and given.
#[derive(Debug)]
pub(crate) struct Arrivals<B> {
    key: Key,
    mode: SubscriberMode,
    /// Opens the frames.
    backend: Arc<B>,
    /// Where regions are.
    shm: PathBuf,
    /// The publisher's user, who must own the region (D-14).
    peer_uid: u32,
    common: Arc<Common>,
    pub(crate) stream: Option<Stream>,
    pub(crate) subscribed: Option<Subscribed>,
    fds: Descriptors,
    opened: Option<Opened>,
}

/// What came over the socket, each at most once.
#[derive(Debug, Default)]
struct Descriptors {
    region: Option<OwnedFd>,
    /// Those that lead to the frames, by index.
    frames: BTreeMap<u32, OwnedFd>,
    witness: Option<OwnedFd>,
    bell: Option<OwnedFd>,
    wake: Option<OwnedFd>,
}

/// The region, mapped and read: only it says what leads to the frames.
#[derive(Debug)]
struct Opened {
    region: Arc<MappedRegion>,
    witness: Option<Witness>,
    header: StreamHeader,
}

/// A subscriber in its seat.
#[derive(Debug)]
pub(crate) struct Attached<B: Import<Fd = OwnedFd>> {
    pub(crate) reader: RingReader<Arc<MappedRegion>, Attachment<B>>,
    /// Readable when a frame was published. A plain v1 publisher may have none (§3.7).
    pub(crate) wake: Option<EventFd>,
}

/// What a subscriber knows about its stream once it is attached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    pub(crate) header: StreamHeader,
    pub(crate) features: Features,
    pub(crate) bit: SubscriberBit,
}

impl<B: Import<Fd = OwnedFd>> Arrivals<B> {
    pub(crate) fn new(
        (key, mode): (Key, SubscriberMode),
        backend: Arc<B>,
        shm: PathBuf,
        peer_uid: u32,
        common: Arc<Common>,
    ) -> Self {
        let fds = Descriptors::default();
        Self { key, mode, backend, shm, peer_uid, common, stream: None, subscribed: None, fds, opened: None }
    }

    pub(crate) const fn key(&self) -> &Key {
        &self.key
    }

    pub(crate) const fn common(&self) -> &Arc<Common> {
        &self.common
    }

    /// A descriptor came; one that nobody here needs is closed.
    pub(crate) fn fd(&mut self, purpose: FdPurpose, index: u32, fd: OwnedFd) {
        let place = match purpose {
            FdPurpose::REGION => &mut self.fds.region,
            FdPurpose::WITNESS => &mut self.fds.witness,
            FdPurpose::PUBLISHER_WAKE_UP => &mut self.fds.bell,
            FdPurpose::WAKE_UP => &mut self.fds.wake,
            FdPurpose::HOST_POOL | FdPurpose::CUDA_VMM => {
                self.fds.frames.insert(index, fd);
                return;
            }
            _ => return,
        };
        *place = Some(fd);
    }

    /// Nothing will be attached any more.
    pub(crate) fn close_descriptors(&mut self) {
        (self.fds, self.opened) = (Descriptors::default(), None);
    }

    /// Maps everything, if everything is there.
    ///
    /// # Errors
    /// What was sent does not hold together, or can't be mapped or used here.
    pub(crate) fn attach(&mut self) -> Result<Option<(Attached<B>, Facts)>, Error> {
        let (Some(stream), Some(subscribed)) = (&self.stream, self.subscribed) else { return Ok(None) };
        let features = stream.features;
        if self.opened.is_none() {
            self.opened = open(&self.key, stream, &self.shm, self.peer_uid, &mut self.fds)?;
        }
        let Some(Opened { header, .. }) = &self.opened else { return Ok(None) };
        if !self.backend.opens(header.backend) {
            return Err(Error::Unusable { key: self.key.clone(), backend: header.backend });
        }
        let frame_fds = match header.backend {
            Backend::HOST => 1,
            Backend::CUDA_VMM => header.ring_size.get().into(),
            _ => 0,
        };
        let is_missing = |fd: &Option<OwnedFd>| features.contains(Features::WAKE_HINT) && fd.is_none();
        if self.fds.frames.len() < frame_fds || is_missing(&self.fds.bell) || is_missing(&self.fds.wake) {
            return Ok(None);
        }
        let Some(Opened { region, witness, header }) = self.opened.take() else { return Ok(None) };
        let memory = self.open_frames(&region, witness.as_ref(), &header)?;
        let eventfd = |fd: Option<OwnedFd>| {
            fd.map(EventFd::from_fd)
                .transpose()
                .map_err(|error| Error::system(&self.key, "use an eventfd", error))
        };
        let bell = eventfd(self.fds.bell.take())?;
        let wake = eventfd(self.fds.wake.take())?;
        let initial_seq = subscribed.initial_seq.resolve(region.header().global_seq.load(Acquire));
        let attachment = Attachment::new(self.key.clone(), &header, memory, witness, bell, &self.common);
        // A plain publisher knows no extension; without a witness somebody else may have written the number.
        let plain = header.epoch == 0 && features == Features::NONE;
        let seat =
            Seat::new(region, attachment, header.ring_size, subscribed.bit, initial_seq, features, plain);
        let facts = Facts { header, features, bit: subscribed.bit };
        Ok(Some((Attached { reader: RingReader::new(seat, self.mode), wake }, facts)))
    }

    /// Opens the memory of every slot.
    fn open_frames(
        &mut self,
        region: &MappedRegion,
        witness: Option<&Witness>,
        header: &StreamHeader,
    ) -> Result<Memory<B>, Error> {
        let slots = 0..usize::from(header.ring_size.get());
        let slots: Vec<_> = match witness {
            Some(witness) => slots.map(|slot| witness.memory(slot)).collect(),
            None => slots.map(|slot| SlotMemory::read(region, slot)).collect(),
        };
        let fds: Vec<_> = mem::take(&mut self.fds.frames).into_values().collect();
        let device = |error| Error::device(&self.key, error);
        let backend = Arc::clone(&self.backend);
        let size = header.meta.frame_size_bytes;
        let mappings = backend.open_ring(header.backend, &slots, size, &fds).map_err(device)?;
        // There is one for the whole ring: a wait for it would be for frames that are not published yet, too.
        let handle = if header.epoch == 0 { header.ipc_event_handle } else { EventHandle::NONE };
        let event = backend.open_event(&handle).map_err(device)?;
        Ok(Memory { backend, mappings, event })
    }
}

/// Maps the region, and the witness if there is to be one, and checks them, once they are here.
fn open(
    key: &Key,
    stream: &Stream,
    shm: &Path,
    peer_uid: u32,
    fds: &mut Descriptors,
) -> Result<Option<Opened>, Error> {
    let missing = |feature, fd: &Option<OwnedFd>| stream.features.contains(feature) && fd.is_none();
    if missing(Features::FD_PASSING, &fds.region)
        || missing(Features::FD_PASSING.union(Features::WITNESS), &fds.witness)
    {
        return Ok(None);
    }
    // Refused though it is not opened (§3.7).
    let path = named_region(shm, key, &stream.shm_path)?;
    let region = Arc::new(match fds.region.take() {
        Some(fd) => MappedRegion::from_fd(fd, key, peer_uid)?,
        None => MappedRegion::open(&path, key, peer_uid)?,
    });
    let witness = fds.witness.take().map(|fd| Witness::open(key, &fd)).transpose()?;
    let header = witness.as_ref().map_or_else(|| StreamHeader::read(&region), Witness::header);
    let header = header.map_err(|violation| Error::violation(key, violation))?;
    check(key, &header, stream)?;
    Ok(Some(Opened { region, witness, header }))
}

/// The region must be the one that HELLO_RESP spoke of.
fn check(key: &Key, header: &StreamHeader, stream: &Stream) -> Result<(), Error> {
    let pairs = [
        ("ring_size", header.ring_size.get().into(), stream.ring_size.get().into()),
        ("ownership_mode", header.ownership.0.into(), stream.ownership.0.into()),
        ("frame_size_bytes", header.meta.frame_size_bytes, stream.meta.frame_size_bytes),
        ("meta", u64::from(header.meta == stream.meta), 1),
    ];
    match pairs.into_iter().find(|(_, found, expected)| found != expected) {
        None => Ok(()),
        Some((field, found, expected)) => {
            let problem = Problem::Mismatch { found, expected };
            Err(Error::violation(key, Violation { place: Place::Region, field, problem }))
        }
    }
}

impl<B: Import<Fd = OwnedFd>> Attached<B> {
    /// How long to sleep before looking again although nobody rang.
    pub(crate) const fn look_again_after(&self) -> Duration {
        // Others could write our `parked`; and a publisher without eventfds wakes nobody (§3.7).
        if self.wake.is_some() { Duration::from_millis(100) } else { Duration::from_millis(1) }
    }
}
