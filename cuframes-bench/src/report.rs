//! [`Report`]: what a measurement came to. Its JSON is described in `docs/performance.md`; the names of its fields stay.

use serde::Serialize;

use crate::case::{Case, Job};
use crate::environment::Environment;
use crate::figures::{Figure, Unit};
use crate::run::Options;
use crate::stats::{Counts, Spread, ratios};

/// All figures of a measurement.
#[derive(Serialize, Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The version of this form of report.
    pub version: u32,
    /// `release`, or `debug`, whose figures mean nothing.
    pub build: &'static str,
    /// Whether it was to be over soon: then figures mean nothing, too.
    pub quick: bool,
    /// How many rounds were asked for.
    pub rounds: u32,
    /// Whether it was ended before all of them were over.
    pub interrupted: bool,
    /// Where it was measured.
    pub environment: Environment,
    /// One for each figure.
    pub rows: Vec<Row>,
    /// What went wrong.
    pub failures: Vec<Lapse>,
    #[serde(skip)]
    pub(crate) curves: Vec<Curve>,
}

/// A figure of all contenders.
#[derive(Serialize, Clone, Debug)]
#[non_exhaustive]
pub struct Row {
    /// The job.
    pub job: Job,
    /// The case of the job.
    pub case: String,
    /// Which of the figures of the case.
    pub metric: String,
    /// What it counts.
    pub unit: Unit,
    /// Whether more is better.
    pub more_is_better: bool,
    /// What each contender came to.
    pub systems: Vec<Entry>,
}

/// A figure of one contender.
#[derive(Serialize, Clone, Debug)]
#[non_exhaustive]
pub struct Entry {
    /// The contender's name.
    pub system: String,
    /// Over all rounds; `None` if it failed in all of them.
    pub figure: Option<Spread>,
    /// In each round; `None` where it failed.
    pub rounds: Vec<Option<f64>>,
    /// The ratios, within each round, to the first contender of this row; `None` for that one itself.
    pub ratio: Option<Spread>,
}

/// A contender's failure.
#[derive(Serialize, Clone, Debug)]
#[non_exhaustive]
pub struct Lapse {
    /// The job.
    pub job: Job,
    /// The case of the job.
    pub case: String,
    /// The contender's name.
    pub system: String,
    /// The round, from 1.
    pub round: u32,
    /// Why.
    pub reason: String,
}

/// The times of one contender in a job, of all rounds together.
#[derive(Clone, Debug)]
pub(crate) struct Curve {
    pub(crate) job: Job,
    pub(crate) system: String,
    pub(crate) counts: Vec<Counts>,
}

/// How a cell went.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) case: Case,
    pub(crate) system: &'static str,
    pub(crate) round: u32,
    pub(crate) result: Result<Vec<Figure>, String>,
}

impl Report {
    pub(crate) fn of(
        environment: Environment,
        options: &Options,
        outcomes: &[Outcome],
        interrupted: bool,
    ) -> Self {
        let failures = outcomes.iter().filter_map(|outcome| {
            let Outcome { case, system, round, result } = outcome;
            let reason = result.as_ref().err()?.clone();
            let (job, case, system) = (case.job(), case.to_string(), (*system).into());
            Some(Lapse { job, case, system, round: *round, reason })
        });
        let curves = [Job::Spin, Job::Wake].into_iter().flat_map(|job| {
            let of_job = move || outcomes.iter().filter(move |outcome| outcome.case.job() == job);
            let systems = distinct(of_job().map(|outcome| outcome.system));
            systems.into_iter().map(move |system| {
                let figures = of_job().filter(|outcome| outcome.system == system).flat_map(Outcome::figures);
                let counts = figures.filter_map(|figure| figure.counts.clone()).collect();
                Curve { job, system: system.into(), counts }
            })
        });
        Self {
            version: 1,
            build: if cfg!(debug_assertions) { "debug" } else { "release" },
            quick: options.quick,
            rounds: options.rounds,
            interrupted,
            environment,
            rows: rows(outcomes, options.rounds),
            failures: failures.collect(),
            curves: curves.collect(),
        }
    }

    /// Whether everything was measured, and no contender has failed.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.failures.is_empty() && !self.interrupted
    }

    /// The report as a JSON object on one line.
    ///
    /// # Errors
    /// Never, as far as we know.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }
}

