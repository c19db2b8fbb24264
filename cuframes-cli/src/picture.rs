//! [`Picture`]: the rows of a frame of any format as pixels.

mod chroma;
mod colour;

use cuframes_core::wire::meta::Plane;
use cuframes_core::{Format, FrameMeta};

pub(crate) use self::colour::{MatrixChoice, Range};
use self::colour::{SCALE, ToRgb};
use crate::args::ColourArgs;

/// Reads the rows of frames with one geometry.
#[derive(Debug)]
pub(crate) struct Picture {
    meta: FrameMeta,
    planes: [Option<Plane>; 3],
    samples: Samples,
    pixels: Vec<Pixel>,
}

/// Red, green, blue and alpha.
pub(crate) type Pixel = [u8; 4];

/// What of a pixel means something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Channels {
    /// All three colours are the same.
    Grey,
    Rgb,
    Rgba,
}

impl Picture {
    /// `None` for frames that are no pictures.
    pub(crate) fn new(meta: &FrameMeta, colour: ColourArgs) -> Option<Self> {
        let bits = match meta.format {
            Format::BYTES => return None,
            format if !Format::ALL.contains(&format) => return None,
            Format::P010 => 10,
            _ => 8,
        };
        let mut planes = meta.planes();
        let planes = [planes.next(), planes.next(), planes.next()];
        let samples = Samples {
            to_rgb: ToRgb::new(colour.matrix.of(meta.height), colour.range, bits),
            near: Vec::new(),
            far: Vec::new(),
            luma: Vec::new(),
            u: Vec::new(),
            v: Vec::new(),
        };
        Some(Self { meta: *meta, planes, samples, pixels: Vec::new() })
    }

    pub(crate) fn channels(&self) -> Channels {
        match self.meta.format {
            Format::GRAY8 | Format::GRAY16 => Channels::Grey,
            Format::RGBA32 | Format::BGRA32 => Channels::Rgba,
            _ => Channels::Rgb,
        }
    }

    /// Width and height.
    pub(crate) const fn size(&self) -> (u32, u32) {
        (self.meta.width, self.meta.height)
    }

    /// Whether frames with this geometry can be read.
    pub(crate) fn fits(&self, meta: &FrameMeta) -> bool {
        self.meta == *meta
    }

    /// Row `y` of a frame: as many pixels as it is wide. What the frame lacks is black.
    pub(crate) fn row(&mut self, frame: &[u8], y: u32) -> &[Pixel] {
        let Self { meta, planes, samples, pixels } = self;
        let plane =
            |n: usize, y| planes.get(n).copied().flatten().map_or(&[][..], |plane| row(frame, &plane, y));
        let first = plane(0, y);
        pixels.clear();
        match meta.format {
            Format::NV12 | Format::P010 | Format::I420 | Format::I444 => {
                samples.read(meta.format, y, meta.height, plane);
                samples.paint(pixels);
            }
            Format::RGB24 => pixels.extend(first.as_chunks().0.iter().map(|&[r, g, b]| [r, g, b, OPAQUE])),
            Format::BGR24 => pixels.extend(first.as_chunks().0.iter().map(|&[b, g, r]| [r, g, b, OPAQUE])),
            Format::RGBA32 => pixels.extend_from_slice(first.as_chunks().0),
            Format::BGRA32 => pixels.extend(first.as_chunks().0.iter().map(|&[b, g, r, a]| [r, g, b, a])),
            Format::GRAY8 => pixels.extend(first.iter().map(|&grey| [grey, grey, grey, OPAQUE])),
            Format::GRAY16 => pixels.extend(first.as_chunks().0.iter().map(|&bytes| {
                let grey = eight_bits(u16::from_le_bytes(bytes));
                [grey, grey, grey, OPAQUE]
            })),
            Format::RGB_F32_PLANAR => channels(first, plane(1, y), plane(2, y), f32::from_le_bytes, pixels),
            Format::RGB_F16_PLANAR => channels(first, plane(1, y), plane(2, y), half, pixels),
            _ => {}
        }
        pixels.resize(index(meta.width), [0, 0, 0, OPAQUE]);
        pixels
    }
}

