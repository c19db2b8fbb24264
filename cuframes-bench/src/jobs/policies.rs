//! What leases and strict waiting cost: the calls of a writer and of one reader, which spins.

use std::time::Duration;

use serde_json::Value;

use super::{Note, PATIENCE, Phase, SMALL, Spinning};
use crate::case::Case;
use crate::figures::Figure;
use crate::numbers::{clock_cost, figure, now, spin_for};
use crate::stage::{Brief, READY, Stage};
use crate::stats::Times;
use crate::system::{Failure, Setup, System, Wait};
use crate::troupe::Post;

pub(crate) fn lead<S: System>(stage: &Stage) -> Result<Vec<Figure>, Failure> {
    let setup = setup(&stage.brief)?;
    let mut writer = stage.open::<S>(&setup)?;
    let mut reader = stage.call("reader", 0)?;
    reader.expect(READY)?;
    S::wait_for_readers(&mut writer, &setup, PATIENCE)?;
    stage.pin()?;
    let (warm_up, measured) = stage.brief.choose((500, 5000), (10, 100));
    let clock_cost = clock_cost();
    let mut times = Times::new()?;
    for call in 0..warm_up + measured {
        let phase = if call < warm_up { Phase::WarmUp } else { Phase::Measured };
        // The reader has read the frame before.
        spin_for(PAUSE);
        let start = now();
        S::write(&mut writer, |frame| Note { stamp: 0, phase }.write(frame))?;
        let time = now().saturating_sub(start);
        if phase == Phase::Measured {
            times.record(figure(time.saturating_sub(clock_cost)));
        }
    }
    S::write(&mut writer, |frame| Note { stamp: 0, phase: Phase::Over }.write(frame))?;
    let mut figures = Figure::of_times(&times, &["write p50"])?;
    figures.push(reader.result()?);
    Ok(figures)
}

pub(crate) fn support<S: System>(post: &mut Post) -> Result<Value, Failure> {
    let mut reader = S::reader(&setup(&post.brief)?, post.index)?;
    post.pin()?;
    post.say(READY)?;
    let clock_cost = clock_cost();
    let mut times = Times::new()?;
    let mut spinning = Spinning::default();
    loop {
        let start = now();
        let Some(note) = S::read(&mut reader, Wait::Spin, Note::read)? else {
            spinning.go_on()?;
            continue;
        };
        let time = now().saturating_sub(start);
        spinning = Spinning::default();
        match note.phase {
            Phase::WarmUp => {}
            Phase::Measured => times.record(figure(time.saturating_sub(clock_cost))),
            Phase::Over => {
                let figures = Figure::of_times(&times, &["read p50"])?;
                return Ok(serde_json::to_value(figures.first())?);
            }
        }
    }
}

fn setup(brief: &Brief) -> Result<Setup, Failure> {
    match brief.case {
        Case::Policies { leases, strict } => Ok(Setup { leases, strict, ..brief.setup(SMALL, 1) }),
        other => Err(format!("{other} is no case of policies").into()),
    }
}

/// Between two frames.
const PAUSE: Duration = Duration::from_micros(3);
