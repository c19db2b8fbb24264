//! From Y, U and V to R, G and B: both matrices and both ranges, for samples of any depth.

use clap::ValueEnum;

/// A matrix, or the rule that says which one it is.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MatrixChoice {
    /// bt709 if a frame has 720 rows or more, bt601 if it has fewer
    Auto,
    /// Standard definition
    Bt601,
    /// High definition
    Bt709,
}

impl MatrixChoice {
    /// The matrix of a frame with so many rows.
    pub(crate) const fn of(self, height: u32) -> Matrix {
        match self {
            Self::Bt709 => Matrix::BT709,
            Self::Auto if height >= 720 => Matrix::BT709,
            Self::Auto | Self::Bt601 => Matrix::BT601,
        }
    }
}

/// Which numbers stand for black and white.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Range {
    /// 16 to 235, and 16 to 240 for chroma
    Limited,
    /// 0 to 255
    Full,
}

/// How much of Y comes from red and from blue, in ten thousandths; the rest comes from green.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Matrix {
    red: i64,
    blue: i64,
}

impl Matrix {
    /// ITU-R BT.601.
    pub(crate) const BT601: Self = Self { red: 2990, blue: 1140 };
    /// ITU-R BT.709.
    pub(crate) const BT709: Self = Self { red: 2126, blue: 722 };
}

/// Turns samples into colours, in fixed point with [`SHIFT`] bits after the point.
///
/// Samples are [`SCALE`] times their value, so that those between two chroma samples are exact. Nothing is rounded
/// before the end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToRgb {
    luma: i32,
    red_v: i32,
    green_u: i32,
    green_v: i32,
    blue_u: i32,
    /// Y of black, and U and V of grey.
    black: i32,
    grey: i32,
}

impl ToRgb {
    /// For samples of `bits` bits, 8 or 10: with more, the sums below would not fit.
    pub(crate) fn new(matrix: Matrix, range: Range, bits: u32) -> Self {
        let depth = 1 << (bits - 8);
        let (black, luma_steps, chroma_steps) = match range {
            Range::Limited => (16 * depth, 219 * depth, 224 * depth),
            Range::Full => (0, 256 * depth - 1, 256 * depth - 1),
        };
        let Matrix { red, blue } = matrix;
        let green = WHOLE - red - blue;
        let chroma = |numerator, denominator| fraction(numerator, denominator * chroma_steps);
        Self {
            luma: fraction(1, luma_steps),
            red_v: chroma(2 * (WHOLE - red), WHOLE),
            green_u: chroma(2 * (WHOLE - blue) * blue, WHOLE * green),
            green_v: chroma(2 * (WHOLE - red) * red, WHOLE * green),
            blue_u: chroma(2 * (WHOLE - blue), WHOLE),
            black: small(black) * SCALE,
            grey: small(128 * depth) * SCALE,
        }
    }

    /// The colour that is nearest to these samples.
    pub(crate) fn rgb(&self, y: i32, u: i32, v: i32) -> [u8; 3] {
        let y = self.luma * (y - self.black) + (1 << (SHIFT - 1));
        let (u, v) = (u - self.grey, v - self.grey);
        [y + self.red_v * v, y - self.green_u * u - self.green_v * v, y + self.blue_u * u]
            .map(|value| u8::try_from((value >> SHIFT).clamp(0, 255)).unwrap_or(u8::MAX))
    }
}

/// A part of 255, for samples that are [`SCALE`] times their value, in fixed point.
fn fraction(numerator: i64, denominator: i64) -> i32 {
    let (numerator, denominator) = ((numerator * 255) << SHIFT, denominator * i64::from(SCALE));
    small((2 * numerator + denominator) / (2 * denominator))
}

fn small(n: i64) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

/// What a sample is multiplied with.
pub(crate) const SCALE: i32 = 16;

/// With 10 bits and [`SCALE`] a sample has 14 bits, and a factor at most 17: the sum of three products fits into 32.
const SHIFT: u32 = 21;

