//! [`Hello`]: who speaks.

use alloc::string::String;

use super::error::WireError;
use super::reader::{Reader, Writer, writable};

/// The first frame of a worker. There is no answer; silence means that it is accepted.
///
/// What the values may be is for the receiver to check, who knows what it wants: only the layout is checked here.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Hello {
    /// The model.
    pub model_id: u32,
    /// Bits per weight: 2 or 4 in the original.
    pub quant_bits: u32,
    /// The first layer that it has.
    pub layer_start: u32,
    /// The last one.
    pub layer_end: u32,
    /// 1 if it has the output head.
    pub has_output: u32,
    /// 1 if it has a hidden state.
    pub has_hidden: u32,
    /// Tokens of its context.
    pub ctx_size: u32,
    /// Layers of the whole model.
    pub n_layers: u32,
    /// The TCP port where it takes data connections.
    pub listen_port: u32,
    /// At most 127 bytes without NUL; what is more is not sent.
    pub model_name: String,
}

impl Hello {
    pub(super) fn write(&self, out: &mut Writer<'_>) {
        let name = writable(&self.model_name, MAX_NAME);
        for word in [
            self.model_id,
            self.quant_bits,
            self.layer_start,
            self.layer_end,
            self.has_output,
            self.has_hidden,
            self.ctx_size,
            self.n_layers,
            self.listen_port,
        ] {
            out.u32(word);
        }
        out.len(name.len());
        out.bytes(name.as_bytes());
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self {
            model_id: reader.u32("model_id")?,
            quant_bits: reader.u32("quant_bits")?,
            layer_start: reader.u32("layer_start")?,
            layer_end: reader.u32("layer_end")?,
            has_output: reader.u32("has_output")?,
            has_hidden: reader.u32("has_hidden")?,
            ctx_size: reader.u32("ctx_size")?,
            n_layers: reader.u32("n_layers")?,
            listen_port: reader.u32("listen_port")?,
            model_name: {
                let len = reader.u32("model_name_len")?;
                // At most MAX_NAME, since the frame is not longer.
                reader.require(len == reader.left(), "model_name_len", len)?;
                reader.name("model_name", len)?
            },
        })
    }
}

/// Bytes of the longest name.
pub(super) const MAX_NAME: usize = 127;
