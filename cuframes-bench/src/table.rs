//! The report as text, 80 columns wide.

use std::fmt;

use crate::case::Job;
use crate::report::{Entry, Lapse, Report, Row};

impl fmt::Display for Report {
    /// A table for each job: medians over the rounds with the least and the most, and the ratio to the first contender.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.environment)?;
        write!(f, "medians of {} rounds, and of the ratios within each round", self.rounds)?;
        if self.build == "debug" {
            write!(f, "\nA DEBUG BUILD: THESE FIGURES MEAN NOTHING (use cargo run --release)")?;
        }
        if self.quick {
            write!(f, "\nA QUICK RUN: THESE FIGURES MEAN NOTHING")?;
        }
        for job in Job::ALL {
            let mut rows = self.rows.iter().filter(|row| row.job == job).peekable();
            if rows.peek().is_some() {
                write!(f, "\n\n{job}: {}\n{HEADER}", job.in_words())?;
            }
            for row in rows {
                write_row(f, row)?;
            }
        }
        for Lapse { job, case, system, round, reason } in &self.failures {
            write!(f, "\n\nfailed: {system}, {job} {case}, round {round}: {}", escape(reason))?;
        }
        if self.interrupted {
            write!(f, "\n\ninterrupted: this is what there was until then")?;
        }
        Ok(())
    }
}

fn write_row(f: &mut fmt::Formatter<'_>, row: &Row) -> fmt::Result {
    let mut name = format!("{}, {}", row.case, row.metric);
    for Entry { system, figure, ratio, .. } in &row.systems {
        write!(f, "\n{name:<27} {system:<12}")?;
        match figure {
            None => write!(f, "    failed")?,
            Some(spread) => {
                for value in [spread.median, spread.min, spread.max] {
                    write!(f, " {:>9}", row.unit.show(value).to_string())?;
                }
            }
        }
        if let Some(ratio) = ratio {
            write!(f, " {:>7.2}x", ratio.median)?;
        }
        name.clear();
    }
    Ok(())
}

/// Control characters of a cause must not reach a terminal.
fn escape(text: &str) -> String {
    let escaped = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escaped).collect()
}

const HEADER: &str = "                            system          median       min       max    ratio";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Case;
    use crate::environment::Environment;
    use crate::figures::Figure;
    use crate::report::Outcome;
    use crate::run::Options;

    #[test]
    fn tables_are_80_columns_wide_and_have_a_line_for_every_contender() {
        let outcome = |case, system, result| Outcome { case, system, round: 1, result };
        let outcomes: Vec<_> = Job::ALL
            .into_iter()
            .flat_map(Job::cases)
            .flat_map(|case: Case| {
                ["floor", "ipc-channel"].map(|system| {
                    let figures = match case {
                        Case::Flow { .. } => {
                            [Figure::nanos("CPU/frame at 60/s", 999.4e6), Figure::rate("frames", 99_999.9)]
                        }
                        _ => ["write mean", "p99"].map(|metric| Figure::nanos(metric, 100.0)),
                    };
                    outcome(case, system, Ok(figures.into()))
                })
            })
            .chain([outcome(Case::Spin, "broken", Err("gone\n\u{1b}[2J".into()))])
            .collect();
        let options = Options { rounds: 1, ..Options::default() };
        let mut environment = Environment::look(&[0]);
        environment.cpu = "a CPU".into();
        let text = Report::of(environment, &options, &outcomes, true).to_string();
        let too_long = text.lines().find(|line| line.chars().count() > 80);
        assert_eq!(too_long, None, "{text}");
        let ours = text.lines().filter(|line| line.trim_start().starts_with("ipc-channel"));
        assert_eq!(ours.count(), 2 * Job::ALL.into_iter().flat_map(Job::cases).count());
        assert!(text.contains("failed: broken, spin one way, round 1: gone\\n\\u{1b}[2J"), "{text}");
        assert!(text.contains("broken          failed") && text.ends_with("until then"), "{text}");
    }
}
