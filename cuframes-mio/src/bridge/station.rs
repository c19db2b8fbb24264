//! [`Station`]: a stream of another host, as it is published here.

use std::io;

use cuframes_bridge::stream::FrameInfo;
use cuframes_core::ring::ClaimAsError;
use cuframes_core::wire::ShutdownReason;
use cuframes_core::{FrameMeta, Key, Policy};

use super::errand::Errand;
use super::numbers::Numbers;
use crate::aside::SetAside;
use crate::builder::PublisherBuilder;
use crate::error::Error;
use crate::served::ServedPublisher;

/// A stream that is published under the numbers of another host.
#[derive(Debug)]
pub(super) struct Station {
    /// As it is called here.
    pub(super) key: Key,
    publisher: ServedPublisher,
    pub(super) epoch: u64,
    meta: FrameMeta,
    /// There; here it may be another one.
    policy: Policy,
    /// Whether numbers wait for subscribers to be read.
    pub(super) waits: bool,
    pub(super) numbers: Numbers,
    /// The frame that is being received.
    aside: Option<SetAside>,
    /// Bytes of shared memory.
    pub(super) bytes: u64,
}

impl Station {
    /// Publishes the stream of a frame under another policy than there, or the same one. Takes as long as making the memory does.
    pub(super) fn open(
        builder: PublisherBuilder,
        policy: Policy,
        info: &FrameInfo,
        bytes: u64,
    ) -> Result<Box<Self>, Error> {
        let key = builder.key().clone();
        let publisher = builder.policy(policy).create()?.serve()?;
        let waits = policy == Policy::STRICT_WAIT;
        let FrameInfo { epoch, meta, policy, .. } = *info;
        let numbers = Numbers::default();
        Ok(Box::new(Self { key, publisher, epoch, meta, policy, waits, numbers, aside: None, bytes }))
    }

    /// Whether a frame is one of the stream that is published, and not of another publisher or of another shape (D-24).
    pub(super) fn is_of(&self, info: &FrameInfo) -> bool {
        (self.epoch, self.meta, self.policy) == (info.epoch, info.meta, info.policy)
    }

    /// Takes the slot of a frame.
    pub(super) fn claim(&mut self, info: &FrameInfo) -> Result<(), ClaimAsError> {
        let newest = self.numbers.newest();
        if info.seq <= newest {
            return Err(ClaimAsError::Passed { newest });
        }
        self.aside = Some(self.publisher.try_claim_as(info.seq)?.set_aside());
        Ok(())
    }

    /// Publishes the frame that was received. `false` if its slot is not ours any more.
    pub(super) fn commit(&mut self, info: &FrameInfo) -> bool {
        let claim = self.aside.take().and_then(|aside| self.publisher.resume_claim(aside));
        let Some(claim) = claim else { return false };
        self.numbers.publish(claim.commit_with(info.pts_ns, info.written_bytes));
        true
    }

    /// Gives up the frame that was to be received.
    pub(super) fn cancel(&mut self) {
        drop(self.aside.take().and_then(|aside| self.publisher.resume_claim(aside)));
    }

    /// Ends the stream, in a thread: those who have it open get their grace period (D-12).
    pub(super) fn end(self: Box<Self>, reason: ShutdownReason) -> io::Result<Errand<()>> {
        // It reports what goes wrong itself.
        Errand::start("cuframes-end", move || drop(self.publisher.shut_down(reason)))
    }
}

impl AsMut<[u8]> for Station {
    fn as_mut(&mut self) -> &mut [u8] {
        match &self.aside {
            Some(aside) => self.publisher.aside_bytes_mut(aside),
            None => &mut [],
        }
    }
}
