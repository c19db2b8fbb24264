//! [`Reader`]: a bounded cursor over one payload, whose errors name the message and the field.

use crate::error::{Problem, Violation};
use crate::number::to_u64;
use crate::wire::MessageType;

/// Reads the fields of one message in order.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    message: MessageType,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(message: MessageType, payload: &'a [u8]) -> Self {
        Self { message, rest: payload }
    }

    pub(crate) fn u32(&mut self, field: &'static str) -> Result<u32, Violation> {
        self.array(field).map(u32::from_le_bytes)
    }

    pub(crate) fn i32(&mut self, field: &'static str) -> Result<i32, Violation> {
        self.array(field).map(i32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self, field: &'static str) -> Result<u64, Violation> {
        self.array(field).map(u64::from_le_bytes)
    }

    pub(crate) fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], Violation> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or_else(|| self.truncated(field, N))?;
        self.rest = rest;
        Ok(*taken)
    }

    /// A text whose length in bytes is the field before it.
    pub(crate) fn text(&mut self, field: &'static str, len: usize) -> Result<&'a str, Violation> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or_else(|| self.truncated(field, len))?;
        self.rest = rest;
        str::from_utf8(taken).map_err(|_| self.violation(field, Problem::NotUtf8))
    }

    /// The bytes that were not read yet.
    pub(crate) const fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// The document fixes the length: leftovers are an error.
    pub(crate) fn finish(self) -> Result<(), Violation> {
        match to_u64(self.rest.len()) {
            0 => Ok(()),
            extra => Err(self.violation("payload", Problem::Trailing { extra })),
        }
    }

    pub(crate) const fn violation(&self, field: &'static str, problem: Problem) -> Violation {
        Violation::new(self.message, field, problem)
    }

    fn truncated(&self, field: &'static str, needed: usize) -> Violation {
        let problem = Problem::Truncated { needed: to_u64(needed), available: to_u64(self.rest.len()) };
        self.violation(field, problem)
    }
}
