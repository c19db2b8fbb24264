//! [`Station`]: a stream of another host, as it is published here.

use std::io;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use cuframes_bridge::stream::FrameInfo;
use cuframes_core::ring::ClaimAsError;
use cuframes_core::wire::ShutdownReason;
use cuframes_core::{FrameMeta, Key, Policy};

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
    epoch: u64,
    meta: FrameMeta,
    policy: Policy,
    newest: u64,
    /// The frame that is being received.
    aside: Option<SetAside>,
    /// Bytes of shared memory.
    pub(super) bytes: u64,
}

impl Station {
    pub(super) fn open(builder: PublisherBuilder, info: &FrameInfo, bytes: u64) -> Result<Box<Self>, Error> {
        let key = builder.key().clone();
        let publisher = builder.create()?.serve()?;
        let FrameInfo { epoch, meta, policy, .. } = *info;
        Ok(Box::new(Self { key, publisher, epoch, meta, policy, newest: 0, aside: None, bytes }))
    }

    /// Whether a frame is one of the stream that is published, and not of another publisher or of another shape (D-24).
    pub(super) fn is_of(&self, info: &FrameInfo) -> bool {
        (self.epoch, self.meta, self.policy) == (info.epoch, info.meta, info.policy)
    }

    /// Takes the slot of a frame.
    pub(super) fn claim(&mut self, info: &FrameInfo) -> Result<(), ClaimAsError> {
        if info.seq <= self.newest {
            return Err(ClaimAsError::Passed { newest: self.newest });
        }
        self.aside = Some(self.publisher.try_claim_as(info.seq)?.set_aside());
        Ok(())
    }

    /// Publishes the frame that was received.
    pub(super) fn commit(&mut self, info: &FrameInfo) {
        let claim = self.aside.take().and_then(|aside| self.publisher.resume_claim(aside));
        if let Some(claim) = claim {
            self.newest = claim.commit_with(info.pts_ns, info.written_bytes);
        }
    }

    /// Gives up the frame that was to be received.
    pub(super) fn cancel(&mut self) {
        drop(self.aside.take().and_then(|aside| self.publisher.resume_claim(aside)));
    }

    /// Whether numbers wait for subscribers to be read.
    pub(super) fn waits(&self) -> bool {
        self.policy == Policy::STRICT_WAIT
    }

    /// Ends the stream, in a thread: those who have it open get their grace period (D-12).
    pub(super) fn end(self: Box<Self>, reason: ShutdownReason) -> io::Result<Ending> {
        let bytes = self.bytes;
        let end = move || drop(self.publisher.shut_down(reason));
        let thread = thread::Builder::new().name("cuframes-end".into()).spawn(end)?;
        Ok(Ending { thread, bytes })
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

/// A stream that ends.
#[derive(Debug)]
pub(super) struct Ending {
    thread: JoinHandle<()>,
    pub(super) bytes: u64,
}

impl Ending {
    pub(super) fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    pub(super) fn wait(self) {
        // It reports what goes wrong itself.
        let _ = self.thread.join();
    }
}

/// How often to look whether a slot is free, or an ended stream is gone.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(1);
