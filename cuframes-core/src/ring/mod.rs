//! The ring (§5): one writer, up to 31 readers, 1 to 16 slots, no lock.
//!
//! # Invariants
//!
//! - **I1** `global_seq` only grows, and is stored after the slot that it names is complete.
//! - **I2** A frame's bytes, `pts_ns` and `written_bytes` change only while its slot's `seq` is invalid (D-4).
//! - **I3** A frame is not overwritten while a live subscriber holds a lease of it.
//! - **I4** Under STRICT_WAIT a frame is not overwritten before every required subscriber is done with it (D-5, D-6). Nothing
//!   is required of one with NO_ACK.
//! - **I5** What a subscriber says in `last_seen_seq` only grows while its bit is assigned, whatever order frames are
//!   released in; what somebody else wrote there it replaces by what it said.
//! - **I6** A subscriber that parked is named by the next commit; a writer that parked is woken by the next
//!   acknowledgement or release, and by whoever lets a subscriber join or go.
//! - **I7** The writer believes nothing that it can know itself (D-23): its position, the membership and every deadline
//!   live in its own memory. What a subscriber writes can delay or release only frames in its own name. With a witness
//!   a reader believes no number that the writer did not write, and asks nobody else whose its bit is.
//! - **I8** Frames are published in the order in which they were claimed, whichever is complete first, and no slot is claimed
//!   twice at a time.
//!
//! # Synchronization points
//!
//! Both ends of each carry `SYNC POINT: name` in the code.
//!
//! | name | store side | load side | keeps |
//! |---|---|---|---|
//! | publish | writer: `global_seq` Release | reader: `global_seq` Acquire | I1 |
//! | slot-validity | writer: `seq` invalid, fence, data, `seq` Release | reader: `seq` Acquire, data, fence, `seq` again | I2 |
//! | slot-validity, of the witness | the same, with a Release fence | the same, whatever the region says | I7 |
//! | lease | reader: lease bit, SeqCst fence, `seq` | writer: `seq` invalid, SeqCst fence, lease bits | I3 |
//! | release | reader: lease bit cleared, Release | writer: lease bits Acquire | I3 |
//! | ack | reader: `last_seen_seq` or ack bit, Release | writer: the same, Acquire | I4 |
//! | join | roster: active bit, SeqCst fence, newest | writer: newest, SeqCst fence, active bits | I4 |
//! | seat | roster: `term`, then `state` 2 Release | reader: `state` Acquire, then `term` | D-19 |
//! | wake-up | reader: `parked`, SeqCst fence, `global_seq` | writer: `global_seq`, SeqCst fence, `parked` | I6 |
//! | publisher-wake-up | writer: `publisher_parked`, SeqCst fence, claim | reader: ack or release, SeqCst fence, `publisher_parked` | I6 |
//! | shutdown | roster: `shutdown_flag` Release, after the last commit | reader: `shutdown_flag` Acquire, then `global_seq` | D-30 |

mod backlog;
mod claim;
mod frame;
mod members;
mod reader;
mod seat;
mod seq;
mod stall;
mod writer;

pub use claim::{Claim, Committed, Ticket};
pub use frame::{Frame, FrameLost};
pub use members::{Accusation, Members};
pub use reader::RingReader;
pub use seat::{Outside, Seat, Standing, Testimony};
pub use seq::Seq;
pub use stall::{ClaimAsError, StallClock, Stalled};
pub use writer::RingWriter;
