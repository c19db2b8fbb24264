//! Test doubles, golden vectors and oracles of cuframes. Not published. The README says what each module is.
//!
//! # Example
//!
//! Both ends of a connection, on a clock that only the test moves:
//!
//! ```
//! use cuframes_core::Features;
//! use cuframes_core::session::Session;
//! use cuframes_testkit::pair::Pair;
//!
//! let mut pair = Pair::ready(Features::LEASE);
//! pair.subscriber.session.unsubscribe(pair.now);
//! pair.settle();
//! assert!(pair.publisher.session.is_closed());
//! ```

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a test kit stops the test that misuses it"
)]

#[cfg(not(loom))]
pub mod chaos;
pub mod conformance;
pub mod fickle;
pub mod heap;
pub mod layout;
#[cfg(loom)]
pub mod loom;
pub mod mock_gpu;
pub mod model;
pub mod oracle;
pub mod pair;
pub mod pipe;
pub mod solo;
pub mod step;
pub mod strategies;
pub mod studio;
pub mod vectors;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
