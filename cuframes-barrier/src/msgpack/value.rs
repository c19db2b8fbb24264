//! [`Value`] and [`Dict`]: fields that may hold anything.

use alloc::borrow::ToOwned as _;
use alloc::string::String;
use alloc::vec::Vec;

use super::reader::{DecodeError, Problem, Reader, Token, Wire};
use super::writer::Writer;

/// Any msgpack value.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Value {
    /// Nothing.
    Nil,
    /// A boolean.
    Bool(bool),
    /// An integer below 2^63.
    Int(i64),
    /// An integer from 2^63 on.
    Uint(u64),
    /// A float.
    Float(f64),
    /// A string.
    Str(String),
    /// Binary data.
    Bin(Vec<u8>),
    /// A list.
    Array(Vec<Self>),
    /// Pairs, in the order of the wire.
    Map(Vec<(Self, Self)>),
    /// An extension of this type.
    Ext(i8, Vec<u8>),
}

impl Value {
    /// The string that it is.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Str(value) => Some(value),
            _ => None,
        }
    }

    /// The integer that it is.
    #[must_use]
    pub const fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// Reads a value that may have `depth` levels.
    fn read_within(reader: &mut Reader<'_>, depth: usize) -> Result<Self, DecodeError> {
        let start = reader.fault(Problem::TooDeep);
        let deeper = || depth.checked_sub(1).ok_or(start);
        Ok(match reader.token()? {
            Token::Nil => Self::Nil,
            Token::Bool(value) => Self::Bool(value),
            Token::Int(value) => Self::Int(value),
            Token::Uint(value) => i64::try_from(value).map_or(Self::Uint(value), Self::Int),
            Token::Float(value) => Self::Float(value),
            Token::Str(bytes) => {
                let text =
                    str::from_utf8(bytes).map_err(|_| DecodeError { problem: Problem::NotUtf8, ..start })?;
                Self::Str(text.to_owned())
            }
            Token::Bin(bytes) => Self::Bin(bytes.to_owned()),
            Token::Ext(kind, bytes) => Self::Ext(kind, bytes.to_owned()),
            Token::Array(len) => {
                let depth = deeper()?;
                Self::Array((0..len).map(|_| Self::read_within(reader, depth)).collect::<Result<_, _>>()?)
            }
            Token::Map(len) => Self::Map(read_pairs(reader, len, deeper()?)?),
        })
    }
}

impl Wire for Value {
    fn write(&self, writer: &mut Writer) {
        match self {
            Self::Nil => writer.nil(),
            Self::Bool(value) => writer.bool(*value),
            Self::Int(value) => writer.int(*value),
            Self::Uint(value) => writer.uint(*value),
            Self::Float(value) => writer.float(*value),
            Self::Str(value) => writer.str(value),
            Self::Bin(value) => writer.bin(value),
            Self::Ext(kind, value) => writer.ext(*kind, value),
            Self::Array(values) => values.write(writer),
            Self::Map(pairs) => write_pairs(writer, pairs),
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Self::read_within(reader, MAX_DEPTH)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Str(value.to_owned())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Str(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

/// A map of values, in the order of the wire.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Dict(Vec<(Value, Value)>);

impl Dict {
    /// An empty one.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// The value of a key; the last one, if the key is there more than once.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.iter().rev().find(|(name, _)| name.as_str() == Some(key)).map(|(_, value)| value)
    }

    /// Appends a pair.
    pub fn push(&mut self, key: &str, value: impl Into<Value>) {
        self.0.push((key.into(), value.into()));
    }

    /// The pairs.
    #[must_use]
    pub fn pairs(&self) -> &[(Value, Value)] {
        &self.0
    }
}

impl Wire for Dict {
    fn write(&self, writer: &mut Writer) {
        write_pairs(writer, &self.0);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let len = reader.map()?;
        read_pairs(reader, len, MAX_DEPTH).map(Self)
    }
}

fn write_pairs(writer: &mut Writer, pairs: &[(Value, Value)]) {
    writer.map(pairs.len());
    for (key, value) in pairs {
        key.write(writer);
        value.write(writer);
    }
}

fn read_pairs(reader: &mut Reader<'_>, len: usize, depth: usize) -> Result<Vec<(Value, Value)>, DecodeError> {
    (0..len).map(|_| Ok((Value::read_within(reader, depth)?, Value::read_within(reader, depth)?))).collect()
}

/// Values within values.
const MAX_DEPTH: usize = 32;
