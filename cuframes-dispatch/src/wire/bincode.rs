//! [`Writer`] and [`Reader`]: the few types of bincode 2's standard configuration that the messages need.
//!
//! Integers are varints: up to 250 one byte; `fb`, `fc`, `fd` and then 2, 4, 8 bytes little-endian; signed ones zigzag first.
//! A length is never believed beyond what is left of the payload.

use alloc::borrow::ToOwned as _;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// Why a payload can't be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DecodeError {
    /// How many bytes of the payload come before the fault.
    pub offset: usize,
    /// What is wrong there.
    pub problem: Problem,
}

/// What is wrong with a payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Problem {
    /// It ends within a value, or announces more than it has.
    Truncated,
    /// A number of a form that is not for its type, or too large for it.
    Number,
    /// A message, a status or an option of a kind that there is not.
    Variant(u64),
    /// A string that is not UTF-8.
    NotUtf8,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.problem {
            Problem::Truncated => f.write_str("it ends too early")?,
            Problem::Number => f.write_str("a number does not fit its type")?,
            Problem::Variant(variant) => write!(f, "there is no variant {variant}")?,
            Problem::NotUtf8 => f.write_str("a string is not UTF-8")?,
        }
        write!(f, " (byte {})", self.offset)
    }
}

impl core::error::Error for DecodeError {}

/// Appends values.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    pub(crate) bytes: Vec<u8>,
}

impl Writer {
    pub(crate) fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    pub(crate) fn u64(&mut self, value: u64) {
        if let Some(value) = u8::try_from(value).ok().filter(|value| *value <= LAST_BYTE) {
            self.bytes.push(value);
        } else if let Ok(value) = u16::try_from(value) {
            self.bytes.push(TWO);
            self.bytes.extend(value.to_le_bytes());
        } else if let Ok(value) = u32::try_from(value) {
            self.bytes.push(FOUR);
            self.bytes.extend(value.to_le_bytes());
        } else {
            self.bytes.push(EIGHT);
            self.bytes.extend(value.to_le_bytes());
        }
    }

    pub(crate) fn i64(&mut self, value: i64) {
        let doubled = value.cast_unsigned() << 1;
        self.u64(if value < 0 { !doubled } else { doubled });
    }

    pub(crate) fn f64(&mut self, value: f64) {
        self.bytes.extend(value.to_le_bytes());
    }

    pub(crate) fn f32(&mut self, value: f32) {
        self.bytes.extend(value.to_le_bytes());
    }

    pub(crate) fn str(&mut self, value: &str) {
        self.len(value.len());
        self.bytes.extend(value.as_bytes());
    }

    pub(crate) fn len(&mut self, len: usize) {
        self.u64(u64::try_from(len).unwrap_or(u64::MAX));
    }

    pub(crate) fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.u8(value.is_some().into());
        if let Some(value) = value {
            write(self, value);
        }
    }
}

