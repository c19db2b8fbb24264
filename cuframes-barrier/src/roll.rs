//! [`Roll`]: who is expected, and how far each of them is.

use alloc::vec::Vec;
use core::fmt;

use cuframes_core::streams::ConnId;

use crate::fault::Stage;
use crate::message::Registration;

/// How far a participant is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Progress {
    /// Nothing was heard of it.
    Absent,
    /// It said HELLO and was sent INIT.
    Greeted,
    /// It said READY.
    Ready,
    /// It registered.
    Registered,
    /// It was there, and its connection ended ([`FrontendConfig::restarts`](crate::FrontendConfig::restarts)).
    Lost,
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Absent => "nothing heard",
            Self::Greeted => "said HELLO",
            Self::Ready => "said READY",
            Self::Registered => "registered",
            Self::Lost => "connection lost",
        })
    }
}

/// One participant.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) index: u16,
    /// How far it came, lost or not.
    pub(crate) reached: Progress,
    pub(crate) is_lost: bool,
    /// Where it said HELLO, or READY.
    pub(crate) handshake: Option<ConnId>,
    /// Where it registered.
    pub(crate) input: Option<ConnId>,
    /// Input connections before this one are of a process that has started again since.
    pub(crate) since: ConnId,
    /// It knows the words of the extension.
    pub(crate) knows: bool,
    pub(crate) registration: Option<Registration>,
    /// How many of its registrations wait until everybody is ready.
    pub(crate) held: u8,
}

impl Entry {
    const fn new(index: u16) -> Self {
        Self {
            index,
            reached: Progress::Absent,
            is_lost: false,
            handshake: None,
            input: None,
            since: ConnId::new(0),
            knows: false,
            registration: None,
            held: 0,
        }
    }

    pub(crate) const fn progress(&self) -> Progress {
        if self.is_lost { Progress::Lost } else { self.reached }
    }

    /// It starts again; connections from `since` on are its own. Gives the connections that it had.
    pub(crate) fn restart(&mut self, since: ConnId) -> [Option<ConnId>; 2] {
        let old = [self.handshake, self.input];
        *self = Self { since, ..Self::new(self.index) };
        old
    }

    fn needs(&self, stage: Stage) -> bool {
        let reached = match stage {
            Stage::Ready => Progress::Ready,
            Stage::Registration => Progress::Registered,
        };
        self.reached < reached || self.is_lost
    }
}

/// Everybody who is expected, by index.
#[derive(Debug)]
pub(crate) struct Roll {
    entries: Vec<Entry>,
}

impl Roll {
    pub(crate) fn new(indices: impl Iterator<Item = u16>) -> Self {
        Self { entries: indices.map(Entry::new).collect() }
    }

    pub(crate) fn get(&mut self, index: u16) -> Option<&mut Entry> {
        let first = self.entries.first()?.index;
        self.entries.get_mut(usize::from(index.checked_sub(first)?))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.entries.iter_mut()
    }

    /// What is being waited for; nothing when all are there.
    pub(crate) fn stage(&self) -> Option<Stage> {
        if self.entries.iter().any(|entry| entry.reached < Progress::Ready) {
            Some(Stage::Ready)
        } else {
            self.entries.iter().any(|entry| entry.needs(Stage::Registration)).then_some(Stage::Registration)
        }
    }

    /// Who has not come through this stage.
    pub(crate) fn missing(&self, stage: Stage) -> Vec<(u16, Progress)> {
        let missing = self.entries.iter().filter(|entry| entry.needs(stage));
        missing.map(|entry| (entry.index, entry.progress())).collect()
    }
}
