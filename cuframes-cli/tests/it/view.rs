//! `view` in a real terminal.
