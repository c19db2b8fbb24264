//! What must hold for every input: each function here reads arbitrary bytes as things to do, does them, and panics if
//! something does not hold. They are the fuzz targets, run as property tests too, and replay the corpora of `fuzz/`.

mod blocks;
mod blocks_seeds;
mod bridge;
mod bridge_machine;
mod bridge_machine_seeds;
mod bridge_seeds;
mod bridge_stream;
mod framing;
mod hello;
mod region;
mod ring;
pub mod seeds;
mod session;
mod start;
mod start_seeds;

pub use blocks::{blocks_frame, blocks_server};
pub use bridge::bridge_frame;
pub use bridge_machine::bridge_machine;
pub use bridge_stream::{bridge_receiver, bridge_sender};
pub use framing::framing;
pub use hello::hello_resp;
pub use region::region_header;
pub use ring::ring_script;
pub use session::{publisher, subscriber};
pub use start::{start_frontend, start_message, zmtp};

use cuframes_core::wire::meta::FrameMeta;

/// A fuzz target: its name, and what it does with an input.
pub type Target = (&'static str, fn(&[u8]));

/// Every fuzz target.
pub const TARGETS: [Target; 15] = [
    ("blocks_frame", blocks_frame),
    ("blocks_server", blocks_server),
    ("bridge_frame", bridge_frame),
    ("bridge_machine", bridge_machine),
    ("bridge_receiver", bridge_receiver),
    ("bridge_sender", bridge_sender),
    ("framing", framing),
    ("hello_resp", hello_resp),
    ("region_header", region_header),
    ("ring_script", ring_script),
    ("session_publisher", publisher),
    ("session_subscriber", subscriber),
    ("start_frontend", start_frontend),
    ("start_message", start_message),
    ("zmtp", zmtp),
];

/// Fuzz data as choices. A script that is over reads as zeros.
struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    fn next(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn byte(&mut self) -> u8 {
        self.next().unwrap_or(0)
    }

    fn take(&mut self, n: u8) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(self.0.len().min(n.into()));
        self.0 = rest;
        taken
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// Any number, the interesting ones in few bytes.
    fn word(&mut self) -> u64 {
        match self.byte() {
            255 => u64::MAX,
            254 => u64::MAX - 1,
            253 => u64::from_le_bytes([(); 8].map(|()| self.byte())),
            252 => u64::from(u32::MAX),
            251 => 1 << (self.byte() % 64),
            250 => u64::from(self.u16()),
            small => small.into(),
        }
    }
}

/// A geometry that was found valid: planes that lie in the frame one after the other, with rows that do not overlap.
fn check_geometry(meta: &FrameMeta) {
    assert_eq!(meta.validate(), Ok(()));
    assert_eq!(FrameMeta::from_bytes(&meta.to_bytes()), *meta);
    let mut free = 0;
    for plane in meta.planes() {
        assert!(plane.rows > 0 && plane.row_bytes > 0 && plane.row_bytes <= plane.pitch);
        assert!(u128::from(plane.offset) >= free, "planes overlap");
        let last_row = u128::from(plane.offset) + u128::from(plane.pitch) * u128::from(plane.rows - 1);
        free = last_row + u128::from(plane.row_bytes);
    }
    assert!((1..=u128::from(meta.frame_size_bytes)).contains(&free), "a plane leaves the frame");
}
