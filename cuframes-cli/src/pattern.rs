//! Test patterns: what `publish --pattern` draws and what `subscribe --check-seq` expects.

use cuframes_core::{Format, FrameMeta};

use crate::convert::rows_mut;

/// Fills every 8-byte word, and the shorter last one, with `seq`, little-endian.
pub(crate) fn fill_seq(frame: &mut [u8], seq: u64) {
    let word = seq.to_le_bytes();
    let (words, tail) = frame.as_chunks_mut();
    words.fill(word);
    tail.iter_mut().zip(word).for_each(|(byte, expected)| *byte = expected);
}

/// Whether every byte is what [`fill_seq`] writes.
pub(crate) fn is_seq(frame: &[u8], seq: u64) -> bool {
    let word = seq.to_le_bytes();
    let (words, tail) = frame.as_chunks();
    words.iter().all(|found| *found == word)
        && tail.iter().zip(word).all(|(found, expected)| *found == expected)
}

/// Fills a frame with noise that depends on `seq` alone.
pub(crate) fn fill_noise(frame: &mut [u8], seq: u64) {
    let mut state = seq;
    for chunk in frame.chunks_mut(8) {
        let word = splitmix64(&mut state).to_le_bytes();
        chunk.iter_mut().zip(word).for_each(|(byte, noise)| *byte = noise);
    }
}

/// SplitMix64 (Steele, Lea and Flood, 2014): any seed will do, 0 included.
fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Draws eight vertical bars at 75 % that move to the left by [`BAR_STEP`] pixels a frame.
///
/// All rows of a plane look the same. A sample of subsampled chroma takes the colour of its left pixel.
pub(crate) fn draw_bars(meta: &FrameMeta, frame: &mut [u8], seq: u64) {
    let width = u64::from(meta.width);
    for (number, plane) in meta.planes().enumerate() {
        let samples = BARS.map(|colour| colour.sample(meta.format, number));
        let step = if is_subsampled(meta.format) && number > 0 { 2 } else { 1 };
        let mut row = Vec::new();
        for x in (0..width).step_by(step) {
            let bar = (x + seq.wrapping_mul(BAR_STEP) % width) % width * BAR_COUNT / width;
            let sample = usize::try_from(bar).ok().and_then(|bar| samples.get(bar));
            row.extend(sample.into_iter().flatten());
        }
        rows_mut(frame, &plane).for_each(|target| target.copy_from_slice(&row));
    }
}

/// Whether a sample of the second and third plane stands for two pixels side by side.
fn is_subsampled(format: Format) -> bool {
    matches!(format, Format::NV12 | Format::P010 | Format::I420)
}

/// The colour of a bar.
#[derive(Clone, Copy)]
struct Colour {
    /// Which of R, G and B are on, at 75 %.
    rgb: [bool; 3],
    /// The same as BT.601 Y, U and V of limited range.
    yuv: [u8; 3],
}

impl Colour {
    /// The bytes of one sample in plane `number` of a format.
    fn sample(self, format: Format, number: usize) -> Vec<u8> {
        let [y, u, v] = self.yuv;
        let [r, g, b] = self.rgb.map(|on| if on { 191 } else { 0 });
        let is_on = self.rgb.get(number).copied().unwrap_or_default();
        match (format, number) {
            (Format::NV12, 1) => vec![u, v],
            (Format::P010, 0) => vec![0, y],
            (Format::P010, _) => vec![0, u, 0, v],
            (Format::I420 | Format::I444, 1) => vec![u],
            (Format::I420 | Format::I444, 2) => vec![v],
            (Format::RGB24, _) => vec![r, g, b],
            (Format::BGR24, _) => vec![b, g, r],
            (Format::RGBA32, _) => vec![r, g, b, 255],
            (Format::BGRA32, _) => vec![b, g, r, 255],
            (Format::GRAY16, _) => vec![y, y],
            (Format::RGB_F32_PLANAR, _) => if is_on { 0.75_f32 } else { 0.0 }.to_le_bytes().into(),
            (Format::RGB_F16_PLANAR, _) => if is_on { F16_THREE_QUARTERS } else { 0 }.to_le_bytes().into(),
            _ => vec![y],
        }
    }
}

const BAR_STEP: u64 = 4;
const BAR_COUNT: u64 = 8;

