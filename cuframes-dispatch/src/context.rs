//! [`Context`]: `DAISY_CONTEXT`, the variable of the environment that tells a worker where its server is.

use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::fmt;

/// What a worker is told: `key=value` pairs joined by `:`, with `%`, `:` and `=` escaped. Pairs of other keys are kept.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Context {
    pairs: Vec<(String, String)>,
}

/// A text that is no context.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ContextError {
    /// A part without `=`.
    Pair(String),
    /// A key that is needed is not there.
    Missing(&'static str),
    /// A value that is not a number of this key's range.
    Number {
        /// The key.
        key: &'static str,
        /// Its value.
        value: String,
    },
}

impl fmt::Display for ContextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pair(part) => write!(f, "{NAME}: {part:?} has no \"=\""),
            Self::Missing(key) => write!(f, "{NAME}: there is no {key}"),
            Self::Number { key, value } => {
                write!(f, "{NAME}: {key} is {value:?}, which is no number in its range")
            }
        }
    }
}

impl core::error::Error for ContextError {}

impl Context {
    /// Where the server is, which task it is for, and the number of the worker.
    #[must_use]
    pub fn new(hostname: &str, port: u16, task_id: &str, worker_id: u64) -> Self {
        let pairs = [
            ("hostname", hostname.to_string()),
            ("port", port.to_string()),
            ("task_id", task_id.to_string()),
            ("worker_id", worker_id.to_string()),
            ("resource_tracking", "0".to_string()),
            ("logdir", String::new()),
        ];
        Self { pairs: pairs.map(|(key, value)| (key.to_string(), value)).into() }
    }

    /// Reads what [`Display`](fmt::Display) writes, in any order.
    ///
    /// # Errors
    /// [`ContextError::Pair`].
    pub fn parse(text: &str) -> Result<Self, ContextError> {
        let pair = |part: &str| {
            let (key, value) = part.split_once('=').ok_or_else(|| ContextError::Pair(part.to_string()))?;
            Ok((unescape(key), unescape(value)))
        };
        let parts = text.split(':').filter(|part| !part.is_empty());
        Ok(Self { pairs: parts.map(pair).collect::<Result<_, _>>()? })
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.pairs.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// The host of the server.
    ///
    /// # Errors
    /// If it is not there.
    pub fn hostname(&self) -> Result<&str, ContextError> {
        self.get("hostname").ok_or(ContextError::Missing("hostname"))
    }

    /// The port of the server.
    ///
    /// # Errors
    /// If it is not there, or is no port.
    pub fn port(&self) -> Result<u16, ContextError> {
        self.number("port")
    }

    /// The task of the worker.
    ///
    /// # Errors
    /// If it is not there.
    pub fn task_id(&self) -> Result<&str, ContextError> {
        self.get("task_id").ok_or(ContextError::Missing("task_id"))
    }

    /// The number of the worker.
    ///
    /// # Errors
    /// If it is not there, or is no number.
    pub fn worker_id(&self) -> Result<u64, ContextError> {
        self.number("worker_id")
    }

    fn number<T: core::str::FromStr>(&self, key: &'static str) -> Result<T, ContextError> {
        let value = self.get(key).ok_or(ContextError::Missing(key))?;
        value.parse().map_err(|_| ContextError::Number { key, value: value.to_string() })
    }
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (key, value)) in self.pairs.iter().enumerate() {
            let colon = if n == 0 { "" } else { ":" };
            write!(f, "{colon}{}={}", escape(key), escape(value))?;
        }
        Ok(())
    }
}

fn escape(text: &str) -> String {
    text.replace('%', "%25").replace(':', "%3A").replace('=', "%3D")
}

/// Other escapes stay as they are.
fn unescape(text: &str) -> String {
    let mut parts = text.split('%');
    let mut out = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let known = [("25", '%'), ("3A", ':'), ("3D", '=')];
        match known.iter().find_map(|(code, c)| Some((*c, part.strip_prefix(code)?))) {
            Some((c, rest)) => {
                out.push(c);
                out.push_str(rest);
            }
            None => {
                out.push('%');
                out.push_str(part);
            }
        }
    }
    out
}

/// The name of the variable.
pub const NAME: &str = "DAISY_CONTEXT";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_whatever_is_in_it() {
        let context = Context::new("a:b=c%d", 5, "t%3A", 7);
        let text = context.to_string();
        assert!(text.starts_with("hostname=a%3Ab%3Dc%25d:port=5:task_id=t%253A:worker_id=7:"));
        assert_eq!(Context::parse(&text), Ok(context));
    }

    #[test]
    fn any_order_and_other_keys_and_escapes_are_fine() {
        let context = Context::parse("new=1:task_id=t%20%3D:port=80:hostname=::worker_id=x").unwrap();
        assert_eq!((context.task_id(), context.port()), (Ok("t%20="), Ok(80)));
        assert_eq!(context.get("new"), Some("1"));
        assert_eq!(context.worker_id(), Err(ContextError::Number { key: "worker_id", value: "x".into() }));
        assert_eq!(Context::parse("port").unwrap_err(), ContextError::Pair("port".into()));
        assert_eq!(Context::default().hostname(), Err(ContextError::Missing("hostname")));
    }
}
