//! Integers from the wire as newtypes, and the few conversions between integer widths.
//!
//! An unknown value survives a round trip and prints, so a newer peer is never misread (§6.3).

/// Declares newtypes over wire integers with named constants; `Display` prints the name, or the bare number.
macro_rules! wire_number {
    ($(
        $(#[$meta:meta])*
        pub struct $name:ident($int:ty) {
            $( $(#[$const_meta:meta])* $constant:ident = $value:literal, $text:literal; )*
        }
    )*) => { $(
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $int);

        impl $name {
            $( $(#[$const_meta])* pub const $constant: Self = Self($value); )*

            /// The name of a known value.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $( $value => Some($text), )*
                    _ => None,
                }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.name() {
                    Some(name) => f.pad(name),
                    None => write!(f, "{}", self.0),
                }
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.name() {
                    Some(name) => write!(f, "{name}({})", self.0),
                    None => write!(f, "{}({})", stringify!($name), self.0),
                }
            }
        }
    )* };
}
pub(crate) use wire_number;

const _: () =
    assert!(usize::BITS == 64, "cuframes needs a 64-bit target: the region is made of 64-bit atomic words");

/// `usize` to `u64`, lossless on the targets we build for (asserted above).
#[expect(clippy::as_conversions, reason = "lossless: usize has 64 bits, asserted at compile time")]
pub(crate) const fn to_u64(n: usize) -> u64 {
    n as u64
}

/// `u64` to `usize`, lossless on the targets we build for (asserted above).
#[expect(clippy::as_conversions, reason = "lossless: usize has 64 bits, asserted at compile time")]
pub(crate) const fn to_usize(n: u64) -> usize {
    n as usize
}