/// The samples of one row, [`SCALE`] times their value.
#[derive(Debug)]
struct Samples {
    to_rgb: ToRgb,
    luma: Vec<i32>,
    u: Vec<i32>,
    v: Vec<i32>,
    /// Two rows of chroma as they are in the frame.
    near: Vec<i32>,
    far: Vec<i32>,
}

impl Samples {
    /// Reads row `y` of a YUV frame with `height` rows. `plane` gives a row of a plane.
    fn read<'a>(&mut self, format: Format, y: u32, height: u32, plane: impl Fn(usize, u32) -> &'a [u8]) {
        let Self { luma, u, v, near, far, .. } = self;
        let load = if format == Format::P010 { ten_bits } else { bytes };
        load(plane(0, y), 0, 1, luma);
        luma.iter_mut().for_each(|sample| *sample *= SCALE);
        // Where the samples of U and V are: in which plane, the first of them, and how far apart.
        let [at_u, at_v] = match format {
            Format::NV12 | Format::P010 => [(1, 0, 2), (1, 1, 2)],
            _ => [(1, 0, 1), (2, 0, 1)],
        };
        for ((number, first, step), to) in [(at_u, u), (at_v, v)] {
            if format == Format::I444 {
                load(plane(number, y), first, step, to);
                to.iter_mut().for_each(|sample| *sample *= SCALE);
            } else {
                let (near_row, far_row) = chroma::neighbours(y, height.div_ceil(2));
                load(plane(number, near_row), first, step, near);
                load(plane(number, far_row), first, step, far);
                chroma::blend(near, far);
                chroma::widen(near, to);
            }
        }
    }

    fn paint(&self, pixels: &mut Vec<Pixel>) {
        let Self { to_rgb, luma, u, v, .. } = self;
        pixels.extend(luma.iter().zip(u).zip(v).map(|((&y, &u), &v)| {
            let [r, g, b] = to_rgb.rgb(y, u, v);
            [r, g, b, OPAQUE]
        }));
    }
}

/// Every `step`th byte from the `first` on.
fn bytes(row: &[u8], first: usize, step: usize, samples: &mut Vec<i32>) {
    samples.clear();
    samples.extend(row.iter().skip(first).step_by(step).map(|byte| i32::from(*byte)));
}

/// The same of 16-bit words that hold 10 bits, in the high ones.
fn ten_bits(row: &[u8], first: usize, step: usize, samples: &mut Vec<i32>) {
    samples.clear();
    let words = row.as_chunks().0.iter().skip(first).step_by(step);
    samples.extend(words.map(|word| i32::from(u16::from_le_bytes(*word) >> 6)));
}

/// Pixels from a row of each colour, whose values are from 0 to 1.
fn channels<const N: usize>(
    red: &[u8],
    green: &[u8],
    blue: &[u8],
    value: impl Fn([u8; N]) -> f32,
    pixels: &mut Vec<Pixel>,
) {
    let [red, green, blue] = [red, green, blue].map(|row| row.as_chunks().0);
    pixels.extend(red.iter().zip(green).zip(blue).map(|((r, g), b)| {
        let [r, g, b] = [r, g, b].map(|bytes| unit(value(*bytes)));
        [r, g, b, OPAQUE]
    }));
}

/// Rounds 0..=1 to 0..=255; what is beyond is cut, and what is no number is 0.
fn unit(value: f32) -> u8 {
    #[expect(
        clippy::as_conversions,
        reason = "it cuts what does not fit, and makes 0 of NaN: just what is wanted"
    )]
    let byte = (value * 255.0).round() as u8;
    byte
}

/// An IEEE 754 number of 16 bits.
fn half(bytes: [u8; 2]) -> f32 {
    let bits = u16::from_le_bytes(bytes);
    let magnitude = bits & 0x7FFF;
    let value = match magnitude {
        0..0x7C00 => f32::from_bits(u32::from(magnitude) << 13) * HALF_TO_SINGLE,
        0x7C00 => f32::INFINITY,
        _ => f32::NAN,
    };
    if bits == magnitude { value } else { -value }
}

