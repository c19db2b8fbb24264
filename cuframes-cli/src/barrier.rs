//! `cuframes barrier`, and the barrier of a publisher and of a subscriber: starting together.

use std::fmt;
use std::time::Instant;

use cuframes_mio::barrier::{
    Barrier, BarrierBuilder, BarrierError, Fault, FrontendEvent, Init, Join, ParticipantEvent,
    Progress as Reached, Registered,
};
use cuframes_mio::net::Endpoint;
use serde::Serialize;

use crate::args::{BarrierArgs, BarrierJoinArgs, BarrierSide, BarrierWaitArgs};
use crate::console::Console;
use crate::error::{Failure, failed};
use crate::output::{self, Count, REFRESH};
use crate::signals::Signals;

pub(crate) fn run(args: &BarrierArgs, signals: &Signals, console: &Console) -> Result<(), Failure> {
    match &args.side {
        BarrierSide::Wait(args) => wait(args, signals, console),
        BarrierSide::Join(args) => join(args, signals, console),
    }
}

/// Who is in and who is missing, while it is being waited.
#[derive(Serialize)]
pub(crate) struct Waiting {
    here: usize,
    expected: usize,
    missing: Vec<Missing>,
}

#[derive(Serialize)]
struct Missing {
    index: u16,
    progress: String,
}

impl Waiting {
    fn at(barrier: &Barrier) -> Self {
        let expected = barrier.frontend().progress().count();
        let missing = barrier.frontend().progress().filter(|(_, reached)| *reached != Reached::Registered);
        let missing: Vec<_> =
            missing.map(|(index, reached)| Missing { index, progress: reached.to_string() }).collect();
        Self { here: expected - missing.len(), expected, missing }
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { here, expected, missing } = self;
        write!(f, "start: {here} of {expected} in")?;
        for (n, Missing { index, progress }) in missing.iter().take(SHOWN).enumerate() {
            write!(f, "{} {index} ({progress})", if n == 0 { ", missing" } else { "," })?;
        }
        match missing.len().checked_sub(SHOWN) {
            None | Some(0) => Ok(()),
            Some(more) => write!(f, " and {more} more"),
        }
    }
}

/// Listens, and says who else may if that is so.
pub(crate) fn listen(builder: BarrierBuilder, say: impl Fn(&str)) -> Result<Barrier, Failure> {
    let barrier = builder.listen().map_err(|error| failed!("{error}"))?;
    if !barrier.endpoint().is_local() {
        say(&format!(
            "cuframes: start at {}: there is no authentication; whoever can connect can join, or make it fail",
            barrier.endpoint()
        ));
    }
    Ok(barrier)
}

/// Waits until all are there. `None` if a signal came first; the participants are told.
pub(crate) fn wait_for_all(
    barrier: &mut Barrier,
    signals: &Signals,
    mut show: impl FnMut(Instant, Waiting) -> Result<(), Failure>,
) -> Result<Option<Vec<Registered>>, Failure> {
    let failure = |error: BarrierError| failed!("{error}");
    loop {
        if signals.raised() {
            barrier.cancel(SIGNAL).map_err(failure)?;
            barrier.finish().map_err(failure)?;
            return Ok(None);
        }
        show(Instant::now(), Waiting::at(barrier))?;
        match barrier.next_event(Some(REFRESH)).map_err(failure)? {
            Some(FrontendEvent::Started(participants)) => {
                barrier.finish().map_err(failure)?;
                return Ok(Some(participants));
            }
            Some(FrontendEvent::Failed(fault)) => {
                barrier.finish().map_err(failure)?;
                let hint = match fault {
                    Fault::Timeout { .. } => "end the others and start again, with those who are missing",
                    _ => "end the others, correct this one, and start again",
                };
                let failed = BarrierError::Failed { endpoint: barrier.endpoint().clone(), fault };
                return Err(failed!("{failed}; {hint}"));
            }
            _ => {}
        }
    }
}

/// How the start went: the object that `--json` prints.
#[derive(Serialize)]
struct Started {
    end: Way,
    participants: Vec<Present>,
    /// Nobody, if it has started.
    missing: Vec<Missing>,
}

/// How waiting for the others has ended.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
enum Way {
    Started,
    Signal,
    Failure,
}

impl Way {
    const fn of<T>(result: &Result<Option<T>, Failure>) -> Self {
        match result {
            Ok(Some(_)) => Self::Started,
            Ok(None) => Self::Signal,
            Err(_) => Self::Failure,
        }
    }
}

#[derive(Serialize)]
struct Present {
    index: u16,
    name: String,
    frames: i64,
}

impl fmt::Display for Started {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "started: {}", Count(self.participants.len(), "participant"))?;
        for (n, Present { index, name, .. }) in self.participants.iter().enumerate() {
            write!(f, "{} {index}", if n == 0 { ":" } else { "," })?;
            if !name.is_empty() {
                write!(f, " ({})", name.escape_debug())?;
            }
        }
        Ok(())
    }
}

