//! Latency to one reader that sleeps in the kernel. The frame says when it was written.

use std::time::Duration;

use serde_json::Value;

use super::{Note, PATIENCE, Phase, SMALL, sleep_read};
use crate::figures::Figure;
use crate::numbers::{figure, now, spin_for};
use crate::stage::{READY, Stage};
use crate::stats::{Counts, Times};
use crate::system::{Failure, System};
use crate::troupe::Post;

pub(crate) fn lead<S: System>(stage: &Stage) -> Result<Vec<Figure>, Failure> {
    let setup = stage.brief.setup(SMALL, 1);
    let mut writer = stage.open::<S>(&setup)?;
    let mut reader = stage.call("reader", 0)?;
    reader.expect(READY)?;
    S::wait_for_readers(&mut writer, &setup, PATIENCE)?;
    stage.pin()?;
    let (warm_up, measured) = stage.brief.choose((50, 400), (2, 10));
    let phases = [(Phase::WarmUp, warm_up), (Phase::Measured, measured), (Phase::Over, 1)];
    for phase in phases.into_iter().flat_map(|(phase, frames)| (0..frames).map(move |_| phase)) {
        // Time to read the frame before, and to fall asleep.
        spin_for(PAUSE);
        S::write(&mut writer, |frame| Note { stamp: now(), phase }.write(frame))?;
    }
    let counts: Counts = reader.result()?;
    let mut times = Times::new()?;
    times.merge(&counts);
    let mut figures = Figure::of_times(&times, &["p50", "p99"])?;
    if let Some(first) = figures.first_mut() {
        first.counts = Some(counts);
    }
    Ok(figures)
}

pub(crate) fn support<S: System>(post: &mut Post) -> Result<Value, Failure> {
    let mut reader = S::reader(&post.brief.setup(SMALL, 1), post.index)?;
    post.pin()?;
    post.say(READY)?;
    let mut times = Times::new()?;
    loop {
        let (note, seen) = sleep_read::<S, _>(&mut reader, |frame| {
            let seen = now();
            (Note::read(frame), seen)
        })?;
        match note.phase {
            Phase::WarmUp => {}
            Phase::Measured => times.record(figure(seen.saturating_sub(note.stamp))),
            Phase::Over => return Ok(serde_json::to_value(times.counts())?),
        }
    }
}

/// Between two frames.
const PAUSE: Duration = Duration::from_millis(1);
