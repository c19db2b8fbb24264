//! [`Parcel`]: a frame that is sent, where it is.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use cuframes_bridge::stream::Payload;
use cuframes_core::gpu::Import;

use crate::error::Error;
use crate::frame::Frame;

/// A frame that is sent: leased, or copied where it can't be read where it is. Copies of it are the same frame.
pub struct Parcel<B: Import<Fd = OwnedFd>>(Arc<Contents<B>>);

enum Contents<B: Import<Fd = OwnedFd>> {
    Frame(Frame<B>),
    Copy(Vec<u8>),
}

/// Copies a frame that can't be read where it is, and says so if it was overwritten meanwhile.
pub type Copier<B> = Box<dyn FnMut(&Frame<B>) -> Result<Vec<u8>, Error> + Send>;

impl<B: Import<Fd = OwnedFd>> Parcel<B> {
    /// Takes a frame, which is given back when the last copy of this is dropped.
    pub(super) fn new(frame: Frame<B>, copier: &mut Copier<B>) -> Result<Self, Error> {
        let contents =
            if frame.bytes().is_some() { Contents::Frame(frame) } else { Contents::Copy(copier(&frame)?) };
        Ok(Self(Arc::new(contents)))
    }

    /// To find it again while it is on its way.
    pub(super) fn note(&self) -> Note<B> {
        Note(Arc::downgrade(&self.0))
    }
}

impl<B: Import<Fd = OwnedFd>> Payload for Parcel<B> {
    fn bytes(&self) -> &[u8] {
        match &*self.0 {
            Contents::Frame(frame) => frame.bytes().unwrap_or_default(),
            Contents::Copy(bytes) => bytes,
        }
    }

    fn is_intact(&self) -> bool {
        match &*self.0 {
            Contents::Frame(frame) => frame.check().is_ok(),
            // Copying has found it intact.
            Contents::Copy(_) => true,
        }
    }
}

impl<B: Import<Fd = OwnedFd>> fmt::Debug for Parcel<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Parcel({} bytes)", self.bytes().len())
    }
}

/// A parcel that may be gone.
pub(super) struct Note<B: Import<Fd = OwnedFd>>(std::sync::Weak<Contents<B>>);

impl<B: Import<Fd = OwnedFd>> Note<B> {
    pub(super) fn find(&self) -> Option<Parcel<B>> {
        self.0.upgrade().map(Parcel)
    }
}
