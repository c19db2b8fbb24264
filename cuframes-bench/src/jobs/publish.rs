//! Time of one call that publishes, by how many readers there are and whether they sleep.
//!
//! Those that are awake are all in one process, which spins over them: so there can be more of them than CPUs. Those that
//! sleep are processes of their own.

use std::time::Duration;

use serde_json::Value;

use super::{Note, PATIENCE, Phase, SMALL, Spinning, sleep_read};
use crate::calls::Calls;
use crate::case::Case;
use crate::figures::Figure;
use crate::numbers::{count, now, spin_for};
use crate::stage::{READY, Stage};
use crate::system::{Failure, System, Wait};
use crate::troupe::Post;

pub(crate) fn lead<S: System>(stage: &Stage) -> Result<Vec<Figure>, Failure> {
    let (readers, parked) = readers(stage.brief.case)?;
    let setup = stage.brief.setup(SMALL, readers);
    let mut writer = stage.open::<S>(&setup)?;
    let processes = if parked { readers } else { readers.min(1) };
    let processes = stage.call_all("reader", processes)?;
    S::wait_for_readers(&mut writer, &setup, PATIENCE)?;
    stage.pin()?;

    let pause = if parked {
        // They run one after another where there are few CPUs.
        Duration::from_micros(300 + 50 * count(readers))
    } else {
        Duration::from_micros(2 + count(readers))
    };
    let (warm_up, calls) = match parked {
        true => stage.brief.choose((20, 300), (2, 10)),
        false => stage.brief.choose((500, 5000), (10, 100)),
    };
    let mut times = Calls::new()?;
    for call in 0..warm_up + calls {
        spin_for(pause);
        let start = now();
        S::write(&mut writer, |frame| Note { stamp: call, phase: Phase::Measured }.write(frame))?;
        let end = now();
        if call >= warm_up {
            times.record(start, end);
        }
    }
    S::write(&mut writer, |frame| Note { stamp: 0, phase: Phase::Over }.write(frame))?;
    for process in processes {
        let frames: u64 = process.result()?;
        if frames == 0 {
            return Err("a reader got no frame".into());
        }
    }
    Ok(times.figures("")?.into())
}

pub(crate) fn support<S: System>(post: &mut Post) -> Result<Value, Failure> {
    let (readers, parked) = readers(post.brief.case)?;
    let setup = post.brief.setup(SMALL, readers);
    let frames = if parked {
        let mut reader = S::reader(&setup, post.index)?;
        post.pin()?;
        post.say(READY)?;
        sleep_until_over::<S>(&mut reader)?
    } else {
        let ends: Result<Vec<_>, _> = (0..readers).map(|index| S::reader(&setup, index)).collect();
        let mut ends = ends?;
        post.pin()?;
        post.say(READY)?;
        spin_until_over::<S>(&mut ends)?
    };
    Ok(frames.into())
}

fn sleep_until_over<S: System>(reader: &mut S::Reader) -> Result<u64, Failure> {
    let mut frames = 0;
    while sleep_read::<S, _>(reader, Note::read)?.phase != Phase::Over {
        frames += 1;
    }
    Ok(frames)
}

/// Answers how many frames the reader got that got fewest.
pub(crate) fn spin_until_over<S: System>(ends: &mut [S::Reader]) -> Result<u64, Failure> {
    let mut readers: Vec<_> = ends.iter_mut().map(|end| (end, 0, false)).collect();
    let mut spinning = Spinning::default();
    while readers.iter().any(|(_, _, is_over)| !is_over) {
        let mut is_idle = true;
        for (end, frames, is_over) in &mut readers {
            match S::read(end, Wait::Spin, Note::read)? {
                Some(note) if note.phase == Phase::Over => *is_over = true,
                Some(_) => *frames += 1,
                None => continue,
            }
            is_idle = false;
        }
        if is_idle {
            spinning.go_on()?;
        } else {
            spinning = Spinning::default();
        }
    }
    Ok(readers.into_iter().map(|(_, frames, _)| frames).min().unwrap_or(0))
}

fn readers(case: Case) -> Result<(usize, bool), Failure> {
    match case {
        Case::Publish { readers, parked } => Ok((readers, parked)),
        other => Err(format!("{other} is no case of publish").into()),
    }
}
