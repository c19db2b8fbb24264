//! Video: how many frames a second pass from a writer that writes every byte to readers that read every byte, none of them
//! lost, and how much CPU time each frame costs all processes together. First as fast as possible, then at 60 a second.

use std::thread::sleep;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{PATIENCE, sleep_read};
use crate::case::Case;
use crate::figures::Figure;
use crate::numbers::{count, cpu_time, figure, now, saturating_nanos};
use crate::stage::{Brief, Stage};
use crate::system::{Failure, Setup, System};
use crate::troupe::Post;

/// Nobody is pinned: frames are to pass as fast as all CPUs can do it.
pub(crate) fn lead<S: System>(stage: &Stage) -> Result<Vec<Figure>, Failure> {
    let setup = setup(&stage.brief)?;
    let mut writer = stage.open::<S>(&setup)?;
    let readers = stage.call_all("reader", setup.readers)?;
    S::wait_for_readers(&mut writer, &setup, PATIENCE)?;
    let mut written = write_all(&stage.brief, |tag| S::write(&mut writer, |frame| draw(frame, tag)))?;
    for reader in readers {
        written.add(reader.result()?);
    }
    Ok(written.figures())
}

pub(crate) fn support<S: System>(post: &mut Post) -> Result<Value, Failure> {
    let mut reader = S::reader(&setup(&post.brief)?, post.index)?;
    post.say(crate::stage::READY)?;
    let mut watched = Watched::default();
    while sleep_read::<S, _>(&mut reader, |frame| watched.look(frame, cpu_time))?? != Part::Over {}
    Ok(serde_json::to_value(watched.cpu)?)
}

pub(crate) fn setup(brief: &Brief) -> Result<Setup, Failure> {
    match brief.case {
        Case::Flow { size, readers } => {
            Ok(Setup { ring_size: RING, strict: true, ..brief.setup(size.frame_bytes(), readers) })
        }
        other => Err(format!("{other} is no case of flow").into()),
    }
}

/// Parts of the measurement, in their order. Every frame says to which it belongs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Part {
    WarmUp,
    Full,
    Paced,
    Over,
}

/// The first word of a frame: its part and its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tag(u64);

impl Tag {
    const fn new(part: Part, number: u64) -> Self {
        let part: u64 = match part {
            Part::WarmUp => 0,
            Part::Full => 1,
            Part::Paced => 2,
            Part::Over => 3,
        };
        Self(part << NUMBER_BITS | number)
    }

    const fn part(self) -> Part {
        match self.0 >> NUMBER_BITS {
            0 => Part::WarmUp,
            1 => Part::Full,
            2 => Part::Paced,
            _ => Part::Over,
        }
    }

    const fn number(self) -> u64 {
        self.0 & ((1 << NUMBER_BITS) - 1)
    }
}

const NUMBER_BITS: u32 = 56;

/// Writes every byte: the tag, and from word to word one more.
pub(crate) fn draw(frame: &mut [u8], tag: Tag) {
    let (words, rest) = frame.as_chunks_mut();
    for (n, word) in (0_u64..).zip(words) {
        *word = tag.0.wrapping_add(n).to_ne_bytes();
    }
    rest.fill(0);
}

/// Reads every byte, and says whose frame it is if it was whole.
fn sum(frame: &[u8]) -> Result<Tag, Failure> {
    let (words, _) = frame.as_chunks();
    let first = words.first().copied().map(u64::from_ne_bytes).unwrap_or_default();
    let sum = words.iter().fold(0_u64, |sum, word| sum.wrapping_add(u64::from_ne_bytes(*word)));
    let words = count(words.len());
    let expected = words.wrapping_mul(first).wrapping_add(words * words.saturating_sub(1) / 2);
    if sum == expected { Ok(Tag(first)) } else { Err("a frame is not the one that was written".into()) }
}

/// What a reader has seen.
#[derive(Default, Debug)]
pub(crate) struct Watched {
    last: Option<Tag>,
    pub(crate) cpu: Cpu,
    since: u64,
}

impl Watched {
    /// Reads a frame.
    ///
    /// # Errors
    /// It is not the one that comes next.
    pub(crate) fn look(&mut self, frame: &[u8], cpu_time: impl Fn() -> u64) -> Result<Part, Failure> {
        let tag = sum(frame)?;
        let missing = self.last.is_some_and(|last| last.number() + 1 != tag.number());
        if missing {
            return Err(format!("frame {} is not the next one", tag.number()).into());
        }
        let part = tag.part();
        if let Some(last) = self.last.replace(tag).map(Tag::part)
            && last != part
        {
            let now = cpu_time();
            self.cpu.spent(last, now.saturating_sub(self.since));
            self.since = now;
        }
        Ok(part)
    }
}

