//! Measures cuframes against the floor, and against other ways to hand frames from process to process.
//!
//! What each job measures, and how to read the figures, is in `docs/performance.md`. A program that measures calls
//! [`run_if_asked`] first, because it is started again for every process that takes part:
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! use cuframes_bench::{Contender, Options, run, run_if_asked};
//!
//! fn main() -> ExitCode {
//!     let contenders = [Contender::floor(), Contender::cuframes()];
//!     if let Some(code) = run_if_asked(&contenders) {
//!         return code;
//!     }
//!     match run(&contenders, &Options::default()) {
//!         Ok(report) => {
//!             println!("{report}");
//!             if report.is_complete() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
//!         }
//!         Err(failure) => {
//!             eprintln!("{failure}");
//!             ExitCode::FAILURE
//!         }
//!     }
//! }
//! ```
//!
//! A system of your own implements [`System`](system::System), and takes part as [`Contender::of`] it.

mod calls;
mod case;
mod contender;
mod cuframes;
mod environment;
mod figures;
mod floor;
mod jobs;
mod numbers;
mod pin;
mod plot;
mod report;
mod run;
mod shared;
mod stage;
mod stats;
pub mod system;
mod table;
mod troupe;

pub use case::Job;
pub use contender::Contender;
pub use environment::Environment;
pub use figures::Unit;
pub use plot::check_plot;
pub use report::{Entry, Lapse, Report, Row};
pub use run::{Options, Step, Watch, run, run_if_asked, run_watched};
pub use stats::Spread;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
