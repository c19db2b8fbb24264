//! ERROR (§3.9): what went wrong, for the other side's log.

use alloc::string::{String, ToString};

use bytes::{BufMut, BytesMut};

use super::hello::put_text;
use super::reader::Reader;
use super::{MessageType, framing};
use crate::error::{ErrorCode, Violation};
use crate::number::to_usize;

/// An error notification; either side closes after it (D-28).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ErrorMessage {
    /// What kind of error.
    pub code: ErrorCode,
    /// In words; treat it as untrusted text when showing it.
    pub message: String,
}

impl ErrorMessage {
    /// Reads a payload.
    ///
    /// # Errors
    /// A field that is missing, a text that is not UTF-8, or bytes too many.
    pub fn decode(payload: &[u8]) -> Result<Self, Violation> {
        let mut reader = Reader::new(MessageType::ERROR, payload);
        let code = ErrorCode(reader.i32("error_code")?);
        let len = to_usize(reader.u32("message_len")?.into());
        let message = reader.text("message", len)?.to_string();
        reader.array::<12>("reserved")?;
        reader.finish()?;
        Ok(Self { code, message })
    }

    /// Appends the whole message; a text that does not fit is cut.
    pub fn encode(&self, out: &mut BytesMut) {
        framing::encode(MessageType::ERROR, out, |out| {
            out.put_i32_le(self.code.0);
            put_text(out, &self.message);
            out.put_bytes(0, 12);
        });
    }
}
