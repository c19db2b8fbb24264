//! From a handshake's answers to a mapped ring: [`Arrivals`] collects them, [`Attached`] is what they make (D-26, D-28).

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cuframes_core::error::{Place, Problem};
use cuframes_core::ring::{RingReader, Seat};
use cuframes_core::shm::header::SlotMemory;
use cuframes_core::shm::{Region, StreamHeader};
use cuframes_core::wire::FdPurpose;
use cuframes_core::wire::hello::Stream;
use cuframes_core::wire::subscribe::Subscribed;
use cuframes_core::{Backend, Features, Key, SubscriberBit, SubscriberMode, Violation};
use std::sync::atomic::Ordering::Acquire;

use crate::error::Error;
use crate::frame::Attachment;
use crate::host::HostView;
use crate::shm::{MappedRegion, Witness, named_region};
use crate::tally::Common;
use crate::wake::EventFd;

/// What a subscriber has been told and given.
#[derive(Debug)]
pub(crate) struct Arrivals {
    key: Key,
    mode: SubscriberMode,
    /// Where regions are.
    shm: PathBuf,
    /// The publisher's user, who must own the region (D-14).
    peer_uid: u32,
    common: Arc<Common>,
    pub(crate) stream: Option<Stream>,
    pub(crate) subscribed: Option<Subscribed>,
    fds: Descriptors,
}

/// What came over the socket, each at most once.
#[derive(Debug, Default)]
struct Descriptors {
    region: Option<OwnedFd>,
    pool: Option<OwnedFd>,
    witness: Option<OwnedFd>,
    bell: Option<OwnedFd>,
    wake: Option<OwnedFd>,
}

/// A subscriber in its seat.
#[derive(Debug)]
pub(crate) struct Attached {
    pub(crate) reader: RingReader<Arc<MappedRegion>, Attachment>,
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

impl Arrivals {
    pub(crate) fn new(
        key: Key,
        mode: SubscriberMode,
        shm: PathBuf,
        peer_uid: u32,
        common: Arc<Common>,
    ) -> Self {
        Self { key, mode, shm, peer_uid, common, stream: None, subscribed: None, fds: Descriptors::default() }
    }

    pub(crate) const fn key(&self) -> &Key {
        &self.key
    }

    pub(crate) const fn common(&self) -> &Arc<Common> {
        &self.common
    }

    /// A descriptor came; one that nobody here needs is closed.
    pub(crate) fn fd(&mut self, purpose: FdPurpose, fd: OwnedFd) {
        let place = match purpose {
            FdPurpose::REGION => &mut self.fds.region,
            FdPurpose::HOST_POOL => &mut self.fds.pool,
            FdPurpose::WITNESS => &mut self.fds.witness,
            FdPurpose::PUBLISHER_WAKE_UP => &mut self.fds.bell,
            FdPurpose::WAKE_UP => &mut self.fds.wake,
            _ => return,
        };
        *place = Some(fd);
    }

    /// Nothing will be attached any more.
    pub(crate) fn close_descriptors(&mut self) {
        self.fds = Descriptors::default();
    }

    /// Maps everything, if everything is there.
    ///
    /// # Errors
    /// What was sent does not hold together, or can't be mapped or used here.
    pub(crate) fn attach(&mut self) -> Result<Option<(Attached, Facts)>, Error> {
        let (Some(stream), Some(subscribed)) = (&self.stream, self.subscribed) else { return Ok(None) };
        let features = stream.features;
        let missing = |feature, fd: &Option<OwnedFd>| features.contains(feature) && fd.is_none();
        let fds_missing = missing(Features::FD_PASSING, &self.fds.region)
            || missing(Features::FD_PASSING, &self.fds.pool)
            || missing(Features::FD_PASSING.union(Features::WITNESS), &self.fds.witness)
            || missing(Features::WAKE_HINT, &self.fds.bell)
            || missing(Features::WAKE_HINT, &self.fds.wake);
        if fds_missing {
            return Ok(None);
        }
        // Refused though it is not opened (§3.7).
        let path = named_region(&self.shm, &self.key, &stream.shm_path)?;
        let region = Arc::new(match self.fds.region.take() {
            Some(fd) => MappedRegion::from_fd(fd, &self.key, self.peer_uid)?,
            None => MappedRegion::open(&path, &self.key, self.peer_uid)?,
        });
        let witness = self.fds.witness.take().map(|fd| Witness::open(&self.key, &fd)).transpose()?;
        let header = witness.as_ref().map_or_else(|| StreamHeader::read(&region), Witness::header);
        let header = header.map_err(|violation| Error::violation(&self.key, violation))?;
        self.check(&header, stream)?;
        let Some(pool) = self.fds.pool.take().filter(|_| header.backend == Backend::HOST) else {
            return Err(Error::Unusable { key: self.key.clone(), backend: header.backend });
        };
        let memory = |slot| {
            witness.as_ref().map_or_else(|| SlotMemory::read(&region, slot), |witness| witness.memory(slot))
        };
        let slots = 0..usize::from(header.ring_size.get());
        let handles: Vec<_> = slots.map(|slot| memory(slot).handle).collect();
        let view = HostView::open(&self.key, &pool, header.meta.frame_size_bytes, &handles)?;
        let eventfd = |fd: Option<OwnedFd>| {
            fd.map(EventFd::from_fd).transpose().map_err(|error| Error::system(&self.key, error))
        };
        let bell = eventfd(self.fds.bell.take())?;
        let wake = eventfd(self.fds.wake.take())?;
        let initial_seq = subscribed.initial_seq.resolve(region.header().global_seq.load(Acquire));
        let attachment = Attachment::new((header.meta, header.epoch), view, witness, bell, &self.common);
        // A plain publisher knows no extension; without a witness somebody else may have written the number.
        let plain = header.epoch == 0 && features == Features::NONE;
        let seat =
            Seat::new(region, attachment, header.ring_size, subscribed.bit, initial_seq, features, plain);
        let facts = Facts { header, features, bit: subscribed.bit };
        Ok(Some((Attached { reader: RingReader::new(seat, self.mode), wake }, facts)))
    }

    /// The region must be the one that HELLO_RESP spoke of.
    fn check(&self, header: &StreamHeader, stream: &Stream) -> Result<(), Error> {
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
                Err(Error::violation(&self.key, Violation { place: Place::Region, field, problem }))
            }
        }
    }
}

impl Attached {
    /// How long to sleep before looking again although nobody rang.
    pub(crate) const fn look_again_after(&self) -> Duration {
        // Others could write our `parked`; and a publisher without eventfds wakes nobody (§3.7).
        if self.wake.is_some() { Duration::from_millis(100) } else { Duration::from_millis(1) }
    }
}
