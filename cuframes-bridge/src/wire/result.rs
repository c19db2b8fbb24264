//! [`WorkResult`]: the answer to a request.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::activation::Width;
use super::error::WireError;
use super::header::FrameType;
use super::reader::{Reader, Writer, to_u32};

/// The answer to a [`Work`](super::Work). Answers come in the order of the requests.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct WorkResult {
    /// The number of the request.
    pub request: u64,
    /// Hash of all tokens that are processed now; 0 in an error.
    pub result_hash: u64,
    /// 0 is success; anything else is an error, whose text is the payload.
    pub status: u32,
    /// What the payload is.
    pub kind: ResultKind,
    /// Bits of one value of the payload, see [`Width`].
    pub payload_bits: u32,
    /// Where the time went: one record of each worker, the last one's first.
    pub telemetry: Vec<Telemetry>,
    /// What was computed, or the text of an error.
    pub payload: Vec<u8>,
}

impl WorkResult {
    /// The answer to a request that failed, with status 1.
    #[must_use]
    pub fn failed(request: u64, text: &str) -> Self {
        Self { request, status: 1, payload: text.as_bytes().to_vec(), ..Self::default() }
    }

    /// The text of an error; `None` in a success. What is not UTF-8 is replaced.
    #[must_use]
    pub fn error(&self) -> Option<String> {
        (self.status != 0).then(|| String::from_utf8_lossy(&self.payload).into_owned())
    }

    /// Checks that status, kind, width and payload agree.
    ///
    /// # Errors
    /// The first field that is not as it must be.
    pub fn check(&self) -> Result<(), WireError> {
        let require = |holds: bool, field, value: u64| {
            if holds { Ok(()) } else { Err(WireError::Field { kind: FrameType::RESULT, field, value }) }
        };
        let bytes = to_u32(self.payload.len());
        if self.status != 0 {
            require(self.result_hash == 0, "result_hash", self.result_hash)?;
            require(self.kind == ResultKind::ACK, "result_kind", self.kind.0.into())?;
            return require(self.payload_bits == 0, "payload_bits", self.payload_bits.into());
        }
        match self.kind {
            ResultKind::ACK => {
                require(bytes == 0, "payload_bytes", bytes.into())?;
                require(self.payload_bits == 0, "payload_bits", self.payload_bits.into())
            }
            ResultKind::HIDDEN | ResultKind::LOGITS => {
                let width = Width::from_bits(self.payload_bits);
                let allowed = width.filter(|width| self.kind == ResultKind::HIDDEN || *width == Width::F32);
                require(allowed.is_some(), "payload_bits", self.payload_bits.into())?;
                let each = allowed.map_or(1, Width::bytes);
                require(self.payload.len().checked_rem(each) == Some(0), "payload_bytes", bytes.into())
            }
            ResultKind(other) => require(false, "result_kind", other.into()),
        }
    }

    pub(super) fn write(&self, out: &mut Writer<'_>) {
        out.u64(self.request);
        out.u64(self.result_hash);
        out.u32(self.status);
        out.u32(self.kind.0);
        out.len(self.telemetry.len());
        out.len(self.telemetry.len().saturating_mul(Telemetry::BYTES));
        out.len(self.payload.len());
        out.u32(self.payload_bits);
        self.telemetry.iter().for_each(|record| record.write(out));
        out.bytes(&self.payload);
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let request = reader.u64("request")?;
        let result_hash = reader.u64("result_hash")?;
        let status = reader.u32("status")?;
        let kind = ResultKind(reader.u32("result_kind")?);
        let count = reader.u32("telemetry_count")?;
        let telemetry_bytes = reader.u32("telemetry_bytes")?;
        let payload_bytes = reader.u32("payload_bytes")?;
        let payload_bits = reader.u32("payload_bits")?;

        let expected = count.checked_mul(to_u32(Telemetry::BYTES));
        reader.require(expected == Some(telemetry_bytes), "telemetry_bytes", telemetry_bytes)?;
        reader.require(telemetry_bytes <= reader.left(), "telemetry_bytes", telemetry_bytes)?;
        let left = reader.left().saturating_sub(telemetry_bytes);
        reader.require(payload_bytes == left, "payload_bytes", payload_bytes)?;
        let telemetry = (0..count).map(|_| Telemetry::read(reader)).collect::<Result<_, _>>()?;
        let payload = reader.take("payload", payload_bytes)?.to_vec();
        Ok(Self { request, result_hash, status, kind, payload_bits, telemetry, payload })
    }
}

/// What the payload of a result is. Unknown values survive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ResultKind(pub u32);

impl ResultKind {
    /// Nothing.
    pub const ACK: Self = Self(0);
    /// The hidden state behind the last layer.
    pub const HIDDEN: Self = Self(1);
    /// Logits, always of 32 bits.
    pub const LOGITS: Self = Self(2);
}

impl fmt::Display for ResultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::ACK => f.pad("ack"),
            Self::HIDDEN => f.pad("hidden"),
            Self::LOGITS => f.pad("logits"),
            Self(other) => write!(f, "{other}"),
        }
    }
}

/// Where the time of a request went at one worker.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Telemetry {
    /// The first layer that it computed.
    pub layer_start: u32,
    /// The last one.
    pub layer_end: u32,
    /// Which hop it is.
    pub route_index: u32,
    /// How many tokens came before.
    pub pos0: u32,
    /// How many it processed.
    pub n_tokens: u32,
    /// Microseconds of computing.
    pub eval_usec: u32,
    /// Microseconds of waiting for the next worker's answer.
    pub downstream_wait_usec: u32,
    /// Microseconds of sending to the next worker.
    pub forward_send_usec: u32,
    /// Bytes of activations that came.
    pub input_bytes: u32,
    /// Bytes that went on.
    pub output_bytes: u32,
}

impl Telemetry {
    /// Bytes of one record.
    const BYTES: usize = 40;

    fn write(&self, out: &mut Writer<'_>) {
        for word in [
            self.layer_start,
            self.layer_end,
            self.route_index,
            self.pos0,
            self.n_tokens,
            self.eval_usec,
            self.downstream_wait_usec,
            self.forward_send_usec,
            self.input_bytes,
            self.output_bytes,
        ] {
            out.u32(word);
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self {
            layer_start: reader.u32("telemetry layer_start")?,
            layer_end: reader.u32("telemetry layer_end")?,
            route_index: reader.u32("telemetry route_index")?,
            pos0: reader.u32("telemetry pos0")?,
            n_tokens: reader.u32("telemetry n_tokens")?,
            eval_usec: reader.u32("telemetry eval_usec")?,
            downstream_wait_usec: reader.u32("telemetry downstream_wait_usec")?,
            forward_send_usec: reader.u32("telemetry forward_send_usec")?,
            input_bytes: reader.u32("telemetry input_bytes")?,
            output_bytes: reader.u32("telemetry output_bytes")?,
        })
    }
}
