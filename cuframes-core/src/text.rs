//! Texts that have a longest length on the wire.

/// As much of `text` as fits into `max` bytes, up to a whole character.
#[must_use]
pub fn cut(text: &str, max: usize) -> &str {
    let end = (0..=text.len().min(max)).rev().find(|end| text.is_char_boundary(*end));
    text.get(..end.unwrap_or(0)).unwrap_or_default()
}
