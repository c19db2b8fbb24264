//! Starting together: [`Barrier`] waits until N participants are there, [`Join`] is one of them.
//!
//! The publisher binds the barrier, then everybody joins, and subscribes between INIT and READY: so the first frame goes out
//! when everybody can see it. Participants need not be ours: the wire is that of `cuframes-barrier`, which is TokenSpeed's and
//! vLLM's.
//!
//! ```
//! use std::time::Duration;
//!
//! use cuframes_mio::barrier::{Barrier, Join};
//! use cuframes_mio::core::{Format, FrameMeta, Key};
//! use cuframes_mio::net::Endpoint;
//! use cuframes_mio::{Publisher, Subscriber};
//!
//! # let dir = tempfile::tempdir()?;
//! # let run_dir = dir.path().to_path_buf();
//! # let endpoint = Endpoint::Ipc(run_dir.join("start"));
//! # let key: Key = format!("doc-start-{}", std::process::id()).parse()?;
//! # let (at, name, publisher_dir) = (endpoint.clone(), key.clone(), run_dir.clone());
//! // Usually another process.
//! let detector = std::thread::spawn(move || {
//!     let subscriber = Subscriber::builder(key).run_dir(run_dir);
//!     let mut subscriber = Join::builder(endpoint, 0).timeout(Duration::from_secs(10)).subscribe(subscriber)?;
//!     Ok::<_, Box<dyn std::error::Error + Send + Sync>>(subscriber.next(Duration::from_secs(10))?.map(|frame| frame.seq()))
//! });
//!
//! let publisher = Publisher::builder(name, FrameMeta::new(Format::GRAY8, 64, 48)?).run_dir(publisher_dir).create()?;
//! let barrier = Barrier::builder(at, 1).timeout(Duration::from_secs(10));
//! let mut publisher = barrier.serve(publisher, |event| println!("{event:?}"))?;
//! publisher.claim()?.commit(); // everybody sees this one
//! assert!(matches!(detector.join(), Ok(Ok(Some(1)))));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod frontend;
mod join;

use std::{fmt, io};

use cuframes_barrier::ConfigError;

use crate::error::Error;
use crate::net::{Endpoint, EndpointError, NetError};

pub use cuframes_barrier::message::{Init, Registration};
pub use cuframes_barrier::{
    Fault, Frontend, FrontendEvent, JoinError, JoinStage, Participant, ParticipantEvent, Progress,
    Registered, Stage,
};
pub use frontend::{Barrier, BarrierBuilder};
pub use join::{Join, JoinBuilder};

/// Why a start did not come about.
#[derive(Debug)]
#[non_exhaustive]
pub enum BarrierError {
    /// One of its sockets can't be made.
    Net(NetError),
    /// An address that means every interface: participants can't be told to connect to it.
    Unspecified {
        /// The address.
        endpoint: Endpoint,
    },
    /// Settings that no start can be made with.
    Config(ConfigError),
    /// More participants than connections can be kept for.
    TooMany {
        /// How many were to be waited for.
        count: u16,
        /// How many may be.
        max: u16,
    },
    /// The start failed, for everybody.
    Failed {
        /// Where the participants were awaited.
        endpoint: Endpoint,
        /// Why.
        fault: Fault,
    },
    /// A participant did not get in.
    NotJoined {
        /// Where the frontend was expected.
        endpoint: Endpoint,
        /// The index of the participant.
        index: u16,
        /// Why.
        error: JoinError,
        /// Where it could not connect in the end, and why.
        trouble: Option<(Endpoint, io::Error)>,
    },
    /// The frontend named an address to which this can't connect: it is told so.
    Address {
        /// Where the frontend is.
        endpoint: Endpoint,
        /// What is wrong with it.
        error: EndpointError,
    },
    /// The frontend does not say how many participants there are, and neither did the caller.
    UnknownSize {
        /// Where the frontend is.
        endpoint: Endpoint,
    },
    /// The barrier is that of another stream.
    OtherStream {
        /// Where the frontend is.
        endpoint: Endpoint,
        /// Its stream.
        theirs: String,
        /// The stream that was to be subscribed to.
        ours: String,
    },
    /// The stream itself.
    Stream(Error),
    /// The event loop.
    System(io::Error),
}

impl fmt::Display for BarrierError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Net(error) => error.fmt(f),
            Self::Unspecified { endpoint } => write!(
                f,
                "can't wait at {endpoint}: participants are told where to connect, so name the address of one interface"
            ),
            Self::Config(error) => error.fmt(f),
            Self::TooMany { count, max } => {
                write!(f, "can't wait for {count} participants: {max} may be; start them in groups")
            }
            Self::Failed { endpoint, fault } => write!(f, "the start at {endpoint} failed: {fault}"),
            Self::NotJoined { endpoint, index, error, trouble } => {
                write!(f, "participant {index} did not get in at {endpoint}: {error}")?;
                match trouble {
                    Some((at, error)) => write!(f, " ({at}: {error})"),
                    // No attempt failed: it is connected, or its packets get lost.
                    None if matches!(error, JoinError::Timeout { stage: JoinStage::Connect, .. }) => {
                        f.write_str(" (nothing there answers: is it a frontend?)")
                    }
                    None => Ok(()),
                }
            }
            Self::Address { endpoint, error } => write!(f, "the INIT of the frontend at {endpoint}: {error}"),
            Self::UnknownSize { endpoint } => write!(
                f,
                "the frontend at {endpoint} does not say how many participants there are: give the number"
            ),
            Self::OtherStream { endpoint, theirs, ours } => {
                write!(
                    f,
                    "the start at {endpoint} is that of stream {theirs}, not of {ours}: use its address"
                )
            }
            Self::Stream(error) => error.fmt(f),
            Self::System(error) => write!(f, "the event loop of the barrier failed: {error}"),
        }
    }
}

impl std::error::Error for BarrierError {}

impl From<NetError> for BarrierError {
    fn from(error: NetError) -> Self {
        Self::Net(error)
    }
}

impl From<Error> for BarrierError {
    fn from(error: Error) -> Self {
        Self::Stream(error)
    }
}

/// Keys in INIT's `parallel_config`, beside those of the original.
mod keys {
    /// N, under the name that vLLM gives it.
    pub(super) const SIZE: &str = "data_parallel_size";
    pub(super) const FIRST_INDEX: &str = "first_index";
}