/// Takes values from the front of a payload.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    len: usize,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(payload: &'a [u8]) -> Self {
        Self { len: payload.len(), rest: payload }
    }

    pub(crate) fn u64(&mut self) -> Result<u64, DecodeError> {
        let before = self.fault(Problem::Number);
        let [first] = self.array()?;
        Ok(match first {
            TWO => u16::from_le_bytes(self.array()?).into(),
            FOUR => u32::from_le_bytes(self.array()?).into(),
            EIGHT => u64::from_le_bytes(self.array()?),
            0..=LAST_BYTE => first.into(),
            _ => return Err(before),
        })
    }

    pub(crate) fn i64(&mut self) -> Result<i64, DecodeError> {
        let value = self.u64()?;
        let half = (value >> 1).cast_signed();
        Ok(if value & 1 == 0 { half } else { !half })
    }

    pub(crate) fn f64(&mut self) -> Result<f64, DecodeError> {
        self.array().map(f64::from_le_bytes)
    }

    pub(crate) fn f32(&mut self) -> Result<f32, DecodeError> {
        self.array().map(f32::from_le_bytes)
    }

    pub(crate) fn str(&mut self) -> Result<String, DecodeError> {
        let len = self.len(1)?;
        let start = self.fault(Problem::NotUtf8);
        let bytes = self.take(len)?;
        str::from_utf8(bytes).map(str::to_owned).map_err(|_| start)
    }

    /// How many elements follow, each of which has `each` bytes at least.
    pub(crate) fn len(&mut self, each: usize) -> Result<usize, DecodeError> {
        let start = self.fault(Problem::Truncated);
        let len = usize::try_from(self.u64()?).map_err(|_| start)?;
        if len.checked_mul(each).is_none_or(|bytes| bytes > self.rest.len()) { Err(start) } else { Ok(len) }
    }

    /// How many axes a coordinate has.
    pub(crate) fn axes(&mut self) -> Result<usize, DecodeError> {
        let start = self.fault(Problem::Number);
        let len = self.len(1)?;
        // Each byte of a payload would become eight in memory.
        if len > MAX_AXES { Err(start) } else { Ok(len) }
    }

    /// A variant below `count`, whose number is one of 32 bits.
    pub(crate) fn variant(&mut self, count: u8) -> Result<u8, DecodeError> {
        let start = self.fault(Problem::Number);
        // The form of eight bytes is not one of 32 bits, whatever it holds.
        if self.rest.first() == Some(&EIGHT) {
            return Err(start);
        }
        let value = self.u64()?;
        u8::try_from(value)
            .ok()
            .filter(|variant| *variant < count)
            .ok_or(DecodeError { problem: Problem::Variant(value), ..start })
    }

    pub(crate) fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, DecodeError> {
        let before = self.fault(Problem::Truncated);
        match self.array()? {
            [0] => Ok(None),
            [1] => read(self).map(Some),
            [other] => Err(DecodeError { problem: Problem::Variant(other.into()), ..before }),
        }
    }

    fn fault(&self, problem: Problem) -> DecodeError {
        DecodeError { offset: self.len - self.rest.len(), problem }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or_else(|| self.fault(Problem::Truncated))?;
        self.rest = rest;
        Ok(*bytes)
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or_else(|| self.fault(Problem::Truncated))?;
        self.rest = rest;
        Ok(bytes)
    }
}

/// Axes of a box.
const MAX_AXES: usize = 64;
/// The largest number of one byte.
const LAST_BYTE: u8 = 250;
const TWO: u8 = 0xfb;
const FOUR: u8 = 0xfc;
const EIGHT: u8 = 0xfd;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_the_smallest_form_at_each_border_and_come_back() {
        let cases: [(u64, &[u8]); 5] = [
            (250, &[0xfa]),
            (251, &[0xfb, 0xfb, 0]),
            (65_535, &[0xfb, 0xff, 0xff]),
            (65_536, &[0xfc, 0, 0, 1, 0]),
            (1 << 32, &[0xfd, 0, 0, 0, 0, 1, 0, 0, 0]),
        ];
        for (value, bytes) in cases {
            let mut writer = Writer::default();
            writer.u64(value);
            assert_eq!(writer.bytes, bytes);
            assert_eq!(Reader::new(bytes).u64(), Ok(value));
        }
        let cases: [(i64, &[u8]); 4] = [
            (-1, &[1]),
            (125, &[0xfa]),
            (126, &[0xfb, 0xfc, 0]),
            (i64::MIN, &[0xfd, 255, 255, 255, 255, 255, 255, 255, 255]),
        ];
        for (value, bytes) in cases {
            let mut writer = Writer::default();
            writer.i64(value);
            assert_eq!(writer.bytes, bytes);
            assert_eq!(Reader::new(bytes).i64(), Ok(value));
        }
    }

    #[test]
    fn longer_forms_are_read_and_those_of_other_types_are_not() {
        assert_eq!(Reader::new(&[0xfd, 7, 0, 0, 0, 0, 0, 0, 0]).u64(), Ok(7));
        for first in [0xfe, 0xff] {
            let error = Reader::new(&[first; 20]).u64();
            assert_eq!(error, Err(DecodeError { offset: 0, problem: Problem::Number }));
        }
    }

    #[test]
    fn a_length_beyond_the_payload_is_refused_at_once() {
        let hostile = [0xfd, 0, 0, 0, 0, 0, 1, 0, 0];
        assert_eq!(Reader::new(&hostile).len(1), Err(DecodeError { offset: 0, problem: Problem::Truncated }));
    }
}
