//! The little of EBML (RFC 8794) that a recording needs: elements as bytes, and bytes as elements.
//!
//! Whatever the bytes are, reading them ends, and allocates nothing.

/// Kind of an element, with the marker bits that say how long it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Id(pub(super) u32);

/// The elements of Matroska (RFC 9559) that are written or known. The names are those of the document.
impl Id {
    pub(super) const EBML: Self = Self(0x1A45_DFA3);
    pub(super) const EBML_VERSION: Self = Self(0x4286);
    pub(super) const EBML_READ_VERSION: Self = Self(0x42F7);
    pub(super) const EBML_MAX_ID_LENGTH: Self = Self(0x42F2);
    pub(super) const EBML_MAX_SIZE_LENGTH: Self = Self(0x42F3);
    pub(super) const DOC_TYPE: Self = Self(0x4282);
    pub(super) const DOC_TYPE_VERSION: Self = Self(0x4287);
    pub(super) const DOC_TYPE_READ_VERSION: Self = Self(0x4285);
    pub(super) const VOID: Self = Self(0xEC);
    pub(super) const CRC_32: Self = Self(0xBF);

    pub(super) const SEGMENT: Self = Self(0x1853_8067);
    pub(super) const SEEK_HEAD: Self = Self(0x114D_9B74);
    pub(super) const SEEK: Self = Self(0x4DBB);
    pub(super) const SEEK_ID: Self = Self(0x53AB);
    pub(super) const SEEK_POSITION: Self = Self(0x53AC);
    pub(super) const INFO: Self = Self(0x1549_A966);
    pub(super) const TIMESTAMP_SCALE: Self = Self(0x002A_D7B1);
    pub(super) const DURATION: Self = Self(0x4489);
    pub(super) const TITLE: Self = Self(0x7BA9);
    pub(super) const MUXING_APP: Self = Self(0x4D80);
    pub(super) const WRITING_APP: Self = Self(0x5741);
    pub(super) const CHAPTERS: Self = Self(0x1043_A770);
    pub(super) const ATTACHMENTS: Self = Self(0x1941_A469);
    pub(super) const TAGS: Self = Self(0x1254_C367);

    pub(super) const TRACKS: Self = Self(0x1654_AE6B);
    pub(super) const TRACK_ENTRY: Self = Self(0xAE);
    pub(super) const TRACK_NUMBER: Self = Self(0xD7);
    pub(super) const TRACK_UID: Self = Self(0x73C5);
    pub(super) const TRACK_TYPE: Self = Self(0x83);
    pub(super) const FLAG_LACING: Self = Self(0x9C);
    pub(super) const CODEC_ID: Self = Self(0x86);
    pub(super) const MAX_BLOCK_ADDITION_ID: Self = Self(0x55EE);
    pub(super) const BLOCK_ADDITION_MAPPING: Self = Self(0x41E4);
    pub(super) const BLOCK_ADD_ID_VALUE: Self = Self(0x41F0);
    pub(super) const BLOCK_ADD_ID_NAME: Self = Self(0x41A4);
    pub(super) const BLOCK_ADD_ID_TYPE: Self = Self(0x41E7);
    pub(super) const BLOCK_ADD_ID_EXTRA_DATA: Self = Self(0x41ED);
    pub(super) const VIDEO: Self = Self(0xE0);
    pub(super) const FLAG_INTERLACED: Self = Self(0x9A);
    pub(super) const PIXEL_WIDTH: Self = Self(0xB0);
    pub(super) const PIXEL_HEIGHT: Self = Self(0xBA);
    pub(super) const UNCOMPRESSED_FOUR_CC: Self = Self(0x002E_B524);

    pub(super) const CLUSTER: Self = Self(0x1F43_B675);
    pub(super) const TIMESTAMP: Self = Self(0xE7);
    pub(super) const POSITION: Self = Self(0xA7);
    pub(super) const PREV_SIZE: Self = Self(0xAB);
    pub(super) const BLOCK_GROUP: Self = Self(0xA0);
    pub(super) const BLOCK: Self = Self(0xA1);
    pub(super) const BLOCK_ADDITIONS: Self = Self(0x75A1);
    pub(super) const BLOCK_MORE: Self = Self(0xA6);
    pub(super) const BLOCK_ADD_ID: Self = Self(0xEE);
    pub(super) const BLOCK_ADDITIONAL: Self = Self(0xA5);

