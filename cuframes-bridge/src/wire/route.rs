//! [`Route`]: the way of a request through the workers.

use alloc::string::String;
use alloc::vec::Vec;

use super::error::WireError;
use super::reader::{Reader, Writer, writable};

/// The workers that a request passes, and which of them it is sent to. Behind the hops the wire has a record that says where
/// the answer goes: always back on the connection that the request came from.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Route {
    /// Which of the hops this frame is for.
    pub index: u32,
    /// The workers, in the order of their layers.
    pub hops: Vec<Hop>,
}

impl Route {
    pub(super) fn write(&self, out: &mut Writer<'_>) {
        for hop in &self.hops {
            let host = writable(&hop.host, MAX_HOST);
            out.len(host.len());
            for word in [hop.port, hop.layer_start, hop.layer_end, hop.flags] {
                out.u32(word);
            }
            out.bytes(host.as_bytes());
        }
        for word in RETURN {
            out.u32(word);
        }
    }

    /// Reads a route that is everything that is left.
    pub(super) fn read(index: u32, count: u32, mut reader: Reader<'_>) -> Result<Self, WireError> {
        let mut hops = Vec::new();
        for _ in 0..count {
            let host_len = reader.u32("host_len")?;
            let [port, layer_start, layer_end, flags] = [
                reader.u32("port")?,
                reader.u32("layer_start")?,
                reader.u32("layer_end")?,
                reader.u32("flags")?,
            ];
            reader.require((1..=MAX_HOST_LEN).contains(&host_len), "host_len", host_len)?;
            let host = reader.name("host", host_len)?;
            hops.push(Hop { host, port, layer_start, layer_end, flags });
        }
        for (field, expected) in ["return_kind", "return_host_len", "return_port"].into_iter().zip(RETURN) {
            let found = reader.u32(field)?;
            reader.require(found == expected, field, found)?;
        }
        // What follows the return record belongs to nothing.
        let left = reader.left();
        reader.require(left == 0, "route_bytes", left)?;
        Ok(Self { index, hops })
    }
}

/// A worker on the way.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Hop {
    /// Where it listens: 1 to 1024 bytes without NUL. What is more is not sent; that it is not empty is for the caller to see to.
    pub host: String,
    /// Its TCP port.
    pub port: u32,
    /// The first layer that it computes.
    pub layer_start: u32,
    /// The last one.
    pub layer_end: u32,
    /// [`Hop::LOGITS`], or nothing.
    pub flags: u32,
}

impl Hop {
    /// This hop returns logits; only the last one may.
    pub const LOGITS: u32 = 1;
}

/// Kind, length of the host, port: back on the connection it came from.
const RETURN: [u32; 3] = [1, 0, 0];
/// Bytes of the longest host.
const MAX_HOST: usize = 1024;
const MAX_HOST_LEN: u32 = 1024;