const WHOLE: i64 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn rgb(to_rgb: ToRgb, yuv: [i32; 3]) -> [u8; 3] {
        let [y, u, v] = yuv.map(|sample| sample * SCALE);
        to_rgb.rgb(y, u, v)
    }

    /// Y, U and V of a colour by the definition, in floating point, rounded to whole numbers.
    fn yuv(matrix: Matrix, range: Range, bits: u32, rgb: [u8; 3]) -> [i32; 3] {
        let [r, g, b] = rgb.map(|value| f64::from(value) / 255.0);
        let [kr, kb] = [matrix.red, matrix.blue].map(|k| f64::from(small(k)) / 10_000.0);
        let y = kr * r + (1.0 - kr - kb) * g + kb * b;
        let (u, v) = ((b - y) / (2.0 * (1.0 - kb)), (r - y) / (2.0 * (1.0 - kr)));
        let depth = f64::from(1 << (bits - 8));
        let (black, luma, chroma) = match range {
            Range::Limited => (16.0 * depth, 219.0 * depth, 224.0 * depth),
            Range::Full => (0.0, 256.0 * depth - 1.0, 256.0 * depth - 1.0),
        };
        #[expect(clippy::as_conversions, reason = "whole numbers below 1024")]
        [black + luma * y, 128.0 * depth + chroma * u, 128.0 * depth + chroma * v]
            .map(|value| value.round() as i32)
    }

    #[test]
    fn the_primaries_of_bt601_in_limited_range_have_the_numbers_that_everybody_knows() {
        let to_rgb = ToRgb::new(Matrix::BT601, Range::Limited, 8);
        for (samples, colour) in [
            ([16, 128, 128], [0, 0, 0]),
            ([235, 128, 128], [255, 255, 255]),
            ([126, 128, 128], [128, 128, 128]),
            ([81, 90, 240], [254, 0, 0]),
            ([145, 54, 34], [0, 255, 1]),
            ([41, 240, 110], [0, 0, 255]),
            ([180, 128, 128], [191, 191, 191]),
        ] {
            assert_eq!(rgb(to_rgb, samples), colour, "{samples:?}");
        }
    }

    #[test]
    fn the_primaries_of_bt709_in_limited_range_have_the_numbers_that_everybody_knows() {
        let to_rgb = ToRgb::new(Matrix::BT709, Range::Limited, 8);
        for (samples, colour) in [
            ([16, 128, 128], [0, 0, 0]),
            ([235, 128, 128], [255, 255, 255]),
            ([63, 102, 240], [255, 1, 0]),
            ([173, 42, 26], [0, 255, 1]),
            ([32, 240, 118], [1, 0, 255]),
        ] {
            assert_eq!(rgb(to_rgb, samples), colour, "{samples:?}");
        }
    }

    #[test]
    fn full_range_uses_every_number() {
        for matrix in [Matrix::BT601, Matrix::BT709] {
            let to_rgb = ToRgb::new(matrix, Range::Full, 8);
            for grey in 0..=255 {
                let expected = u8::try_from(grey).unwrap();
                assert_eq!(rgb(to_rgb, [grey, 128, 128]), [expected; 3]);
            }
        }
        let to_rgb = ToRgb::new(Matrix::BT601, Range::Full, 8);
        assert_eq!(rgb(to_rgb, [76, 85, 255]), [254, 0, 0], "red");
        assert_eq!(rgb(to_rgb, [29, 255, 107]), [0, 0, 254], "blue");
    }

    #[test]
    fn what_is_beyond_black_and_white_is_cut_and_nothing_overflows() {
        for matrix in [Matrix::BT601, Matrix::BT709] {
            for (range, bits) in
                [(Range::Limited, 8), (Range::Full, 8), (Range::Limited, 10), (Range::Full, 10)]
            {
                let to_rgb = ToRgb::new(matrix, range, bits);
                let top = (256 << (bits - 8)) - 1;
                assert_eq!(rgb(to_rgb, [0, 128 << (bits - 8), 128 << (bits - 8)]), [0; 3]);
                assert_eq!(rgb(to_rgb, [top, 128 << (bits - 8), 128 << (bits - 8)]), [255; 3]);
                for corner in 0..8 {
                    let samples = [1, 2, 4].map(|bit| if corner & bit == 0 { 0 } else { top });
                    let _ = rgb(to_rgb, samples);
                }
            }
        }
    }

    #[test]
    fn every_colour_comes_back_from_its_samples_as_near_as_they_allow() {
        let steps = || (0..=255).step_by(17);
        for matrix in [Matrix::BT601, Matrix::BT709] {
            // With 10 bits the samples hold more than the colours.
            for (range, bits, tolerance) in
                [(Range::Limited, 8, 2), (Range::Full, 8, 1), (Range::Limited, 10, 0)]
            {
                let to_rgb = ToRgb::new(matrix, range, bits);
                for colour in steps().flat_map(|r| steps().flat_map(move |g| steps().map(move |b| [r, g, b])))
                {
                    let back = rgb(to_rgb, yuv(matrix, range, bits, colour));
                    let is_near = back.iter().zip(colour).all(|(a, b)| a.abs_diff(b) <= tolerance);
                    assert!(is_near, "{matrix:?} {range:?} {bits}: {colour:?} came back as {back:?}");
                }
            }
        }
    }
}