    pub(super) const CUES: Self = Self(0x1C53_BB6B);
    pub(super) const CUE_POINT: Self = Self(0xBB);
    pub(super) const CUE_TIME: Self = Self(0xB3);
    pub(super) const CUE_TRACK_POSITIONS: Self = Self(0xB7);
    pub(super) const CUE_TRACK: Self = Self(0xF7);
    pub(super) const CUE_CLUSTER_POSITION: Self = Self(0xF1);

    /// Its bytes, without those that it doesn't have.
    fn bytes(self) -> impl Iterator<Item = u8> {
        self.0.to_be_bytes().into_iter().skip_while(|byte| *byte == 0)
    }
}

/// Writes the start of an element with a body of this length. It always has [`SIZE_LEN`] bytes for the length, so that
/// another one can be written there later.
pub(super) fn put_head(out: &mut Vec<u8>, id: Id, len: u64) {
    out.extend(id.bytes());
    out.extend(size_bytes(len));
}

/// The bytes of a length.
pub(super) fn size_bytes(len: u64) -> [u8; SIZE_LEN] {
    (len.min(UNKNOWN) | 1 << 56).to_be_bytes()
}

/// Writes an element.
pub(super) fn put(out: &mut Vec<u8>, id: Id, body: &[u8]) {
    out.extend(id.bytes());
    match u8::try_from(body.len()) {
        // All ones would mean "unknown".
        Ok(len) if len < 0x7F => out.push(0x80 | len),
        _ => out.extend(size_bytes(u64::try_from(body.len()).unwrap_or(UNKNOWN))),
    }
    out.extend_from_slice(body);
}

/// Writes an element that is a number, with all its bytes.
pub(super) fn put_u64(out: &mut Vec<u8>, id: Id, value: u64) {
    put(out, id, &value.to_be_bytes());
}

/// Writes an element that is a small number.
pub(super) fn put_u8(out: &mut Vec<u8>, id: Id, value: u8) {
    put(out, id, &[value]);
}

/// Writes an element that consists of others.
pub(super) fn put_master(out: &mut Vec<u8>, id: Id, fill: impl FnOnce(&mut Vec<u8>)) {
    let mut body = Vec::new();
    fill(&mut body);
    put(out, id, &body);
}

/// The start of an element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head {
    pub(super) id: Id,
    /// How many bytes it has itself.
    pub(super) len: u64,
    /// How many bytes follow it; `None` if that is unknown.
    pub(super) body: Option<u64>,
}

/// Why there is no element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bad {
    /// The bytes end before it does.
    Cut,
    /// No element starts like this.
    Malformed,
}

/// Reads the start of an element. [`MAX_HEAD`] bytes are always enough.
pub(super) fn head(bytes: &[u8]) -> Result<Head, Bad> {
    let (id, id_len) = number(bytes, 4)?;
    let (size, size_len) = number(bytes.get(id_len..).ok_or(Bad::Cut)?, SIZE_LEN)?;
    let bits = 7 * size_len;
    let mask = (1_u64 << bits) - 1;
    Ok(Head {
        id: Id(u32::try_from(id).map_err(|_| Bad::Malformed)?),
        len: u64::try_from(id_len + size_len).map_err(|_| Bad::Malformed)?,
        body: Some(size & mask).filter(|size| *size != mask),
    })
}

/// A number of 1 to `max` bytes, whose first byte says how many they are; the marker bit is left in it.
fn number(bytes: &[u8], max: usize) -> Result<(u64, usize), Bad> {
    let first = bytes.first().ok_or(Bad::Cut)?;
    let len = usize::try_from(first.leading_zeros()).map_or(usize::MAX, |zeros| zeros + 1);
    if len > max {
        return Err(Bad::Malformed);
    }
    let bytes = bytes.get(..len).ok_or(Bad::Cut)?;
    Ok((bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)), len))
}