const F16_THREE_QUARTERS: u16 = 0x3A00;

/// White, yellow, cyan, green, magenta, red, blue, black.
const BARS: [Colour; 8] = [
    Colour { rgb: [true, true, true], yuv: [180, 128, 128] },
    Colour { rgb: [true, true, false], yuv: [162, 44, 142] },
    Colour { rgb: [false, true, true], yuv: [131, 156, 44] },
    Colour { rgb: [false, true, false], yuv: [112, 72, 58] },
    Colour { rgb: [true, false, true], yuv: [84, 184, 198] },
    Colour { rgb: [true, false, false], yuv: [65, 100, 212] },
    Colour { rgb: [false, false, true], yuv: [35, 212, 114] },
    Colour { rgb: [false, false, false], yuv: [16, 128, 128] },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::rows;

    #[test]
    fn seq_fills_every_byte_and_a_single_wrong_one_is_found() {
        for len in (0..40).chain([4096, 4099]) {
            let mut frame = vec![0xEE; len];
            fill_seq(&mut frame, 0x0102_0304_0506_0708);
            assert!(is_seq(&frame, 0x0102_0304_0506_0708), "{len}");
            for at in 0..len.min(64) {
                frame[at] ^= 0x80;
                assert!(!is_seq(&frame, 0x0102_0304_0506_0708), "byte {at} of {len}");
                frame[at] ^= 0x80;
            }
        }
        let mut frame = [0; 11];
        fill_seq(&mut frame, 0x0201);
        assert_eq!(frame, [1, 2, 0, 0, 0, 0, 0, 0, 1, 2, 0]);
    }

    #[test]
    fn noise_depends_on_the_sequence_number_alone() {
        let noise = |seq| {
            let mut frame = [0; 1003];
            fill_noise(&mut frame, seq);
            frame
        };
        assert_eq!(noise(1), noise(1));
        assert_ne!(noise(1), noise(2));
        assert!(noise(0).iter().filter(|byte| **byte == 0).count() < 100);
    }

    /// The bytes of the first row of every plane.
    fn first_rows(format: Format, width: u32, height: u32, seq: u64) -> Vec<Vec<u8>> {
        let meta = FrameMeta::new(format, width, height).unwrap();
        let mut frame = vec![0xEE; usize::try_from(meta.frame_size_bytes).unwrap()];
        draw_bars(&meta, &mut frame, seq);
        meta.planes()
            .map(|plane| {
                let mut rows = rows(&frame, &plane);
                let first = rows.next().unwrap().to_vec();
                assert!(rows.all(|row| row == first), "{format} {width}x{height}");
                first
            })
            .collect()
    }

    #[test]
    fn bars_of_every_format_and_size_fill_every_row() {
        for format in Format::ALL.into_iter().filter(|format| *format != Format::BYTES) {
            for (width, height, seq) in [(1, 1, 1), (7, 3, u64::MAX), (640, 2, 9), (641, 5, 1 << 40)] {
                assert!(!first_rows(format, width, height, seq).is_empty());
            }
        }
    }

    #[test]
    fn bars_have_the_right_colours_and_move() {
        let rows = first_rows(Format::NV12, 16, 2, 0);
        assert_eq!(rows[0][..6], [180, 180, 162, 162, 131, 131], "Y of white, yellow, cyan");
        assert_eq!(rows[1][..6], [128, 128, 44, 142, 156, 44], "U and V of the same");
        assert_eq!(first_rows(Format::RGB24, 8, 1, 0)[0][15..21], [191, 0, 0, 0, 0, 191], "red, blue");
        assert_eq!(first_rows(Format::BGR24, 8, 1, 0)[0][15..18], [0, 0, 191], "red");
        let planes = first_rows(Format::RGB_F32_PLANAR, 8, 1, 0);
        let yellow: Vec<_> =
            planes.iter().map(|row| f32::from_le_bytes(row[4..8].try_into().unwrap())).collect();
        assert_eq!(yellow, [0.75, 0.75, 0.0]);
        let moved = first_rows(Format::GRAY8, 64, 1, 1);
        assert_eq!(moved[0][..8], [180, 180, 180, 180, 162, 162, 162, 162], "4 pixels to the left");
    }
}
