//! [`Contender`]: a system with the functions that do each job on it.

use std::fmt;

use serde_json::Value;

use crate::case::Job;
use crate::cuframes::Cuframes;
use crate::figures::Figure;
use crate::jobs::{flow, handshake, policies, publish, spin, wake};
use crate::stage::Stage;
use crate::system::{Failure, System};
use crate::troupe::Post;
use crate::{cuframes, floor};

/// A system to be measured, under its name. Every program that measures has a list of them, the same in all its processes:
/// it is given to [`run_if_asked`](crate::run_if_asked) and to [`run`](crate::run). Ratios are those to the first of the list
/// that does a job.
#[derive(Clone, Copy)]
pub struct Contender {
    name: &'static str,
    part: fn(Job) -> Option<Part>,
}

/// How a job is done on one system.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    /// In the process that measures.
    pub(crate) lead: Lead,
    /// In a process that it starts.
    pub(crate) support: Support,
}

/// Measures, and says what came out.
pub(crate) type Lead = fn(&Stage) -> Result<Vec<Figure>, Failure>;

/// Does its role, and says what it has seen.
pub(crate) type Support = fn(&mut Post) -> Result<Value, Failure>;

impl Contender {
    /// Does the jobs that any system can do: spin, wake, publish, flow, handshake.
    #[must_use]
    pub const fn of<S: System>() -> Self {
        Self { name: S::NAME, part: part::<S> }
    }

    /// cuframes as its users know it: all jobs.
    #[must_use]
    pub const fn cuframes() -> Self {
        let part = |job| match job {
            Job::Death => Some(Part { lead: cuframes::death::lead, support: cuframes::death::support }),
            Job::Policies => {
                Some(Part { lead: policies::lead::<Cuframes>, support: policies::support::<Cuframes> })
            }
            _ => part::<Cuframes>(job),
        };
        Self { name: Cuframes::NAME, part }
    }

    /// What the kernel and the memory take anyway, written by hand for each job, and with nothing that makes it safe or
    /// convenient.
    #[must_use]
    pub const fn floor() -> Self {
        Self { name: floor::NAME, part: floor::part }
    }

    /// Its name in the report.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn part(&self, job: Job) -> Option<Part> {
        (self.part)(job)
    }
}

impl fmt::Debug for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Contender").field(&self.name).finish()
    }
}

fn part<S: System>(job: Job) -> Option<Part> {
    match job {
        Job::Spin => Some(Part { lead: spin::lead::<S>, support: spin::support::<S> }),
        Job::Wake => Some(Part { lead: wake::lead::<S>, support: wake::support::<S> }),
        Job::Publish => Some(Part { lead: publish::lead::<S>, support: publish::support::<S> }),
        Job::Flow => Some(Part { lead: flow::lead::<S>, support: flow::support::<S> }),
        Job::Handshake => Some(Part { lead: handshake::lead::<S>, support: handshake::support::<S> }),
        Job::Death | Job::Policies => None,
    }
}
