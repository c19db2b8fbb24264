//! [`Job`]: what can be measured; [`Case`]: one way to do a job, which gets rows of its own in the report.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A question that is put to every contender.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Job {
    /// How long a frame takes from a process to another, if both spin.
    Spin,
    /// How long a frame takes to a reader that sleeps.
    Wake,
    /// How long the call takes that publishes a frame.
    Publish,
    /// How many video frames a second pass, and what each of them costs.
    Flow,
    /// How long it takes to become a reader.
    Handshake,
    /// How long it takes until the death of a process is noticed.
    Death,
    /// What leases and strict waiting cost.
    Policies,
}

impl Job {
    /// All jobs, in the order of the report.
    pub const ALL: [Self; 7] =
        [Self::Spin, Self::Wake, Self::Publish, Self::Flow, Self::Handshake, Self::Death, Self::Policies];

    /// Its name, in options and in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Spin => "spin",
            Self::Wake => "wake",
            Self::Publish => "publish",
            Self::Flow => "flow",
            Self::Handshake => "handshake",
            Self::Death => "death",
            Self::Policies => "policies",
        }
    }

    /// What it measures, for the head of its table.
    pub(crate) const fn in_words(self) -> &'static str {
        match self {
            Self::Spin => "one-way latency of 64 bytes, both sides spin",
            Self::Wake => "latency of 64 bytes to a reader that sleeps in the kernel",
            Self::Publish => "time of the call that publishes 64 bytes",
            Self::Flow => "every byte of NV12 frames written once, and read by each reader",
            Self::Handshake => "from connecting to being subscribed",
            Self::Death => "from SIGKILL until the other side knows",
            Self::Policies => "calls with one reader that spins",
        }
    }

    pub(crate) fn cases(self) -> Vec<Case> {
        let both = [false, true];
        match self {
            Self::Spin => vec![Case::Spin],
            Self::Wake => vec![Case::Wake],
            Self::Publish => {
                let awake = [0, 1, 8, 31].map(|readers| Case::Publish { readers, parked: false });
                let parked = [1, 8, 31].map(|readers| Case::Publish { readers, parked: true });
                awake.into_iter().chain(parked).collect()
            }
            Self::Flow => [Size::FullHd, Size::UltraHd]
                .into_iter()
                .flat_map(|size| [1, 4, 8].map(|readers| Case::Flow { size, readers }))
                .collect(),
            Self::Handshake => vec![Case::Handshake],
            Self::Death => [Side::Writer, Side::Reader].map(Case::Death).into(),
            Self::Policies => both
                .into_iter()
                .flat_map(|strict| both.map(|leases| Case::Policies { leases, strict }))
                .collect(),
        }
    }
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Job {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|job| job.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name);
            format!("the jobs are {}", names.join(", "))
        })
    }
}

/// One way to do a job.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Case {
    Spin,
    Wake,
    Publish { readers: usize, parked: bool },
    Flow { size: Size, readers: usize },
    Handshake,
    Death(Side),
    Policies { leases: bool, strict: bool },
}

impl Case {
    pub(crate) const fn job(self) -> Job {
        match self {
            Self::Spin => Job::Spin,
            Self::Wake => Job::Wake,
            Self::Publish { .. } => Job::Publish,
            Self::Flow { .. } => Job::Flow,
            Self::Handshake => Job::Handshake,
            Self::Death(_) => Job::Death,
            Self::Policies { .. } => Job::Policies,
        }
    }
}

impl fmt::Display for Case {
    /// Its name among the cases of its job: also in JSON, where it must stay what it is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Spin => f.write_str("one way"),
            Self::Wake => f.write_str("1 parked"),
            Self::Publish { readers, parked } => {
                write!(f, "{readers} {}", if parked { "parked" } else { "awake" })
            }
            Self::Flow { size, readers } => write!(f, "{} x{readers}", size.name()),
            Self::Handshake => f.write_str("connect"),
            Self::Death(Side::Writer) => f.write_str("of the writer"),
            Self::Death(Side::Reader) => f.write_str("of a reader"),
            Self::Policies { leases, strict } => {
                let words = [(leases, "lease"), (strict, "strict")];
                let words: Vec<_> = words.iter().filter(|(on, _)| *on).map(|(_, word)| *word).collect();
                f.write_str(&if words.is_empty() { "neither".into() } else { words.join("+") })
            }
        }
    }
}

/// How large a video is.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Size {
    FullHd,
    UltraHd,
}

impl Size {
    const fn name(self) -> &'static str {
        match self {
            Self::FullHd => "1080p",
            Self::UltraHd => "4K",
        }
    }

    /// Bytes of an NV12 frame.
    pub(crate) const fn frame_bytes(self) -> usize {
        match self {
            Self::FullHd => 1920 * 1080 * 3 / 2,
            Self::UltraHd => 3840 * 2160 * 3 / 2,
        }
    }
}

/// A side of a stream.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Writer,
    Reader,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_have_the_names_that_they_are_asked_for_by_and_an_unknown_one_is_told_which_there_are() {
        for job in Job::ALL {
            assert_eq!(job.name().parse(), Ok(job));
            assert_eq!(serde_json::to_value(job).unwrap(), job.name());
        }
        let error = "spinn".parse::<Job>().unwrap_err();
        assert_eq!(error, "the jobs are spin, wake, publish, flow, handshake, death, policies");
    }

    #[test]
    fn cases_of_a_job_have_different_names() {
        for job in Job::ALL {
            let mut names: Vec<_> = job.cases().iter().map(Case::to_string).collect();
            assert!(job.cases().iter().all(|case| case.job() == job));
            names.sort();
            names.dedup();
            assert_eq!(names.len(), job.cases().len(), "{names:?}");
        }
    }
}
