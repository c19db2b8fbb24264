//! The jobs, as any [`System`] does them. Each has a `lead` for its cell's main process, which writes and measures, and a
//! `support` for the others.

pub(crate) mod flow;
pub(crate) mod handshake;
pub(crate) mod policies;
pub(crate) mod publish;
pub(crate) mod spin;
pub(crate) mod wake;

use std::hint::spin_loop;
use std::thread::yield_now;
use std::time::Duration;

use crate::numbers::{now, saturating_nanos};
use crate::system::{Failure, System, Wait};

/// What small frames hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Note {
    /// A time, or a number.
    pub(crate) stamp: u64,
    pub(crate) phase: Phase,
}

/// What a frame is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Phase {
    /// Nothing: the first frames are slow.
    WarmUp,
    Measured,
    /// The last frame.
    Over,
}

impl Note {
    #[inline]
    pub(crate) fn write(self, frame: &mut [u8]) {
        let (words, _) = frame.as_chunks_mut();
        if let [stamp, phase, ..] = words {
            *stamp = self.stamp.to_ne_bytes();
            let number: u64 = match self.phase {
                Phase::WarmUp => 0,
                Phase::Measured => 1,
                Phase::Over => 2,
            };
            *phase = number.to_ne_bytes();
        }
    }

    #[inline]
    pub(crate) fn read(frame: &[u8]) -> Self {
        match frame.as_chunks().0 {
            [stamp, phase, ..] => {
                let phase = match u64::from_ne_bytes(*phase) {
                    0 => Phase::WarmUp,
                    1 => Phase::Measured,
                    _ => Phase::Over,
                };
                Self { stamp: u64::from_ne_bytes(*stamp), phase }
            }
            // Too short for a note.
            _ => Self { stamp: 0, phase: Phase::Over },
        }
    }
}

/// Waits in a loop for the next frame.
///
/// # Errors
/// Whatever reading fails with, or nothing came.
#[inline]
pub(crate) fn spin_read<S: System, T>(
    reader: &mut S::Reader,
    mut look: impl FnMut(&[u8]) -> T,
) -> Result<T, Failure> {
    let mut spinning = Spinning::default();
    loop {
        if let Some(seen) = S::read(reader, Wait::Spin, &mut look)? {
            return Ok(seen);
        }
        spinning.go_on()?;
    }
}

/// Sleeps until the next frame.
///
/// # Errors
/// As [`spin_read`].
#[inline]
pub(crate) fn sleep_read<S: System, T>(
    reader: &mut S::Reader,
    look: impl FnMut(&[u8]) -> T,
) -> Result<T, Failure> {
    S::read(reader, Wait::Block(PATIENCE), look)?.ok_or_else(|| nothing().into())
}

/// A loop that finds nothing.
#[derive(Default, Debug)]
pub(crate) struct Spinning {
    looks: u32,
    deadline: Option<u64>,
}

impl Spinning {
    /// It has found nothing again.
    ///
    /// # Errors
    /// It has been going on for too long.
    #[inline]
    pub(crate) fn go_on(&mut self) -> Result<(), Failure> {
        spin_loop();
        self.looks = self.looks.wrapping_add(1);
        if self.looks.is_multiple_of(LOOKS_AT_A_TIME) { self.rest() } else { Ok(()) }
    }

    /// Lets others on, who may be those that we wait for.
    #[cold]
    fn rest(&mut self) -> Result<(), Failure> {
        let now = now();
        let deadline = *self.deadline.get_or_insert_with(|| now.saturating_add(saturating_nanos(PATIENCE)));
        yield_now();
        if now < deadline { Ok(()) } else { Err(nothing().into()) }
    }
}

fn nothing() -> String {
    format!("nothing came in {PATIENCE:?}")
}

/// Looks before a loop lets others on: more than a fraction of a millisecond.
const LOOKS_AT_A_TIME: u32 = 1 << 16;

/// How long anybody waits for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Bytes of a small frame: a cache line.
pub(crate) const SMALL: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written_and_a_short_frame_is_the_last_one() {
        for phase in [Phase::WarmUp, Phase::Measured, Phase::Over] {
            let note = Note { stamp: u64::MAX - 7, phase };
            let mut frame = [0xff; SMALL];
            note.write(&mut frame);
            assert_eq!(Note::read(&frame), note);
        }
        assert_eq!(Note::read(&[0; 15]).phase, Phase::Over);
    }
}
