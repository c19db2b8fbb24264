//! What leases and strict waiting cost: the calls of a writer and of one reader, which spins.

use std::time::Duration;

use serde_json::Value;

use super::{Note, PATIENCE, Phase, SMALL, Spinning};
use crate::calls::Calls;
use crate::case::Case;
use crate::figures::Figure;
use crate::numbers::{now, spin_for};
use crate::stage::{Brief, READY, Stage};
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
    let mut times = Calls::new()?;
    for call in 0..warm_up + measured {
        let phase = if call < warm_up { Phase::WarmUp } else { Phase::Measured };
        // The reader has read the frame before.
        spin_for(PAUSE);
        let start = now();
        S::write(&mut writer, |frame| Note { stamp: 0, phase }.write(frame))?;
        let end = now();
        if phase == Phase::Measured {
            times.record(start, end);
        }
    }
    S::write(&mut writer, |frame| Note { stamp: 0, phase: Phase::Over }.write(frame))?;
    let [write, _] = times.figures("write ")?;
    Ok(vec![write, reader.result()?])
}

pub(crate) fn support<S: System>(post: &mut Post) -> Result<Value, Failure> {
    let mut reader = S::reader(&setup(&post.brief)?, post.index)?;
    post.pin()?;
    post.say(READY)?;
    let mut times = Calls::new()?;
    let mut spinning = Spinning::default();
    loop {
        let start = now();
        let Some(note) = S::read(&mut reader, Wait::Spin, Note::read)? else {
            spinning.go_on()?;
            continue;
        };
        let end = now();
        spinning = Spinning::default();
        match note.phase {
            Phase::WarmUp => {}
            Phase::Measured => times.record(start, end),
            Phase::Over => {
                let [read, _] = times.figures("read ")?;
                return Ok(serde_json::to_value(read)?);
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
