//! One-way latency with both sides spinning: a frame goes there over one stream and comes back over another.

use serde_json::Value;

use super::{Note, PATIENCE, Phase, SMALL, spin_read};
use crate::figures::Figure;
use crate::numbers::{figure, now};
use crate::stage::{Brief, READY, Stage};
use crate::stats::Times;
use crate::system::{Failure, Setup, System};
use crate::troupe::Post;

pub(crate) fn lead<S: System>(stage: &Stage) -> Result<Vec<Figure>, Failure> {
    let [there, back] = setups(&stage.brief);
    let mut writer = stage.open::<S>(&there)?;
    let mut echo = stage.call("echo", 0)?;
    echo.expect(OPEN)?;
    let mut reader = S::reader(&back, 0)?;
    S::wait_for_readers(&mut writer, &there, PATIENCE)?;
    echo.expect(READY)?;
    stage.pin()?;

    let mut number = 0_u64;
    let figures = time_round_trips(&stage.brief, || {
        number += 1;
        S::write(&mut writer, |frame| Note { stamp: number, phase: Phase::Measured }.write(frame))?;
        let note = spin_read::<S, _>(&mut reader, Note::read)?;
        check(note.stamp, number)
    })?;
    S::write(&mut writer, |frame| Note { stamp: 0, phase: Phase::Over }.write(frame))?;
    let echoed: u64 = echo.result()?;
    check(echoed, number)?;
    Ok(figures)
}

pub(crate) fn support<S: System>(post: &mut Post) -> Result<Value, Failure> {
    let [there, back] = setups(&post.brief);
    let mut writer = S::writer(&back)?;
    post.say(OPEN)?;
    let mut reader = S::reader(&there, 0)?;
    S::wait_for_readers(&mut writer, &back, PATIENCE)?;
    post.pin()?;
    post.say(READY)?;
    let mut echoed = 0_u64;
    loop {
        let note = spin_read::<S, _>(&mut reader, Note::read)?;
        if note.phase == Phase::Over {
            return Ok(echoed.into());
        }
        S::write(&mut writer, |frame| note.write(frame))?;
        echoed += 1;
    }
}

/// Times round trips by batches, so that the clock does not count, and says what half of one takes.
pub(crate) fn time_round_trips(
    brief: &Brief,
    mut round_trip: impl FnMut() -> Result<(), Failure>,
) -> Result<Vec<Figure>, Failure> {
    let (warm_up, batches) = brief.choose((200, 3000), (2, 20));
    let mut times = Times::new()?;
    let end = now() + LONG_ENOUGH;
    for batch in 0..warm_up + batches {
        let start = now();
        if start > end && !times.counts().is_empty() {
            break;
        }
        for _ in 0..BATCH {
            round_trip()?;
        }
        let time = now().saturating_sub(start);
        if batch >= warm_up {
            times.record(figure(time) / figure(2 * BATCH));
        }
    }
    let mut figures = Figure::of_times(&times, &["p50", "p99"])?;
    if let Some(first) = figures.first_mut() {
        first.counts = Some(times.counts());
    }
    Ok(figures)
}

/// What came back must be what was sent.
pub(crate) fn check(found: u64, expected: u64) -> Result<(), Failure> {
    if found == expected { Ok(()) } else { Err(format!("{found} came back for {expected}").into()) }
}

fn setups(brief: &Brief) -> [Setup; 2] {
    ["there", "back"].map(|stream| Setup { stream: stream.into(), ..brief.setup(SMALL, 1) })
}

const OPEN: &str = "open";

/// Nanoseconds after which the batches that there are have to do: on a machine that is busy with other work one that spins
/// keeps the other from running.
const LONG_ENOUGH: u64 = 30_000_000_000;

/// Round trips between two looks at the clock.
const BATCH: u64 = 64;
