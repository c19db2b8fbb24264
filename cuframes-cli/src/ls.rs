//! `cuframes ls`: which streams there are.

use std::path::Path;
use std::time::{Duration, Instant};

use comfy_table::{CellAlignment, Table, presets};
use cuframes_mio::Observer;
use serde::Serialize;

use crate::args::LsArgs;
use crate::console::Console;
use crate::error::{Failure, failed};
use crate::output;
use crate::signals::Signals;
use crate::survey::{Facts, Look, run_dirs};

#[derive(Serialize)]
struct Report {
    streams: Vec<Facts>,
    /// Directories that could not be looked at.
    troubles: Vec<String>,
}

/// Looks twice, and says what there is.
pub(crate) fn run(
    args: &LsArgs,
    run_dir: Option<&Path>,
    signals: &Signals,
    console: &Console,
) -> Result<(), Failure> {
    let observer = Observer::new(run_dir);
    let look = || {
        let (sightings, troubles) = observer.streams();
        let at = Instant::now();
        (sightings.into_iter().map(|sighting| Look::new(None, at, sighting)).collect::<Vec<_>>(), troubles)
    };
    let (earlier, _) = look();
    if !earlier.is_empty() {
        signals.wait(args.window);
    }
    let (later, troubles) = look();
    let facts = later.iter().map(|look| {
        let before = earlier.iter().find(|earlier| earlier.sighting.key == look.sighting.key);
        Facts::of(before, look)
    });
    let troubles = troubles.iter().map(ToString::to_string).collect();
    let report = Report { streams: facts.collect(), troubles };
    if args.json {
        console.print(&output::json(&report)?, signals)?;
    } else if report.streams.is_empty() {
        console.say(&format!("no streams in {}, and none in /dev/shm", run_dirs(&observer)));
    } else {
        console.print(&table(&report.streams), signals)?;
        for facts in &report.streams {
            if let Some(problem) = &facts.problem {
                console.say(&format!("{}: {problem}", facts.key));
            }
        }
    }
    match &report.troubles[..] {
        [] => Ok(()),
        troubles => Err(failed!("{}", troubles.join("; "))),
    }
}

fn table(streams: &[Facts]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header([
        "KEY",
        "STATE",
        "FORMAT",
        "SIZE",
        "RING",
        "POLICY",
        "BACKEND",
        "FPS",
        "SUBS",
        "NEWEST",
        "PUBLISHER",
        "AGE",
    ]);
    for facts in streams {
        let dash = || "-".to_string();
        let size = facts.width.zip(facts.height).map(|(width, height)| format!("{width}x{height}"));
        let publisher = facts.publisher_pid.map(|pid| match &facts.publisher_name {
            Some(name) => format!("{pid} {name}"),
            None => pid.to_string(),
        });
        table.add_row([
            facts.key.to_string(),
            facts.state.name().to_string(),
            facts.format.clone().unwrap_or_else(dash),
            size.unwrap_or_else(dash),
            facts.ring_size.map_or_else(dash, |n| n.to_string()),
            facts.policy.clone().unwrap_or_else(dash),
            facts.backend.clone().unwrap_or_else(dash),
            facts.fps.map_or_else(dash, |fps| format!("{fps:.1}")),
            facts.subscribers.map_or_else(dash, |n| n.to_string()),
            facts.newest.map_or_else(dash, |n| n.to_string()),
            publisher.unwrap_or_else(dash),
            facts.age_s.map_or_else(dash, |age| short(Duration::from_secs_f64(age))),
        ]);
    }
    for number in ["RING", "FPS", "SUBS", "NEWEST", "AGE"] {
        let index = table.header().and_then(|row| row.cell_iter().position(|cell| cell.content() == number));
        if let Some(column) = index.and_then(|index| table.column_mut(index)) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    lines(&table)
}

/// A table's lines, without the space around them.
pub(crate) fn lines(table: &Table) -> String {
    let text = table.trim_fmt();
    let lines: Vec<_> = text.lines().map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
    lines.join("\n")
}

/// A time in its two largest units, such as `3m 20s`.
pub(crate) fn short(time: Duration) -> String {
    let secs = time.as_secs();
    let (minutes, hours, days) = (secs / 60, secs / 3600, secs / 86_400);
    match secs {
        0..60 => format!("{secs}s"),
        60..3600 => format!("{minutes}m {}s", secs % 60),
        3600..86_400 => format!("{hours}h {}m", minutes % 60),
        _ => format!("{days}d {}h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_its_two_largest_units() {
        let times = [0, 59, 61, 3660, 90_000].map(|secs| short(Duration::from_secs(secs)));
        assert_eq!(times, ["0s", "59s", "1m 1s", "1h 1m", "1d 1h"]);
    }
}