/// The nearest of 0..=255 to a number of 0..=65535.
fn eight_bits(value: u16) -> u8 {
    u8::try_from((u32::from(value) * 255 + 32767) / 65535).unwrap_or(u8::MAX)
}

/// A row of a plane without its padding; empty where the frame has none.
fn row<'a>(frame: &'a [u8], plane: &Plane, y: u32) -> &'a [u8] {
    let start = plane.offset.saturating_add(u64::from(plane.pitch) * u64::from(y));
    let row = frame.get(index(start)..).and_then(|rest| rest.get(..index(plane.row_bytes)));
    row.unwrap_or_default()
}

/// An index that is past the end of any slice if it doesn't fit.
fn index(n: impl TryInto<usize>) -> usize {
    n.try_into().unwrap_or(usize::MAX)
}

const OPAQUE: u8 = u8::MAX;

/// 2^112: the difference of the exponents' biases, 127 and 15.
const HALF_TO_SINGLE: f32 = f32::from_bits((127 + 112) << 23);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::rows_mut;

    const COLOUR: ColourArgs = ColourArgs { matrix: MatrixChoice::Bt601, range: Range::Limited };

    /// A frame whose planes have these bytes in every row, with wide padding, and its pixels.
    fn pixels(format: Format, width: u32, height: u32, rows: &[&[u8]]) -> Vec<Vec<Pixel>> {
        let meta = FrameMeta::with_pitches(format, width, height, 64, 96).unwrap();
        let mut frame = vec![0xEE; index(meta.frame_size_bytes)];
        for (plane, bytes) in meta.planes().zip(rows) {
            rows_mut(&mut frame, &plane).for_each(|row| row.copy_from_slice(bytes));
        }
        let mut picture = Picture::new(&meta, COLOUR).unwrap();
        (0..height).map(|y| picture.row(&frame, y).to_vec()).collect()
    }

    /// The pixels of a frame whose rows all are the same.
    fn one_row(format: Format, width: u32, rows: &[&[u8]]) -> Vec<Pixel> {
        let mut pixels = pixels(format, width, 5, rows);
        pixels.dedup();
        assert_eq!(pixels.len(), 1, "{format}");
        pixels.remove(0)
    }

    #[test]
    fn the_packed_formats_have_their_bytes_in_their_order() {
        let expected = [[1, 2, 3, 255], [4, 5, 6, 255], [7, 8, 9, 255]];
        assert_eq!(one_row(Format::RGB24, 3, &[&[1, 2, 3, 4, 5, 6, 7, 8, 9]]), expected);
        assert_eq!(one_row(Format::BGR24, 3, &[&[3, 2, 1, 6, 5, 4, 9, 8, 7]]), expected);
        assert_eq!(one_row(Format::RGBA32, 1, &[&[1, 2, 3, 4]]), [[1, 2, 3, 4]]);
        assert_eq!(one_row(Format::BGRA32, 1, &[&[3, 2, 1, 4]]), [[1, 2, 3, 4]]);
        assert_eq!(one_row(Format::GRAY8, 2, &[&[0, 200]]), [[0, 0, 0, 255], [200, 200, 200, 255]]);
    }

    #[test]
    fn sixteen_bits_are_rounded_to_the_nearest_of_eight() {
        let words = [0_u16, 128, 129, 257, 0x7FFF, 0x8000, 65406, 65407, 65535];
        assert_eq!(words.map(eight_bits), [0, 0, 1, 1, 127, 128, 254, 255, 255]);
        for value in 0..=u16::MAX {
            let nearest = (f64::from(value) / 257.0).round();
            assert!((f64::from(eight_bits(value)) - nearest).abs() < 0.5, "{value}");
        }
        let bytes = words.map(u16::to_le_bytes);
        assert_eq!(one_row(Format::GRAY16, 9, &[bytes.as_flattened()])[5], [128, 128, 128, 255]);
    }

    #[test]
    fn floating_point_is_rounded_and_cut() {
        let bytes = [0.0_f32, 1.0, 0.5, -3.0, 7.0, f32::NAN, 0.001].map(f32::to_le_bytes);
        let row = bytes.as_flattened();
        let reds =
            one_row(Format::RGB_F32_PLANAR, 7, &[row, row, row]).iter().map(|[r, ..]| *r).collect::<Vec<_>>();
        assert_eq!(reds, [0, 255, 128, 0, 255, 0, 0]);
        let bytes = [0x3C00_u16, 0x3A00, 0x0000, 0xBC00, 0x7C00, 0x7E00, 0x1C04].map(u16::to_le_bytes);
        let row = bytes.as_flattened();
        let reds =
            one_row(Format::RGB_F16_PLANAR, 7, &[row, row, row]).iter().map(|[r, ..]| *r).collect::<Vec<_>>();
        assert_eq!(reds, [255, 191, 0, 0, 255, 0, 1]);
        assert_eq!(half(0x0001_u16.to_le_bytes()), f32::from_bits((127 - 24) << 23), "the smallest of all");
        assert_eq!(half(0x7BFF_u16.to_le_bytes()), 65504.0, "the largest");
    }

    #[test]
    fn every_yuv_format_shows_the_same_picture() {
        let ys = [81, 81, 145, 145, 41];
        let (u, v) = ([90, 52, 240], [240, 34, 110]);
        let picture = one_row(Format::I420, 5, &[&ys, &u, &v]);
        assert_eq!(picture[0], [254, 0, 0, 255]);
        assert_eq!(picture[4], one_row(Format::I444, 1, &[&[41], &[193], &[91]])[0]);
        let uv = [90, 240, 52, 34, 240, 110];
        assert_eq!(one_row(Format::NV12, 5, &[&ys, &uv]), picture);
        let words = |bytes: &[u8]| bytes.iter().flat_map(|byte| [0, *byte]).collect::<Vec<_>>();
        assert_eq!(one_row(Format::P010, 5, &[&words(&ys), &words(&uv)]), picture);
    }

    #[test]
    fn the_low_bits_of_p010_mean_nothing_and_the_middle_ones_do() {
        let grey = |y: u16| one_row(Format::P010, 1, &[&y.to_le_bytes(), &[0, 128, 0, 128]])[0][0];
        assert_eq!([64 << 6, 940 << 6, (64 << 6) | 0x3F].map(grey), [0, 255, 0]);
        assert_eq!(
            [66 << 6, 67 << 6, 502 << 6].map(grey),
            [1, 1, 128],
            "65.7 is the first that is nearer to 1"
        );
    }

    #[test]
    fn chroma_between_two_rows_is_interpolated() {
        let meta = FrameMeta::new(Format::I420, 2, 4).unwrap();
        let mut frame = vec![126; index(meta.frame_size_bytes)];
        for (plane, rows) in meta.planes().skip(1).zip([[128, 128], [128, 168]]) {
            rows_mut(&mut frame, &plane).zip(rows).for_each(|(row, value)| row.fill(value));
        }
        let mut picture = Picture::new(&meta, COLOUR).unwrap();
        // 1.596 times 0, 10, 30 and 40 more than grey.
        let reds = [0, 1, 2, 3].map(|y| picture.row(&frame, y)[0][0]);
        assert_eq!(reds, [128, 144, 176, 192]);
    }

    #[test]
    fn a_frame_that_is_too_short_is_black_where_it_ends_and_bytes_are_no_picture() {
        let meta = FrameMeta::new(Format::RGB24, 2, 2).unwrap();
        let mut picture = Picture::new(&meta, COLOUR).unwrap();
        assert_eq!(picture.row(&[9; 100], 0), [[9, 9, 9, 255]; 2]);
        assert_eq!(picture.row(&[9; 100], 1), [[0, 0, 0, 255]; 2]);
        let meta = FrameMeta::new(Format::BYTES, 8, 1).unwrap();
        assert!(Picture::new(&meta, COLOUR).is_none());
    }
}
