//! [`IntakeEvent`] and [`CourierEvent`]: what both ends tell.

use std::collections::VecDeque;

use cuframes_bridge::stream::{Fate, FrameInfo, LinkFault, SenderEvent};
use cuframes_core::Key;

use crate::error::Error;
use crate::reconnect::StreamEvent;

/// What a receiver of frames tells.
#[derive(Debug)]
#[non_exhaustive]
pub enum IntakeEvent {
    /// A sender has said which stream it has.
    Joined {
        /// The stream, as it is called there.
        key: Key,
        /// Whether the sender keeps each frame until it has arrived.
        strict: bool,
    },
    /// A stream is published from now on.
    Published {
        /// The stream, as it is called here.
        key: Key,
        /// Its first frame.
        info: FrameInfo,
    },
    /// A frame was published.
    Frame {
        /// The stream, as it is called here.
        key: Key,
        /// The frame.
        info: FrameInfo,
        /// Where its time went.
        times: HopTimes,
    },
    /// A frame was not published.
    NotPublished {
        /// The stream, as it is called there.
        key: Key,
        /// Its number.
        seq: u64,
        /// What its sender was told.
        fate: Fate,
    },
    /// A frame that was [asked for](super::Intake::fetch).
    Fetched {
        /// The stream, as it is called there.
        key: Key,
        /// The frame.
        info: FrameInfo,
        /// Its valid bytes.
        bytes: Vec<u8>,
    },
    /// A frame that was asked for does not come.
    NotFetched {
        /// The stream, as it is called there.
        key: Key,
        /// Why.
        why: String,
    },
    /// A sender is gone. Its stream stays for a while, for the next one.
    Left {
        /// The stream, as it is called there, if it said it.
        key: Option<Key>,
        /// What was wrong, if anything was.
        fault: Option<LinkFault>,
    },
    /// A stream is published no more.
    Ended {
        /// The stream, as it is called here.
        key: Key,
    },
}

/// Where the time of a frame went between the two hosts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct HopTimes {
    /// From its time stamp to the beginning of the sending, in nanoseconds of the sender's clock; 0 if that is not known.
    pub before_ns: u64,
    /// From its first byte to its last, in nanoseconds of the receiver's clock.
    pub wire_ns: u64,
    /// The wait for a slot, and from its last byte until it was published, in nanoseconds of the receiver's clock.
    pub publish_ns: u64,
}

/// What a sender of frames tells.
#[derive(Debug)]
#[non_exhaustive]
pub enum CourierEvent {
    /// What happens on the link. Requests for single frames are answered already when they are told here.
    Link(SenderEvent),
    /// A publisher of the stream came or went, for a subscriber that
    /// [reconnects](crate::SubscriberBuilder::reconnect).
    Stream(StreamEvent),
    /// A frame could not be read, and is left out.
    Unread(Error),
    /// No more frames come. Those that were taken are still sent.
    Ended(Error),
}

/// Events that wait until the owner looks. Without an owner who looks there are not more and more of them.
#[derive(Debug)]
pub(super) struct Events<E>(VecDeque<E>);

impl<E> Events<E> {
    pub(super) const fn new() -> Self {
        Self(VecDeque::new())
    }

    pub(super) fn push(&mut self, event: E) {
        if self.0.len() == MAX_EVENTS {
            self.0.pop_front();
        }
        self.0.push_back(event);
    }

    pub(super) fn pop(&mut self) -> Option<E> {
        self.0.pop_front()
    }
}

/// More than come between two looks of an owner who does look.
const MAX_EVENTS: usize = 1024;
