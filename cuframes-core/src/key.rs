//! [`Key`], the name of a stream (§1).

use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;

/// The name of a stream: 1 to 63 bytes of `[a-zA-Z0-9_-]` (§1). It names the socket and the region.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(String);

impl Key {
    /// The most bytes a key may have (§1).
    pub const MAX_LEN: usize = 63;

    /// The key as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// File name of the stream's socket inside the run directory (§1).
    #[must_use]
    pub fn socket_file(&self) -> String {
        alloc::format!("{}.sock", self.0)
    }

    /// Name of the stream's region inside `/dev/shm` (§1).
    #[must_use]
    pub fn region_file(&self) -> String {
        alloc::format!("cuframes-{}", self.0)
    }

    /// Name of the lock inside `/dev/shm` that guards the region (D-13).
    #[must_use]
    pub fn region_lock_file(&self) -> String {
        alloc::format!("cuframes-{}.lock", self.0)
    }
}

impl FromStr for Key {
    type Err = InvalidKey;

    fn from_str(text: &str) -> Result<Self, InvalidKey> {
        if text.is_empty() {
            return Err(InvalidKey::Empty);
        }
        if text.len() > Self::MAX_LEN {
            return Err(InvalidKey::TooLong { len: text.len() });
        }
        match text.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))) {
            Some(character) => Err(InvalidKey::Character { character }),
            None => Ok(Self(text.to_string())),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.0)
    }
}

/// Why a text is not a [`Key`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum InvalidKey {
    /// The text is empty.
    Empty,
    /// The text has more than [`Key::MAX_LEN`] bytes.
    TooLong {
        /// Its length in bytes.
        len: usize,
    },
    /// The text has a character outside `[a-zA-Z0-9_-]`.
    Character {
        /// The first such character.
        character: char,
    },
}

impl fmt::Display for InvalidKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a stream key is empty")?,
            Self::TooLong { len } => write!(f, "a stream key has {len} bytes")?,
            Self::Character { character } => write!(f, "a stream key contains {character:?}")?,
        }
        write!(f, "; use 1 to {} of a-z, A-Z, 0-9, '_' and '-'", Key::MAX_LEN)
    }
}

impl core::error::Error for InvalidKey {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_1_to_63_plain_characters_are_accepted() {
        for text in ["a", "cam-0_B", &"x".repeat(63)] {
            assert_eq!(text.parse::<Key>().unwrap().as_str(), text);
        }
        let key: Key = "cam0".parse().unwrap();
        assert_eq!((key.socket_file(), key.region_file()), ("cam0.sock".into(), "cuframes-cam0".into()));
    }

    #[test]
    fn anything_else_is_refused_with_the_cause() {
        assert_eq!("".parse::<Key>(), Err(InvalidKey::Empty));
        assert_eq!("x".repeat(64).parse::<Key>(), Err(InvalidKey::TooLong { len: 64 }));
        for (text, character) in [("a/b", '/'), ("..", '.'), ("a b", ' '), ("камера", 'к'), ("a\0", '\0')]
        {
            assert_eq!(text.parse::<Key>(), Err(InvalidKey::Character { character }), "{text:?}");
        }
    }
}
