//! SUBSCRIBE_REQ (§3.5), SUBSCRIBE_RESP (§3.6), UNSUBSCRIBE (D-10).

use bytes::{BufMut, BytesMut};

use super::MessageType;
use super::framing;
use super::hello::read_result;
use super::reader::Reader;
use crate::config::SubscriberBit;
use crate::error::{ErrorCode, Problem, Violation};

/// Asks for a subscriber slot (§3.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubscribeReq {
    /// The version once more, as a double check.
    pub proto_version: u32,
}

impl SubscribeReq {
    /// Reads a payload.
    ///
    /// # Errors
    /// A field that is missing, or bytes too many.
    pub fn decode(payload: &[u8]) -> Result<Self, Violation> {
        let mut reader = Reader::new(MessageType::SUBSCRIBE_REQ, payload);
        let proto_version = reader.u32("proto_version")?;
        reader.array::<12>("reserved")?;
        reader.finish()?;
        Ok(Self { proto_version })
    }

    /// Appends the whole message.
    pub fn encode(&self, out: &mut BytesMut) {
        framing::encode(MessageType::SUBSCRIBE_REQ, out, |out| {
            out.put_u32_le(self.proto_version);
            out.put_bytes(0, 12);
        });
    }
}

/// The publisher's answer to SUBSCRIBE_REQ (§3.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SubscribeResp {
    /// The subscriber is in.
    Ok(Subscribed),
    /// It is not (D-27).
    Refused(ErrorCode),
}

/// What a subscriber was assigned (§3.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Subscribed {
    /// Its bit.
    pub bit: SubscriberBit,
    /// The newest frame at that moment: reading starts there.
    pub initial_seq: InitialSeq,
}

/// `initial_seq`, which the document gives 4 bytes and a 64-bit type (D-2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum InitialSeq {
    /// All 64 bits, as we send it.
    Full(u64),
    /// The low 32 bits only, from a publisher that sends four bytes.
    Low(u32),
}

impl InitialSeq {
    /// The number, given `global_seq` as the region shows it: a short one gets the high half from there (D-33).
    #[must_use]
    pub const fn resolve(self, global_seq: u64) -> u64 {
        match self {
            Self::Full(seq) => seq,
            Self::Low(low) => {
                // The newest number at the time of the answer is not newer than the newest one now.
                #[expect(clippy::as_conversions, reason = "widens; `From` is not const")]
                let seq = global_seq & !0xFFFF_FFFF | low as u64;
                if seq > global_seq { seq.saturating_sub(1 << 32) } else { seq }
            }
        }
    }
}

impl SubscribeResp {
    /// Reads a payload: 28 bytes, or 24 with a short `initial_seq`; a refusal may end anywhere after its result.
    ///
    /// # Errors
    /// A field that is missing or not allowed, or bytes too many.
    pub fn decode(payload: &[u8]) -> Result<Self, Violation> {
        let mut reader = Reader::new(MessageType::SUBSCRIBE_RESP, payload);
        if let Some(code) = read_result(&mut reader)? {
            return Ok(Self::Refused(code));
        }
        let bit = reader.u32("assigned_bit")?.into();
        let bit = SubscriberBit::new(bit)
            .ok_or_else(|| reader.violation("assigned_bit", Problem::Value { value: bit }))?;
        let initial_seq = if reader.remaining() == SHORT_SEQ_LEN + RESERVED_LEN {
            InitialSeq::Low(reader.u32("initial_seq")?)
        } else {
            InitialSeq::Full(reader.u64("initial_seq")?)
        };
        reader.array::<RESERVED_LEN>("reserved")?;
        reader.finish()?;
        Ok(Self::Ok(Subscribed { bit, initial_seq }))
    }

    /// Appends the whole message.
    pub fn encode(&self, out: &mut BytesMut) {
        framing::encode(MessageType::SUBSCRIBE_RESP, out, |out| match *self {
            Self::Ok(Subscribed { bit, initial_seq }) => {
                out.put_i32_le(ErrorCode::OK.0);
                out.put_u32_le(bit.get().into());
                match initial_seq {
                    InitialSeq::Full(seq) => out.put_u64_le(seq),
                    InitialSeq::Low(seq) => out.put_u32_le(seq),
                }
                out.put_bytes(0, RESERVED_LEN);
            }
            Self::Refused(code) => {
                out.put_i32_le(code.0);
                out.put_bytes(0, 24);
            }
        });
    }
}

/// The subscriber leaves: it holds no lease and won't touch the region again (D-10).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unsubscribe;

impl Unsubscribe {
    /// Appends the whole message. There is nothing to read: a payload is ignored (D-10).
    pub fn encode(self, out: &mut BytesMut) {
        framing::encode(MessageType::UNSUBSCRIBE, out, |_| {});
    }
}

const SHORT_SEQ_LEN: usize = 4;
const RESERVED_LEN: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_initial_seq_gets_the_high_half_of_global_seq() {
        assert_eq!(InitialSeq::Low(41).resolve(45), 41);
        assert_eq!(InitialSeq::Low(41).resolve(0x7_0000_0040), 0x7_0000_0029);
        // global_seq went past a multiple of 2^32 since.
        assert_eq!(InitialSeq::Low(0xFFFF_FFFE).resolve(0x7_0000_0001), 0x6_FFFF_FFFE);
        assert_eq!(InitialSeq::Full(41).resolve(0x7_0000_0040), 41);
    }
}
