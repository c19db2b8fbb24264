//! The subset of msgpack that the handshake needs, with the choices of Python's `msgspec`: the smallest form of an integer,
//! a string, an array and a map, every float as float64.

mod reader;
mod value;
mod writer;

pub use reader::{DecodeError, Problem};
pub use value::{Dict, Value};

pub(crate) use reader::{Reader, Wire};
pub(crate) use writer::Writer;
