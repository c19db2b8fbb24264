//! [`Reader`]: takes values from the front of a message and trusts no length in it.

use alloc::borrow::ToOwned as _;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// Why a message can't be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DecodeError {
    /// The field in which it happened, as the wire names it; none outside of any.
    pub field: Option<&'static str>,
    /// How many bytes of the message come before the fault.
    pub offset: usize,
    /// What is wrong there.
    pub problem: Problem,
}

/// What is wrong with a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Problem {
    /// It ends within a value.
    Truncated,
    /// Bytes follow after its end.
    Trailing,
    /// Another type is needed.
    Type {
        /// The type that is needed.
        expected: &'static str,
    },
    /// The byte `c1`, which begins nothing.
    Reserved,
    /// An integer that does not fit.
    Range,
    /// A string that is not UTF-8.
    NotUtf8,
    /// Values within values, more than 32 deep.
    TooDeep,
    /// More than 4096 values.
    TooMany,
    /// A field without a default is not there.
    Missing,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, offset, problem } = self;
        match problem {
            Problem::Truncated => f.write_str("it ends too early")?,
            Problem::Trailing => f.write_str("bytes follow after its end")?,
            Problem::Type { expected } => write!(f, "it has not the type {expected}")?,
            Problem::Reserved => f.write_str("the byte c1 begins no value")?,
            Problem::Range => f.write_str("an integer is too large or too small")?,
            Problem::NotUtf8 => f.write_str("a string is not UTF-8")?,
            Problem::TooDeep => f.write_str("it is nested too deeply")?,
            Problem::TooMany => f.write_str("it has too many values")?,
            Problem::Missing => f.write_str("a field that is needed is missing")?,
        }
        match field {
            Some(field) => write!(f, " (field {field}, byte {offset})"),
            None => write!(f, " (byte {offset})"),
        }
    }
}

impl core::error::Error for DecodeError {}

/// What the next value is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Token<'a> {
    Nil,
    Bool(bool),
    /// An integer of a form without a sign.
    Uint(u64),
    /// An integer of a form with one.
    Int(i64),
    Float(f64),
    Str(&'a [u8]),
    Bin(&'a [u8]),
    Ext(i8, &'a [u8]),
    /// So many values follow.
    Array(usize),
    /// So many pairs of values follow.
    Map(usize),
}

/// Reads one message.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    all: &'a [u8],
    rest: &'a [u8],
    /// Values that may still be read: what a message makes us keep is bounded by this, not only by its length.
    values_left: usize,
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(message: &'a [u8]) -> Self {
        Self { all: message, rest: message, values_left: MAX_VALUES }
    }

    /// Nothing may be left.
    pub(crate) fn finish(&self) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.fault(Problem::Trailing)) }
    }

    pub(crate) fn fault(&self, problem: Problem) -> DecodeError {
        DecodeError { field: None, offset: self.all.len() - self.rest.len(), problem }
    }

    /// The next value, or the header of the next array or map.
    pub(crate) fn token(&mut self) -> Result<Token<'a>, DecodeError> {
        self.values_left = self.values_left.checked_sub(1).ok_or_else(|| self.fault(Problem::TooMany))?;
        let before = self.rest;
        let token = self.read_token();
        if token.is_err() {
            // Faults are told at the beginning of the value.
            self.rest = before;
        }
        token.map_err(|problem| self.fault(problem))
    }

    fn read_token(&mut self) -> Result<Token<'a>, Problem> {
        let [marker] = self.array()?;
        Ok(match marker {
            0x00..=0x7f => Token::Uint(marker.into()),
            0x80..=0x8f => self.items(marker & 0x0f, 2).map(Token::Map)?,
            0x90..=0x9f => self.items(marker & 0x0f, 1).map(Token::Array)?,
            0xa0..=0xbf => Token::Str(self.take(marker & 0x1f)?),
            0xc0 => Token::Nil,
            0xc1 => return Err(Problem::Reserved),
            0xc2 | 0xc3 => Token::Bool(marker == 0xc3),
            0xc4..=0xc6 => {
                let len = self.uint(1 << (marker - 0xc4))?;
                Token::Bin(self.take(len)?)
            }
            0xc7..=0xc9 => {
                let len = self.uint(1 << (marker - 0xc7))?;
                self.ext(len)?
            }
            0xca => Token::Float(f32::from_be_bytes(self.array()?).into()),
            0xcb => Token::Float(f64::from_be_bytes(self.array()?)),
            0xcc..=0xcf => Token::Uint(self.uint(1 << (marker - 0xcc))?),
            0xd0 => Token::Int(i8::from_be_bytes(self.array()?).into()),
            0xd1 => Token::Int(i16::from_be_bytes(self.array()?).into()),
            0xd2 => Token::Int(i32::from_be_bytes(self.array()?).into()),
            0xd3 => Token::Int(i64::from_be_bytes(self.array()?)),
            0xd4..=0xd8 => self.ext(1_u64 << (marker - 0xd4))?,
            0xd9..=0xdb => {
                let len = self.uint(1 << (marker - 0xd9))?;
                Token::Str(self.take(len)?)
            }
            0xdc | 0xdd => {
                let len = self.uint(2 << (marker - 0xdc))?;
                self.items(len, 1).map(Token::Array)?
            }
            0xde | 0xdf => {
                let len = self.uint(2 << (marker - 0xde))?;
                self.items(len, 2).map(Token::Map)?
            }
            0xe0..=0xff => Token::Int(i8::from_be_bytes([marker]).into()),
        })
    }

    /// Reads over one value of any kind. Strings in it must be some, as in the original.
    pub(crate) fn skip(&mut self) -> Result<(), DecodeError> {
        let mut left = 1_usize;
        while let Some(rest) = left.checked_sub(1) {
            let start = self.fault(Problem::NotUtf8);
            left = rest
                + match self.token()? {
                    Token::Array(len) => len,
                    Token::Map(len) => 2 * len,
                    Token::Str(bytes) => str::from_utf8(bytes).map_or(Err(start), |_| Ok(0))?,
                    _ => 0,
                };
        }
        Ok(())
    }

    pub(crate) fn str(&mut self) -> Result<&'a str, DecodeError> {
        let start = self.fault(Problem::Type { expected: "str" });
        let Token::Str(bytes) = self.token()? else { return Err(start) };
        str::from_utf8(bytes).map_err(|_| DecodeError { problem: Problem::NotUtf8, ..start })
    }

    pub(crate) fn map(&mut self) -> Result<usize, DecodeError> {
        let start = self.fault(Problem::Type { expected: "map" });
        let Token::Map(len) = self.token()? else { return Err(start) };
        Ok(len)
    }

    /// `None` if the next value is nil, which is taken then.
    pub(crate) fn unless_nil(&mut self) -> Option<&mut Self> {
        match self.rest {
            [0xc0, rest @ ..] => {
                self.rest = rest;
                None
            }
            _ => Some(self),
        }
    }

    /// A number of elements, `each` of them that many values: each value is one byte at least.
    fn items(&self, len: impl Into<u64>, each: u64) -> Result<usize, Problem> {
        let len = len.into();
        let available = u64::try_from(self.rest.len()).unwrap_or(u64::MAX);
        if len.saturating_mul(each) > available {
            return Err(Problem::Truncated);
        }
        usize::try_from(len).map_err(|_| Problem::Truncated)
    }

    fn ext(&mut self, len: u64) -> Result<Token<'a>, Problem> {
        let kind = i8::from_be_bytes(self.array()?);
        Ok(Token::Ext(kind, self.take(len)?))
    }

    /// An unsigned integer of 1, 2, 4 or 8 bytes.
    fn uint(&mut self, size: usize) -> Result<u64, Problem> {
        let (bytes, rest) = self.rest.split_at_checked(size).ok_or(Problem::Truncated)?;
        self.rest = rest;
        Ok(bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Problem> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(Problem::Truncated)?;
        self.rest = rest;
        Ok(*bytes)
    }

    fn take(&mut self, len: impl Into<u64>) -> Result<&'a [u8], Problem> {
        let len = usize::try_from(len.into()).map_err(|_| Problem::Truncated)?;
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(Problem::Truncated)?;
        self.rest = rest;
        Ok(bytes)
    }
}