/// The elements in a slice, one after the other. The first that is not whole is the last answer.
#[derive(Clone, Debug)]
pub(super) struct Elements<'a>(pub(super) &'a [u8]);

impl<'a> Elements<'a> {
    /// The body of the first element of this kind.
    pub(super) fn find(&self, id: Id) -> Option<&'a [u8]> {
        self.clone().map_while(Result::ok).find(|(found, _)| *found == id).map(|(_, body)| body)
    }

    /// The number in the first element of this kind.
    pub(super) fn find_u64(&self, id: Id) -> Option<u64> {
        let body = self.find(id).filter(|body| body.len() <= 8)?;
        Some(body.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<(Id, &'a [u8]), Bad>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let element = split(self.0);
        self.0 = element.map_or(&[], |(.., rest)| rest);
        Some(element.map(|(id, body, _)| (id, body)))
    }
}

/// The first element, and what follows it.
fn split(bytes: &[u8]) -> Result<(Id, &[u8], &[u8]), Bad> {
    let Head { id, len, body } = head(bytes)?;
    let body = usize::try_from(body.ok_or(Bad::Malformed)?).map_err(|_| Bad::Cut)?;
    let rest = usize::try_from(len).ok().and_then(|len| bytes.get(len..)).ok_or(Bad::Cut)?;
    let (body, rest) = rest.split_at_checked(body).ok_or(Bad::Cut)?;
    Ok((id, body, rest))
}

/// A length that says "until the end of the file".
pub(super) const UNKNOWN: u64 = (1 << 56) - 1;
/// Bytes of a length that can be written anew.
pub(super) const SIZE_LEN: usize = 8;
/// The start of an element is never longer.
pub(super) const MAX_HEAD: usize = 4 + SIZE_LEN;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_have_the_length_that_their_first_byte_says() {
        assert_eq!(head(&[0xEC, 0x81, 0]), Ok(Head { id: Id::VOID, len: 2, body: Some(1) }));
        assert_eq!(head(&[0x42, 0x86, 0x40, 0x02]), Ok(Head { id: Id::EBML_VERSION, len: 4, body: Some(2) }));
        assert_eq!(head(&[0xEC, 0xFF]), Ok(Head { id: Id::VOID, len: 2, body: None }));
        assert_eq!(head(&[0xEC, 1, 255, 255, 255, 255, 255, 255, 255]).map(|head| head.body), Ok(None));
        assert_eq!(head(&[0xEC]), Err(Bad::Cut));
        assert_eq!(head(&[0x42]), Err(Bad::Cut));
        assert_eq!(head(&[0x08, 0, 0, 0, 0, 0x81]), Err(Bad::Malformed), "an id of 5 bytes");
        assert_eq!(head(&[0xEC, 0]), Err(Bad::Malformed), "a length of 9 bytes");
    }

    #[test]
    fn what_is_written_is_read_again_up_to_the_first_element_that_is_not_whole() {
        let mut bytes = Vec::new();
        put_u8(&mut bytes, Id::TRACK_NUMBER, 1);
        put(&mut bytes, Id::TITLE, &[b'x'; 0x7F]);
        put_master(&mut bytes, Id::SEEK, |seek| put_u64(seek, Id::SEEK_POSITION, 1 << 40));
        let elements = Elements(&bytes);
        assert_eq!(elements.find_u64(Id::TRACK_NUMBER), Some(1));
        assert_eq!(elements.find(Id::TITLE), Some(&[b'x'; 0x7F][..]));
        assert_eq!(Elements(elements.find(Id::SEEK).unwrap()).find_u64(Id::SEEK_POSITION), Some(1 << 40));
        assert_eq!(elements.count(), 3);
        let cut = Elements(&bytes[..bytes.len() - 1]).collect::<Vec<_>>();
        assert_eq!((cut.len(), cut[2]), (3, Err(Bad::Cut)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_to_their_end(bytes: Vec<u8>) {
            prop_assert!(Elements(&bytes).count() <= bytes.len());
        }
    }
}
