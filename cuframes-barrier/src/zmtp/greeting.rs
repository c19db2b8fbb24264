//! The greeting: the 64 bytes with which each side begins.

/// Bytes of a greeting.
pub(super) const LEN: usize = 64;

/// What we send: version 3.1, NULL mechanism.
pub(super) const OURS: [u8; LEN] = {
    let mut bytes = [0; LEN];
    [bytes[0], bytes[9], bytes[10], bytes[11]] = [0xff, 0x7f, 3, 1];
    [bytes[12], bytes[13], bytes[14], bytes[15]] = *b"NULL";
    bytes
};

/// Whether the bytes from `at` on may be those of a greeting that we understand: a version from 3.0 on, and the NULL
/// mechanism. The eight bytes after the first are anything (older peers put a length there).
pub(super) fn may_continue(at: usize, bytes: &[u8]) -> bool {
    (at..LEN).zip(bytes).all(|(at, byte)| match at {
        0 => *byte == 0xff,
        9 => *byte == 0x7f,
        10 => *byte >= 3,
        12..32 => OURS.get(at) == Some(byte),
        _ => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_of_a_greeting_that_counts_is_checked_as_soon_as_it_is_there() {
        assert!(may_continue(0, &OURS));
        for (at, byte) in OURS.into_iter().enumerate() {
            let counts = matches!(at, 0 | 9 | 12..32);
            assert_eq!(may_continue(at, &[byte ^ 0x40]), !counts, "byte {at}");
        }
        assert!(!may_continue(10, &[2]));
    }
}