/// A type that a field of a message can have.
pub(crate) trait Wire: Sized {
    fn write(&self, writer: &mut super::Writer);

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError>;
}

impl Wire for bool {
    fn write(&self, writer: &mut super::Writer) {
        writer.bool(*self);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let start = reader.fault(Problem::Type { expected: "bool" });
        let Token::Bool(value) = reader.token()? else { return Err(start) };
        Ok(value)
    }
}

impl Wire for i64 {
    fn write(&self, writer: &mut super::Writer) {
        writer.int(*self);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let start = reader.fault(Problem::Type { expected: "int" });
        match reader.token()? {
            Token::Int(value) => Ok(value),
            Token::Uint(value) => {
                Self::try_from(value).map_err(|_| DecodeError { problem: Problem::Range, ..start })
            }
            _ => Err(start),
        }
    }
}

impl Wire for f64 {
    fn write(&self, writer: &mut super::Writer) {
        writer.float(*self);
    }

    /// An integer is fine, too.
    #[expect(
        clippy::as_conversions,
        reason = "the nearest float is what is wanted, and there is no other way"
    )]
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let start = reader.fault(Problem::Type { expected: "float" });
        match reader.token()? {
            Token::Float(value) => Ok(value),
            Token::Int(value) => Ok(value as Self),
            Token::Uint(value) => Ok(value as Self),
            _ => Err(start),
        }
    }
}

impl Wire for String {
    fn write(&self, writer: &mut super::Writer) {
        writer.str(self);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.str().map(str::to_owned)
    }
}

/// `None` is nil.
impl<T: Wire> Wire for Option<T> {
    fn write(&self, writer: &mut super::Writer) {
        match self {
            Some(value) => value.write(writer),
            None => writer.nil(),
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.unless_nil().map(T::read).transpose()
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn write(&self, writer: &mut super::Writer) {
        writer.array(self.len());
        for item in self {
            item.write(writer);
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let start = reader.fault(Problem::Type { expected: "array" });
        let Token::Array(len) = reader.token()? else { return Err(start) };
        // Not reserved: how many come is known when they are there.
        (0..len).map(|_| T::read(reader)).collect()
    }
}

/// Values in one message: whatever is nested in it, it does not make us keep more.
const MAX_VALUES: usize = 4096;
