//! [`Writer`]: appends values, each in its smallest form.
//!
//! Whoever writes bounds the message as a whole ([`MAX_PAYLOAD`](crate::zmtp::MAX_PAYLOAD)), far below what a length can say.

use alloc::vec::Vec;

/// Writes one message.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    pub(crate) fn nil(&mut self) {
        self.bytes.push(0xc0);
    }

    pub(crate) fn bool(&mut self, value: bool) {
        self.bytes.push(if value { 0xc3 } else { 0xc2 });
    }

    /// One that is not negative is written like an unsigned one.
    pub(crate) fn int(&mut self, value: i64) {
        if let Ok(value) = u64::try_from(value) {
            self.uint(value);
        } else if let Ok(value) = i8::try_from(value) {
            if value < -32 {
                self.bytes.push(0xd0);
            }
            self.bytes.extend(value.to_be_bytes());
        } else if let Ok(value) = i16::try_from(value) {
            self.marked(0xd1, &value.to_be_bytes());
        } else if let Ok(value) = i32::try_from(value) {
            self.marked(0xd2, &value.to_be_bytes());
        } else {
            self.marked(0xd3, &value.to_be_bytes());
        }
    }

    pub(crate) fn uint(&mut self, value: u64) {
        match u8::try_from(value) {
            Ok(value) if value < 0x80 => self.bytes.push(value),
            _ => self.sized(value, [Some(0xcc), Some(0xcd), Some(0xce), Some(0xcf)]),
        }
    }

    pub(crate) fn float(&mut self, value: f64) {
        self.marked(0xcb, &value.to_be_bytes());
    }

    pub(crate) fn str(&mut self, value: &str) {
        self.length(value.len(), 0xa0, 32, Some(0xd9), [0xda, 0xdb]);
        self.bytes.extend(value.as_bytes());
    }

    pub(crate) fn bin(&mut self, value: &[u8]) {
        self.length(value.len(), 0, 0, Some(0xc4), [0xc5, 0xc6]);
        self.bytes.extend(value);
    }

    /// The header of an array whose `len` elements follow.
    pub(crate) fn array(&mut self, len: usize) {
        self.length(len, 0x90, 16, None, [0xdc, 0xdd]);
    }

    /// The header of a map whose `len` pairs follow.
    pub(crate) fn map(&mut self, len: usize) {
        self.length(len, 0x80, 16, None, [0xde, 0xdf]);
    }

    pub(crate) fn ext(&mut self, kind: i8, value: &[u8]) {
        match value.len() {
            1 => self.bytes.push(0xd4),
            2 => self.bytes.push(0xd5),
            4 => self.bytes.push(0xd6),
            8 => self.bytes.push(0xd7),
            16 => self.bytes.push(0xd8),
            len => self.length(len, 0, 0, Some(0xc7), [0xc8, 0xc9]),
        }
        self.bytes.extend(kind.to_be_bytes());
        self.bytes.extend(value);
    }

    /// A length: within the marker if it is below `limit`, else with one, two or four bytes of its own.
    fn length(&mut self, len: usize, fixed: u8, limit: u8, one: Option<u8>, [two, four]: [u8; 2]) {
        match u8::try_from(len) {
            Ok(len) if len < limit => self.bytes.push(fixed | len),
            _ => self.sized(u64::try_from(len).unwrap_or(u64::MAX), [one, Some(two), Some(four), None]),
        }
    }

    /// A number after the first of the markers for one, two, four and eight bytes that has room for it.
    fn sized(&mut self, value: u64, [one, two, four, eight]: [Option<u8>; 4]) {
        if let (Some(marker), Ok(value)) = (one, u8::try_from(value)) {
            self.marked(marker, &[value]);
        } else if let (Some(marker), Ok(value)) = (two, u16::try_from(value)) {
            self.marked(marker, &value.to_be_bytes());
        } else if let (Some(marker), Ok(value)) = (four, u32::try_from(value)) {
            self.marked(marker, &value.to_be_bytes());
        } else if let Some(marker) = eight {
            self.marked(marker, &value.to_be_bytes());
        }
    }

    fn marked(&mut self, marker: u8, bytes: &[u8]) {
        self.bytes.push(marker);
        self.bytes.extend(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Writer)) -> Vec<u8> {
        let mut writer = Writer::default();
        write(&mut writer);
        writer.into_bytes()
    }

    #[test]
    fn integers_take_the_smallest_form_at_each_border() {
        let cases: [(i64, &[u8]); 14] = [
            (0, &[0]),
            (127, &[0x7f]),
            (128, &[0xcc, 0x80]),
            (255, &[0xcc, 0xff]),
            (256, &[0xcd, 1, 0]),
            (65_536, &[0xce, 0, 1, 0, 0]),
            (1 << 32, &[0xcf, 0, 0, 0, 1, 0, 0, 0, 0]),
            (-1, &[0xff]),
            (-32, &[0xe0]),
            (-33, &[0xd0, 0xdf]),
            (-128, &[0xd0, 0x80]),
            (-129, &[0xd1, 0xff, 0x7f]),
            (-32_769, &[0xd2, 0xff, 0xff, 0x7f, 0xff]),
            (i64::MIN, &[0xd3, 0x80, 0, 0, 0, 0, 0, 0, 0]),
        ];
        for (value, bytes) in cases {
            assert_eq!(written(|w| w.int(value)), bytes, "{value}");
        }
        assert_eq!(written(|w| w.uint(u64::MAX)), [0xcf, 255, 255, 255, 255, 255, 255, 255, 255]);
    }

    #[test]
    fn lengths_take_the_smallest_form_at_each_border() {
        let head = |write: &dyn Fn(&mut Writer)| {
            let mut bytes = written(|w| write(w));
            bytes.truncate(5);
            bytes
        };
        let text = |len: usize| "a".repeat(len);
        assert_eq!(head(&|w| w.str("")), [0xa0]);
        assert_eq!(head(&|w| w.str(&text(31))), *b"\xbfaaaa");
        assert_eq!(head(&|w| w.str(&text(32))), *b"\xd9\x20aaa");
        assert_eq!(head(&|w| w.str(&text(256))), *b"\xda\x01\x00aa");
        assert_eq!(head(&|w| w.str(&text(65_536))), *b"\xdb\x00\x01\x00\x00");
        assert_eq!(head(&|w| w.bin(&[])), [0xc4, 0]);
        assert_eq!(head(&|w| w.array(15)), [0x9f]);
        assert_eq!(head(&|w| w.array(16)), [0xdc, 0, 16]);
        assert_eq!(head(&|w| w.map(15)), [0x8f]);
        assert_eq!(head(&|w| w.map(65_536)), [0xdf, 0, 1, 0, 0]);
        assert_eq!(head(&|w| w.ext(-1, &[7, 7])), [0xd5, 0xff, 7, 7]);
        assert_eq!(head(&|w| w.ext(1, &[7, 7, 7])), [0xc7, 3, 1, 7, 7]);
    }
}
