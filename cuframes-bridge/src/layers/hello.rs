//! [`HelloError`]: what a coordinator finds wrong with a worker's HELLO that can be read.

use alloc::string::String;
use core::fmt;

use super::coordinator::CoordinatorConfig;
use crate::wire::Hello;

/// Why a worker is not wanted. The text is sent to it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum HelloError {
    /// Another model.
    Model {
        /// The worker's.
        worker: u32,
        /// The coordinator's.
        coordinator: u32,
    },
    /// A model of another name.
    Name {
        /// The worker's.
        worker: String,
        /// The coordinator's.
        coordinator: String,
    },
    /// A model with another number of layers.
    Layers {
        /// The worker's.
        worker: u32,
        /// The coordinator's.
        coordinator: u32,
    },
    /// Neither 2 nor 4 bits.
    Quant(u32),
    /// Neither 0 nor 1.
    HasOutput(u32),
    /// Neither 0 nor 1.
    HasHidden(u32),
    /// No range of layers of the model.
    Range {
        /// The first layer.
        start: u32,
        /// The last one.
        end: u32,
        /// How many the model has.
        n_layers: u32,
    },
    /// The output head without the last layer.
    Output {
        /// The worker's last layer.
        end: u32,
        /// That of the model.
        last: u32,
    },
    /// A context that is too small.
    Context {
        /// The worker's.
        worker: u32,
        /// The coordinator's.
        coordinator: u32,
    },
    /// No port.
    Port(u32),
}

impl fmt::Display for HelloError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Model { worker, coordinator } => {
                write!(f, "model id mismatch: worker={worker} coordinator={coordinator}")
            }
            Self::Name { worker, coordinator } => {
                let (worker, coordinator) = (worker.escape_debug(), coordinator.escape_debug());
                write!(f, "model name mismatch: worker={worker} coordinator={coordinator}")
            }
            Self::Layers { worker, coordinator } => {
                write!(f, "layer count mismatch: worker={worker} coordinator={coordinator}")
            }
            Self::Quant(bits) => write!(f, "invalid quantization: {bits} bits, not 2 or 4"),
            Self::HasOutput(value) => write!(f, "invalid has_output: {value}, not 0 or 1"),
            Self::HasHidden(value) => write!(f, "invalid has_hidden: {value}, not 0 or 1"),
            Self::Range { start, end, n_layers } => {
                write!(f, "invalid layer range: {start}..{end} of {n_layers} layers")
            }
            Self::Output { end, last } => {
                write!(f, "output head without the last layer: layers up to {end}, the last one is {last}")
            }
            Self::Context { worker, coordinator } => {
                write!(f, "context too small: worker={worker} coordinator={coordinator}")
            }
            Self::Port(port) => write!(f, "invalid data port: {port}"),
        }
    }
}

impl core::error::Error for HelloError {}

/// Checks what a worker says of itself, in the order of §1.3; its layout was checked when it was read.
pub(super) fn check(config: &CoordinatorConfig, hello: &Hello) -> Result<(), HelloError> {
    let require = |holds: bool, error: HelloError| if holds { Ok(()) } else { Err(error) };
    let Hello { model_id, quant_bits, layer_start: start, layer_end: end, n_layers, .. } = *hello;
    let coordinator = config.model_id;
    require(model_id == coordinator, HelloError::Model { worker: model_id, coordinator })?;
    if hello.model_name != config.model_name {
        let (worker, coordinator) = (hello.model_name.clone(), config.model_name.clone());
        return Err(HelloError::Name { worker, coordinator });
    }
    let coordinator = config.n_layers;
    require(n_layers == coordinator, HelloError::Layers { worker: n_layers, coordinator })?;
    require(matches!(quant_bits, 2 | 4), HelloError::Quant(quant_bits))?;
    require(hello.has_output <= 1, HelloError::HasOutput(hello.has_output))?;
    require(hello.has_hidden <= 1, HelloError::HasHidden(hello.has_hidden))?;
    require(start <= end && end < n_layers, HelloError::Range { start, end, n_layers })?;
    let last = n_layers.saturating_sub(1);
    require(hello.has_output == 0 || end == last, HelloError::Output { end, last })?;
    let (worker, coordinator) = (hello.ctx_size, config.ctx_size);
    require(worker >= coordinator, HelloError::Context { worker, coordinator })?;
    let is_port = (1..=u32::from(u16::MAX)).contains(&hello.listen_port);
    require(is_port, HelloError::Port(hello.listen_port))
}