fn wait(args: &BarrierWaitArgs, signals: &Signals, console: &Console) -> Result<(), Failure> {
    let mut progress = output::Line::new(console);
    let mut barrier = listen(args.builder(), |text| console.say(text))?;
    let mut missing = Vec::new();
    let outcome = wait_for_all(&mut barrier, signals, |now, waiting| {
        progress.show(now, &waiting);
        missing = waiting.missing;
        Ok(())
    });
    let end = Way::of(&outcome);
    if end == Way::Started {
        missing.clear();
    }
    let present = |Registered { index, registration, .. }| Present {
        index,
        name: registration.instance_id,
        frames: registration.max_num_seqs,
    };
    let (participants, failure) = match outcome {
        Ok(Some(participants)) => (participants.into_iter().map(present).collect(), None),
        Ok(None) => (Vec::new(), Some(interrupted(barrier.endpoint()))),
        Err(failure) => (Vec::new(), Some(failure)),
    };
    tell(&Started { end, participants, missing }, failure, args.json, signals, console)
}

/// Reports, and then fails if it did not start. Words are for a start alone: the failure has its own.
fn tell<R: Serialize + fmt::Display>(
    report: &R,
    failure: Option<Failure>,
    as_json: bool,
    signals: &Signals,
    console: &Console,
) -> Result<(), Failure> {
    match (as_json, &failure) {
        (true, _) => console.print(&output::json(report)?, signals)?,
        (false, None) => console.print(&report.to_string(), signals)?,
        (false, Some(_)) => {}
    }
    failure.map_or(Ok(()), Err)
}

#[derive(Serialize)]
struct Joined {
    end: Way,
    index: u16,
    stream: Option<String>,
    /// Whether the other side said that everybody is there.
    confirmed: bool,
}

impl fmt::Display for Joined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "participant {} is in", self.index)?;
        if let Some(stream) = &self.stream {
            write!(f, ", stream {}", stream.escape_debug())?;
        }
        f.write_str(if self.confirmed {
            ": everybody is there"
        } else {
            ": the other side does not say who else is"
        })
    }
}

fn join(args: &BarrierJoinArgs, signals: &Signals, console: &Console) -> Result<(), Failure> {
    let mut line = output::Line::new(console);
    let mut join = args.builder()?.start().map_err(|error| failed!("{error}"))?;
    let mut show = |now, join: &Join| {
        if let Some(stage) = join.participant().stage() {
            line.show(now, &format!("participant {}: waiting for {stage}", args.place.index));
        }
    };
    let mut stream = None;
    let outcome = wait_init(&mut join, signals, &mut show).and_then(|init| {
        let Some(init) = init else { return Ok(None) };
        stream = init.stream().map(str::to_string);
        join.ready(&init).map_err(|error| match error {
            BarrierError::UnknownSize { .. } => failed!("{error} with --of"),
            error => failed!("{error}"),
        })?;
        wait_start(&mut join, signals, &mut show)
    });
    let end = Way::of(&outcome);
    let (confirmed, failure) = match outcome {
        Ok(Some(confirmed)) => (confirmed, None),
        Ok(None) => (false, Some(interrupted(&args.endpoint))),
        Err(failure) => (false, Some(failure)),
    };
    let joined = Joined { end, index: args.place.index, stream, confirmed };
    tell(&joined, failure, args.json, signals, console)
}

/// That a signal came first. Exit code 0 is for a start alone: whoever runs something `&&` after it relies on that.
fn interrupted(endpoint: &Endpoint) -> Failure {
    failed!("the start at {endpoint} was called off: a signal ended this; start again")
}

/// Waits for INIT. `None` if a signal came first.
pub(crate) fn wait_init(
    join: &mut Join,
    signals: &Signals,
    show: &mut impl FnMut(Instant, &Join),
) -> Result<Option<Init>, Failure> {
    wait_for(join, signals, show, |event| match event {
        ParticipantEvent::Init(init) => Some(init),
        _ => None,
    })
}

/// Waits until all are there, and says whether the other side has said so. `None` if a signal came first.
pub(crate) fn wait_start(
    join: &mut Join,
    signals: &Signals,
    show: &mut impl FnMut(Instant, &Join),
) -> Result<Option<bool>, Failure> {
    wait_for(join, signals, show, |event| match event {
        ParticipantEvent::Started { confirmed } => Some(confirmed),
        _ => None,
    })
}

fn wait_for<T>(
    join: &mut Join,
    signals: &Signals,
    show: &mut impl FnMut(Instant, &Join),
    mut wanted: impl FnMut(ParticipantEvent) -> Option<T>,
) -> Result<Option<T>, Failure> {
    loop {
        if signals.raised() {
            join.cancel(SIGNAL).map_err(|error| failed!("{error}"))?;
            return Ok(None);
        }
        show(Instant::now(), join);
        match join.next_event(Some(REFRESH)).map_err(|error| failed!("{error}"))? {
            Some(ParticipantEvent::Failed(error)) => return Err(failed!("{}", join.not_joined(error))),
            Some(event) => {
                if let Some(found) = wanted(event) {
                    return Ok(Some(found));
                }
            }
            None => {}
        }
    }
}

/// Participants that are missing, of which the line tells.
const SHOWN: usize = 4;
/// Why a start is called off, as the others hear it.
pub(crate) const SIGNAL: &str = "it was ended by a signal";
