//! [`Uuid`]: which device it is, whatever ordinal a process has for it (C-13).

use std::fmt;

/// What a device is, in every process and container: a GPU, or a part of one (MIG). Prints as `nvidia-smi -L` does.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Uuid {
    bytes: [u8; 16],
    is_mig: bool,
}

impl Uuid {
    /// That of a device of this name.
    pub(crate) fn new(bytes: [u8; 16], name: &str) -> Self {
        Self { bytes, is_mig: name.split(' ').any(|word| word == "MIG") }
    }

    /// The bytes, as the driver has them.
    #[must_use]
    pub const fn bytes(&self) -> [u8; 16] {
        self.bytes
    }

    /// Whether it is that of a part of a GPU.
    #[must_use]
    pub const fn is_mig(&self) -> bool {
        self.is_mig
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_mig { "MIG" } else { "GPU" })?;
        for (at, byte) in self.bytes.iter().enumerate() {
            let dash = if matches!(at, 0 | 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Uuid({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_prints_as_nvidia_smi_has_it() {
        let bytes = std::array::from_fn(|at| 0xA0 + u8::try_from(at).unwrap());
        for (name, kind) in [("NVIDIA A100", "GPU"), ("NVIDIA A100 MIG 1g.5gb", "MIG")] {
            let text = format!("{kind}-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf");
            assert_eq!(Uuid::new(bytes, name).to_string(), text);
        }
    }
}