/// CPU time by part, in nanoseconds.
#[derive(Serialize, Deserialize, Clone, Copy, Default, Debug)]
pub(crate) struct Cpu {
    full: u64,
    paced: u64,
}

impl Cpu {
    const fn spent(&mut self, part: Part, nanos: u64) {
        match part {
            Part::Full => self.full = nanos,
            Part::Paced => self.paced = nanos,
            Part::WarmUp | Part::Over => {}
        }
    }
}

/// What was written.
#[derive(Default, Debug)]
pub(crate) struct Written {
    full_frames: u64,
    full_nanos: u64,
    paced_frames: u64,
    cpu: Cpu,
}

impl Written {
    /// Adds what a reader has spent.
    pub(crate) const fn add(&mut self, cpu: Cpu) {
        self.cpu.full += cpu.full;
        self.cpu.paced += cpu.paced;
    }

    pub(crate) fn figures(&self) -> Vec<Figure> {
        let Self { full_frames, full_nanos, paced_frames, cpu } = *self;
        let rate = figure(full_frames) * 1e9 / figure(full_nanos.max(1));
        vec![
            Figure::rate("frames", rate),
            Figure::nanos("CPU/frame", figure(cpu.full) / figure(full_frames.max(1))),
            Figure::nanos("CPU/frame at 60/s", figure(cpu.paced) / figure(paced_frames.max(1))),
        ]
    }
}

/// Writes all parts, each frame with `write`.
pub(crate) fn write_all(
    brief: &Brief,
    mut write: impl FnMut(Tag) -> Result<(), Failure>,
) -> Result<Written, Failure> {
    let [warm_up, full, paced] = brief.choose([100, 400, 500], [0, 20, 35]).map(Duration::from_millis);
    let mut written = Written::default();
    let mut number = 0;
    let mut one_of = |part| {
        number += 1;
        write(Tag::new(part, number))
    };
    // Every slot is touched, by everybody.
    let start = now();
    for frame in 0_u64.. {
        if frame > 2 * u64::from(RING) && now().saturating_sub(start) > saturating_nanos(warm_up) {
            break;
        }
        one_of(Part::WarmUp)?;
    }
    let (start, cpu) = (now(), cpu_time());
    while written.full_nanos < saturating_nanos(full) {
        one_of(Part::Full)?;
        written.full_frames += 1;
        written.full_nanos = now().saturating_sub(start);
    }
    written.cpu.full = cpu_time().saturating_sub(cpu);
    let (start, cpu) = (now(), cpu_time());
    loop {
        let due = start + written.paced_frames * 1_000_000_000 / FRAMES_PER_SECOND;
        sleep(Duration::from_nanos(due.saturating_sub(now())));
        if due >= start + saturating_nanos(paced) {
            break;
        }
        one_of(Part::Paced)?;
        written.paced_frames += 1;
    }
    written.cpu.paced = cpu_time().saturating_sub(cpu);
    one_of(Part::Over)?;
    Ok(written)
}

pub(crate) const RING: u8 = 4;
const FRAMES_PER_SECOND: u64 = 60;

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(part: Part, number: u64) -> Vec<u8> {
        let mut frame = vec![0; 4099];
        draw(&mut frame, Tag::new(part, number));
        frame
    }

    #[test]
    fn a_frame_that_differs_in_one_byte_or_that_is_missing_is_noticed() {
        let mut watched = Watched::default();
        assert_eq!(watched.look(&frame(Part::Full, 7), || 0).unwrap(), Part::Full);
        let mut torn = frame(Part::Full, 8);
        torn[1234] ^= 1;
        assert!(watched.look(&torn, || 0).is_err());
        assert!(watched.look(&frame(Part::Full, 9), || 0).is_err());
        assert_eq!(watched.look(&frame(Part::Paced, 8), || 0).unwrap(), Part::Paced);
    }

    #[test]
    fn cpu_time_counts_from_the_first_frame_of_a_part_to_the_first_of_the_next() {
        let mut watched = Watched::default();
        let parts = [Part::WarmUp, Part::WarmUp, Part::Full, Part::Full, Part::Paced, Part::Over];
        for (number, part) in (0..).zip(parts) {
            watched.look(&frame(part, number), || 100 * number * number).unwrap();
        }
        assert_eq!((watched.cpu.full, watched.cpu.paced), (1600 - 400, 2500 - 1600));
    }
}
