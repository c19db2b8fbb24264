//! Widths of activations.

use cuframes_bridge::wire::Width;
use proptest::prelude::*;

use crate::any::cases;

fn encode(width: Width, value: f32) -> Vec<u8> {
    let mut bytes = Vec::new();
    width.encode(&[value], &mut bytes);
    bytes
}

fn f8(value: f32) -> u8 {
    encode(Width::F8, value)[0]
}

fn bf16(value: f32) -> u16 {
    u16::from_le_bytes(encode(Width::BF16, value).try_into().unwrap())
}

#[test]
fn a_width_is_its_number_of_bits_and_none_is_32() {
    for (bits, width, bytes) in [(32, Width::F32, 4), (16, Width::BF16, 2), (8, Width::F8, 1)] {
        assert_eq!((Width::from_bits(bits), width.bits(), width.bytes()), (Some(width), bits, bytes));
    }
    assert_eq!(Width::from_bits(0), Some(Width::F32));
    for bits in [1, 4, 7, 9, 15, 24, 31, 33, 64, u32::MAX] {
        assert_eq!(Width::from_bits(bits), None);
    }
}

#[test]
fn sixteen_bits_are_the_upper_half_rounded_to_even() {
    assert_eq!(bf16(1.0 + 1.0 / 256.0), 0x3f80);
    assert_eq!(bf16(1.0 + 3.0 / 256.0), 0x3f82);
    for (value, bits) in [(1.0, 0x3f80), (-2.0, 0xc000), (0.5, 0x3f00), (3.0, 0x4040), (-0.0, 0x8000)] {
        assert_eq!(bf16(value), bits);
        assert_eq!(Width::BF16.decode(&encode(Width::BF16, value)), [value]);
    }
    // The largest that there are become infinite.
    assert_eq!((bf16(f32::MAX), bf16(f32::NEG_INFINITY)), (0x7f80, 0xff80));
}

#[test]
fn what_is_no_number_remains_none_in_sixteen_bits() {
    for bits in [0x7f80_0001, 0x7fff_ffff, 0xff80_0001, 0xffff_ffff, 0x7fc0_0000] {
        assert!(Width::BF16.decode(&encode(Width::BF16, f32::from_bits(bits)))[0].is_nan());
    }
}

#[test]
fn eight_bits_are_a_sign_four_of_exponent_and_three_of_mantissa() {
    let known = [
        (1.0, 0x38),
        (-2.0, 0xc0),
        (3.0, 0x44),
        (240.0, 0x77),
        (0.001, 0x01),
        (0.007_812_5, 0x04),
        (-0.3, 0xaa),
        (0.0, 0),
        (-0.0, 0x80),
    ];
    for (value, code) in known {
        assert_eq!(f8(value), code, "{value}");
    }
}

#[test]
fn what_is_too_large_or_no_number_becomes_240() {
    for value in
        [240.0, 241.0, f32::MAX, f32::INFINITY, f32::from_bits(0x7fc0_0000), f32::from_bits(0x7f80_0001)]
    {
        assert_eq!((f8(value), f8(-value)), (0x77, 0xf7));
    }
    // The exponent that is not written is read so, too.
    for code in 0x78..=0x7f {
        assert_eq!(Width::F8.decode(&[code, code | 0x80]), [240.0, -240.0]);
    }
}

#[test]
fn halves_go_away_from_zero_and_the_largest_below_the_first_exponent_is_seven_steps() {
    let step = 1.0 / 512.0;
    assert_eq!((f8(0.5 * step), f8(1.5 * step), f8(2.5 * step), f8(7.5 * step)), (1, 2, 3, 7));
    assert_eq!((f8(0.49 * step), f8(8.0 * step)), (0, 8));
    // 17/16 and 19/16 lie between two of eight parts; 31/16 becomes 2.
    assert_eq!((f8(1.0625), f8(1.1875), f8(1.9375), f8(1.93)), (0x39, 0x3a, 0x40, 0x3f));
    assert_eq!((f8(231.9), f8(232.0), f8(239.9)), (0x76, 0x77, 0x77));
}

#[test]
fn every_code_of_eight_bits_that_is_written_comes_back() {
    for code in (0..=u8::MAX).filter(|code| code & 0x78 != 0x78) {
        let value = Width::F8.decode(&[code])[0];
        assert_eq!(f8(value), code, "{value}");
    }
}

#[test]
fn bytes_that_make_no_whole_value_are_not_looked_at() {
    assert_eq!(Width::F32.decode(&[0, 0, 128, 63, 1, 2, 3]), [1.0]);
    assert_eq!(Width::BF16.decode(&[128, 63, 7]), [1.0]);
    assert!(Width::F8.decode(&[]).is_empty());
}

proptest! {
    #![proptest_config(cases(512))]

    #[test]
    fn thirty_two_bits_are_what_they_were(bits in any::<u32>()) {
        let bytes = encode(Width::F32, f32::from_bits(bits));
        prop_assert_eq!(&bytes[..], bits.to_le_bytes());
        prop_assert_eq!(Width::F32.decode(&bytes)[0].to_bits(), bits);
    }

    #[test]
    fn sixteen_bits_lie_within_half_a_step(bits in any::<u32>()) {
        let value = f32::from_bits(bits);
        prop_assume!(value.is_finite() && bf16(value) & 0x7f80 != 0x7f80);
        let step = 2_f64.powi(i32::try_from((bits >> 23 & 0xff).max(1)).unwrap() - 127 - 7);
        let back = Width::BF16.decode(&encode(Width::BF16, value))[0];
        prop_assert!((f64::from(back) - f64::from(value)).abs() <= step / 2.0);
    }

    #[test]
    fn eight_bits_lie_within_half_a_step(mantissa in 1.0..2.0_f32, exponent in -12..=7_i32, sign in any::<bool>()) {
        let value = mantissa * 2_f32.powi(exponent);
        prop_assume!(value < 240.0);
        let value = if sign { -value } else { value };
        let back = Width::F8.decode(&encode(Width::F8, value))[0];
        // At the border below the first exponent there is no code for the upper half of the last step.
        let step = 2_f32.powi(exponent.max(-6) - 3);
        let most = if (7.5..8.0).contains(&(value.abs() * 512.0)) { step } else { step / 2.0 };
        prop_assert!((back - value).abs() <= most, "{value} became {back}");
    }
}
