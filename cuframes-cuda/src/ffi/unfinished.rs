//! [`Unfinished`]: work of a context that may never be done, and what can't be closed before it is.
//!
//! The calls of the driver that free, unmap or close memory wait for all streams of the context. Behind a stream that waits
//! for an event that never comes they would wait for ever. So whoever gives up waiting leaves a [`Watch`] here, and while one
//! of them is not over nothing is closed: it stays here instead, and is closed when somebody closes something later. If that
//! never happens it stays as long as the process, and so does the context, on purpose.

use std::collections::BTreeMap;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::CUdevice;

use super::{Allocation, Context, Event, HostBuffer, Imported, Mapped, Stream};

/// What the primary context of a device has still to do, as far as somebody had to give up waiting for it.
#[derive(Debug, Default)]
pub(super) struct Unfinished(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    watches: Vec<Watch>,
    remains: Vec<Remains>,
}

/// What tells that work is done.
#[derive(Debug)]
pub(crate) enum Watch {
    /// It was recorded behind the work, which is in the stream of this address if that is known.
    Event(Arc<Event>, Option<usize>),
    /// It has nothing but the work.
    Stream(Stream),
    /// Nothing does.
    Lost,
}

/// What waits to be closed. Dropping it closes it, and that is all it is for.
#[derive(Debug)]
#[expect(dead_code, reason = "kept to be dropped")]
pub(super) enum Remains {
    Allocation(Allocation),
    Imported(Imported),
    Mapped(Mapped),
    Buffer(HostBuffer),
}

impl Watch {
    fn is_over(&self) -> bool {
        match self {
            Self::Event(event, _) => event.is_done() == Ok(true),
            Self::Stream(stream) => stream.is_idle() == Ok(true),
            // A device that has failed says no more what it does.
            Self::Lost => false,
        }
    }

    fn is_of(&self, stream: usize) -> bool {
        matches!(self, Self::Event(_, Some(address)) if *address == stream)
    }

    fn is(&self, event: &Arc<Event>) -> bool {
        matches!(self, Self::Event(mine, _) if Arc::ptr_eq(mine, event))
    }
}

impl Context {
    /// Nothing is closed before this is over.
    pub(crate) fn watch(&self, watch: Watch) {
        let mut state = self.unfinished.lock();
        let is_known = match &watch {
            Watch::Event(event, _) => state.watches.iter().any(|other| other.is(event)),
            Watch::Stream(_) | Watch::Lost => false,
        };
        if !is_known {
            state.watches.push(watch);
        }
    }

    /// An event that watches the stream, which its next record there replaces.
    pub(crate) fn take_watch(&self, stream: &Stream) -> Option<Arc<Event>> {
        let mut state = self.unfinished.lock();
        let at = state.watches.iter().position(|watch| watch.is_of(stream.address()))?;
        match state.watches.swap_remove(at) {
            Watch::Event(event, _) => Some(event),
            Watch::Stream(_) | Watch::Lost => None,
        }
    }

    /// Another stream may get the address of one that ends.
    pub(super) fn forget_address(&self, stream: usize) {
        for watch in &mut self.unfinished.lock().watches {
            if let Watch::Event(_, address) = watch
                && *address == Some(stream)
            {
                *address = None;
            }
        }
    }

    /// Whether all is over that was watched, so that closing does not wait for ever. What was kept is closed then.
    pub(crate) fn is_settled(&self) -> bool {
        let mut state = self.unfinished.lock();
        let (over, watches): (Vec<_>, Vec<_>) =
            mem::take(&mut state.watches).into_iter().partition(Watch::is_over);
        state.watches = watches;
        let is_settled = state.watches.is_empty();
        let remains = if is_settled { mem::take(&mut state.remains) } else { Vec::new() };
        // Closed without the lock: the driver may take its time.
        drop(state);
        drop((over, remains));
        is_settled
    }

    /// Closes it when the context is settled.
    pub(super) fn keep(&self, remains: Remains) {
        self.unfinished.lock().remains.push(remains);
    }
}

impl Unfinished {
    /// That of the device, whose primary context is the same for everybody in the process.
    pub(super) fn of(device: CUdevice) -> Arc<Self> {
        static ALL: Mutex<BTreeMap<CUdevice, Arc<Unfinished>>> = Mutex::new(BTreeMap::new());
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(device).or_default())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
