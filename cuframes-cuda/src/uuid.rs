//! [`Uuid`]: which device it is, whatever ordinal a process has for it (C-13).

use std::fmt;

/// What a device is, in every process and container. Prints as `nvidia-smi -L` does.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Uuid(pub [u8; 16]);

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GPU")?;
        for (at, byte) in self.0.iter().enumerate() {
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
        assert_eq!(Uuid(bytes).to_string(), "GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf");
    }
}
