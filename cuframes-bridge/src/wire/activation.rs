//! [`Width`]: how activations lie on the wire. They are little-endian there, unlike all else: hosts send what they have in
//! memory, and nothing on the wire says so.

use alloc::vec::Vec;

/// Bits of one activation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Width {
    /// `f32` as it is.
    F32,
    /// bfloat16, rounded to the nearest, half to even. (Older versions of the original and its forks have IEEE half
    /// precision under the same number of bits.)
    BF16,
    /// A sign, four bits of exponent with bias 7, three of mantissa, rounded to the nearest, half away from zero. 240 is the
    /// largest, also for what is infinite or no number.
    F8,
}

impl Width {
    /// The width of so many bits; 0 means 32.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Option<Self> {
        match bits {
            0 | 32 => Some(Self::F32),
            16 => Some(Self::BF16),
            8 => Some(Self::F8),
            _ => None,
        }
    }

    /// Bits of one activation.
    #[must_use]
    pub const fn bits(self) -> u32 {
        match self {
            Self::F32 => 32,
            Self::BF16 => 16,
            Self::F8 => 8,
        }
    }

    /// Bytes of one activation.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::BF16 => 2,
            Self::F8 => 1,
        }
    }

    /// Appends activations.
    pub fn encode(self, values: &[f32], out: &mut Vec<u8>) {
        out.reserve(self.bytes().saturating_mul(values.len()));
        match self {
            Self::F32 => out.extend(values.iter().flat_map(|value| value.to_le_bytes())),
            Self::BF16 => out.extend(values.iter().flat_map(|value| to_bf16(*value).to_le_bytes())),
            Self::F8 => out.extend(values.iter().map(|value| to_f8(*value))),
        }
    }

    /// The activations in these bytes. Bytes at the end that make no whole one are not looked at.
    #[must_use]
    pub fn decode(self, bytes: &[u8]) -> Vec<f32> {
        match self {
            Self::F32 => bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
            Self::BF16 => {
                bytes.as_chunks().0.iter().map(|bytes| from_bf16(u16::from_le_bytes(*bytes))).collect()
            }
            Self::F8 => bytes.iter().map(|byte| from_f8(*byte)).collect(),
        }
    }
}

fn to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    // Rounding could make an infinity or a zero of what is no number.
    let rounded = if value.is_nan() { bits | QUIET } else { bits.wrapping_add(0x7fff + (bits >> 16 & 1)) };
    let [upper, lower, ..] = rounded.to_be_bytes();
    u16::from_be_bytes([upper, lower])
}

fn from_bf16(value: u16) -> f32 {
    f32::from_bits(u32::from(value) << 16)
}

fn to_f8(value: f32) -> u8 {
    let sign = if value.is_sign_negative() { 0x80 } else { 0 };
    let value = value.abs();
    // What is no number is not less than anything.
    let rest = if value < F8_MIN_NORMAL {
        // The original's sum, with its rounding. Just below the border it would be eight steps.
        floor(value * 512.0 + 0.5).min(7)
    } else if value < F8_MAX {
        // A mantissa that is rounded up to the next power of two carries into the exponent, whose bias becomes 7.
        ((value.to_bits() + 0x8_0000) >> 20) - (120 << 3)
    } else {
        0x77
    };
    sign | u8::try_from(rest).unwrap_or(0x77)
}

fn from_f8(value: u8) -> f32 {
    let (exponent, mantissa) = (value >> 3 & 15, value & 7);
    let size = match exponent {
        0 => f32::from(mantissa) / 512.0,
        15 => F8_MAX,
        _ => f32::from_bits((u32::from(exponent) + 120) << 23 | u32::from(mantissa) << 20),
    };
    if value & 0x80 == 0 { size } else { -size }
}

/// The whole part of a number from 0 to less than 2^24.
const fn floor(value: f32) -> u32 {
    let bits = value.to_bits();
    match (bits >> 23).checked_sub(127) {
        None => 0,
        Some(exponent) => (bits & 0x7f_ffff | 0x80_0000) >> 23u32.saturating_sub(exponent),
    }
}

/// The largest number of eight bits; the exponent behind it is not used.
const F8_MAX: f32 = 240.0;
/// The smallest one with a mantissa of its own: 2^-6.
const F8_MIN_NORMAL: f32 = 0.015_625;
/// The bit of a number that is none, and remains so when it is cut.
const QUIET: u32 = 1 << 22;