impl Outcome {
    fn figures(&self) -> &[Figure] {
        self.result.as_deref().unwrap_or_default()
    }
}

/// A row for each figure, in the order in which they came.
fn rows(outcomes: &[Outcome], rounds: u32) -> Vec<Row> {
    let kinds = outcomes.iter().flat_map(|outcome| {
        outcome.figures().iter().map(|figure| (outcome.case, &*figure.metric, figure.unit))
    });
    let row = |(case, metric, unit): (Case, &str, Unit)| {
        let of_case = || outcomes.iter().filter(move |outcome| outcome.case == case);
        let value = |system: &str, round: u32| {
            let mut of_cell = of_case().filter(|outcome| outcome.system == system && outcome.round == round);
            let figure = of_cell.next()?.figures().iter().find(|figure| figure.metric == metric)?;
            Some(figure.value)
        };
        let systems = distinct(of_case().map(|outcome| outcome.system));
        let mut base: Option<Vec<Option<f64>>> = None;
        let entry = |system: &str| {
            let rounds: Vec<_> = (1..=rounds).map(|round| value(system, round)).collect();
            let ratio = base.as_ref().and_then(|base| ratios(&rounds, base));
            base.get_or_insert_with(|| rounds.clone());
            let figure = Spread::of(rounds.iter().copied().flatten());
            Entry { system: system.into(), figure, rounds, ratio }
        };
        Row {
            job: case.job(),
            case: case.to_string(),
            metric: metric.into(),
            unit,
            more_is_better: unit == Unit::PerSecond,
            systems: systems.into_iter().map(entry).collect(),
        }
    };
    distinct(kinds).into_iter().map(row).collect()
}

/// Each once, in the order of their first appearance.
fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    all.fold(Vec::new(), |mut distinct, one| {
        if !distinct.contains(&one) {
            distinct.push(one);
        }
        distinct
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Side;

    fn outcome(case: Case, system: &'static str, round: u32, value: Option<f64>) -> Outcome {
        let result = value.map(|value| vec![Figure::nanos("p50", value)]).ok_or_else(|| "it broke".into());
        Outcome { case, system, round, result }
    }

    #[test]
    fn a_row_has_every_contender_of_its_case_and_ratios_to_the_first() {
        let outcomes = [
            outcome(Case::Spin, "floor", 1, Some(10.0)),
            outcome(Case::Spin, "ours", 1, Some(20.0)),
            outcome(Case::Death(Side::Writer), "ours", 1, Some(7.0)),
            outcome(Case::Spin, "floor", 2, Some(100.0)),
            outcome(Case::Spin, "ours", 2, None),
            outcome(Case::Spin, "floor", 3, Some(30.0)),
            outcome(Case::Spin, "ours", 3, Some(90.0)),
        ];
        let options = Options { rounds: 3, ..Options::default() };
        let report = Report::of(Environment::look(&[0]), &options, &outcomes, false);
        assert!(!report.is_complete());
        assert_eq!(
            (report.failures.len(), report.failures[0].round, &*report.failures[0].reason),
            (1, 2, "it broke")
        );
        assert_eq!(
            report.rows.iter().map(|row| &*row.case).collect::<Vec<_>>(),
            ["one way", "of the writer"]
        );
        let [floor, ours] = &report.rows[0].systems[..] else { panic!("{report:?}") };
        assert_eq!((floor.figure.unwrap().median, floor.ratio), (30.0, None));
        assert_eq!(ours.rounds, [Some(20.0), None, Some(90.0)]);
        assert_eq!((ours.figure.unwrap().median, ours.ratio.unwrap().median), (55.0, 2.5));
    }

    #[test]
    fn a_contender_that_always_fails_has_no_figure() {
        let outcomes = [outcome(Case::Wake, "floor", 1, Some(1.0)), outcome(Case::Wake, "ours", 1, None)];
        let options = Options { rounds: 1, ..Options::default() };
        let report = Report::of(Environment::look(&[0]), &options, &outcomes, false);
        let ours = &report.rows[0].systems[1];
        assert_eq!((&*ours.system, ours.figure, ours.ratio), ("ours", None, None));
    }
}
