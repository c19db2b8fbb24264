//! [`Failure`]: why a command did not do its job, in one line, with the exit code that goes with it.

use std::fmt;
use std::process::ExitCode;

/// Why a command failed: `<what failed>: <cause>; <what to do>`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Failure {
    /// The arguments can't be used, whatever the state of the machine is.
    Usage(String),
    /// Something went wrong while the command ran.
    Failed(String),
}

impl Failure {
    /// 2 for wrong usage, 1 for everything else.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage(_) => ExitCode::from(2),
            Self::Failed(_) => ExitCode::FAILURE,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Usage(text) | Self::Failed(text)) = self;
        OneLine(text).fmt(f)
    }
}

/// A text with control characters escaped, and those that turn text around, that may be somebody else's (a file name, a peer's words).
pub(crate) struct OneLine<'a>(pub(crate) &'a str);

impl fmt::Display for OneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            if is_unfit(c) {
                write!(f, "{}", c.escape_default())?;
            } else {
                write!(f, "{c}")?;
            }
        }
        Ok(())
    }
}

/// A text with such characters replaced, where it has to keep its length.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if is_unfit(c) { '?' } else { c }).collect()
}

/// Whether a character is not for terminals: it controls them, ends a line, or lets others appear in another order.
fn is_unfit(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200E}' | '\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

/// Shorthand for a [`Failure::Failed`] with a formatted text.
macro_rules! failed {
    ($($text:tt)*) => { $crate::error::Failure::Failed(format!($($text)*)) };
}
pub(crate) use failed;

#[cfg(test)]
mod tests {
    #[test]
    fn a_failure_is_one_line_whatever_its_cause_contains() {
        assert_eq!(failed!("{}: gone", "a\nb\u{1b}[2J").to_string(), r"a\nb\u{1b}[2J: gone");
        assert_eq!(failed!("{}", "\u{202e}txt\u{2028}").to_string(), r"\u{202e}txt\u{2028}");
        assert_eq!(super::printable("\u{202e}t\u{1b}ä\u{2028}"), "?t?ä?");
    }
}
