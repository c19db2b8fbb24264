//! The floors: for each job the least that any system would have to do, written by hand.

mod death;
mod flow;
mod handshake;
mod ring;
mod socket;
mod spin;

use crate::case::{Case, Job};
use crate::contender::Part;
use crate::figures::Figure;
use crate::floor::ring::{Bells, Silent};
use crate::jobs::{publish, wake};
use crate::stage::Stage;
use crate::system::Failure;
use crate::troupe::Post;

pub(crate) const NAME: &str = "floor";

pub(crate) fn part(job: Job) -> Option<Part> {
    match job {
        Job::Spin => Some(Part { lead: spin::lead, support: spin::support }),
        Job::Wake => Some(Part { lead: wake::lead::<Bells>, support: wake::support::<Bells> }),
        Job::Publish => Some(Part { lead: lead_publish, support: support_publish }),
        Job::Flow => Some(Part { lead: flow::lead, support: flow::support }),
        Job::Handshake => Some(Part { lead: handshake::lead, support: handshake::support }),
        Job::Death => Some(Part { lead: death::lead, support: death::support }),
        Job::Policies => None,
    }
}

/// Whoever sleeps is woken, and nobody else.
fn lead_publish(stage: &Stage) -> Result<Vec<Figure>, Failure> {
    match stage.brief.case {
        Case::Publish { parked: true, .. } => publish::lead::<Bells>(stage),
        _ => publish::lead::<Silent>(stage),
    }
}

fn support_publish(post: &mut Post) -> Result<serde_json::Value, Failure> {
    match post.brief.case {
        Case::Publish { parked: true, .. } => publish::support::<Bells>(post),
        _ => publish::support::<Silent>(post),
    }
}
