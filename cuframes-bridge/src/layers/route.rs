//! [`Registry`]: the workers that a coordinator knows, and [`Path`]: those that together have all layers.

use alloc::collections::BTreeSet;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::fmt;

use cuframes_core::streams::ConnId;

use crate::wire::{Hello, Hop};

/// The workers that are there. Whatever changes has a new [`generation`](Self::generation), which ends the paths that were
/// found before.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    workers: Vec<Member>,
    generation: u64,
}

/// A worker that is registered.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Member {
    /// Its control connection.
    pub conn: ConnId,
    /// Where its data port is; nothing can be sent to it before that is known.
    pub host: Option<String>,
    /// What it said of itself.
    pub hello: Hello,
}

/// Which layers workers are needed for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// The first layer that the coordinator does not compute itself.
    pub first_layer: u32,
    /// How many layers the model has.
    pub n_layers: u32,
    /// Whether the last worker must have the output head.
    pub needs_output: bool,
}

/// Workers that have all layers of a [`Span`], in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Path {
    hops: Vec<Member>,
    generation: u64,
}

/// Why there is no path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RouteError {
    /// No worker begins with a layer that is needed.
    Missing {
        /// The layer: the furthest that was reached.
        layer: u32,
        /// How many workers are there whose host is not known.
        unplaced: usize,
    },
    /// All layers are there, but not the output head.
    NoOutput,
}

impl fmt::Display for RouteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { layer, unplaced: 0 } => write!(f, "no worker begins with layer {layer}"),
            Self::Missing { layer, unplaced } => {
                write!(f, "no worker begins with layer {layer}; of {unplaced} the host is not known")
            }
            Self::NoOutput => f.write_str("no worker with the last layer has the output head"),
        }
    }
}

impl core::error::Error for RouteError {}

impl Registry {
    /// The workers, in the order in which they came.
    #[must_use]
    pub fn workers(&self) -> &[Member] {
        &self.workers
    }

    /// One of them.
    #[must_use]
    pub fn get(&self, conn: ConnId) -> Option<&Member> {
        self.workers.iter().find(|member| member.conn == conn)
    }

    /// Counts the changes.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// Registers a worker. Answers those that it replaces: of the same host, model, layers and output head.
    pub fn insert(&mut self, conn: ConnId, host: Option<String>, hello: Hello) -> Vec<ConnId> {
        self.generation += 1;
        self.workers.retain(|member| member.conn != conn);
        self.workers.push(Member { conn, host, hello });
        self.replace(conn)
    }

    /// Says where the data port of a worker is. Answers those that it replaces.
    pub fn place(&mut self, conn: ConnId, host: &str) -> Vec<ConnId> {
        let Some(member) = self.workers.iter_mut().find(|member| member.conn == conn) else {
            return Vec::new();
        };
        if member.host.as_deref() == Some(host) {
            return Vec::new();
        }
        member.host = Some(host.into());
        self.generation += 1;
        self.replace(conn)
    }

    /// A worker is gone.
    pub fn remove(&mut self, conn: ConnId) -> Option<Member> {
        let at = self.workers.iter().position(|member| member.conn == conn)?;
        self.generation += 1;
        Some(self.workers.remove(at))
    }

    /// Looks for workers for `span`: depth first, each continuing exactly after the one before, the longest first.
    ///
    /// # Errors
    /// If there are none: [`RouteError`] names what is missing.
    pub fn find(&self, span: Span) -> Result<Path, RouteError> {
        let mut search = Search { span, workers: Vec::new(), hopeless: BTreeSet::new(), furthest: None };
        search.workers.extend(self.workers.iter().filter(|member| member.host.is_some()));
        // Stable: of those that are equal the oldest comes first.
        search.workers.sort_by_key(|member| (member.hello.layer_start, Reverse(member.hello.layer_end)));
        let mut hops = Vec::new();
        if search.extend(span.first_layer, &mut hops) {
            let hops = hops.into_iter().cloned().collect();
            return Ok(Path { hops, generation: self.generation });
        }
        let unplaced = self.workers.len() - search.workers.len();
        let layer = search.furthest.unwrap_or(span.first_layer);
        if layer < span.n_layers {
            Err(RouteError::Missing { layer, unplaced })
        } else {
            Err(RouteError::NoOutput)
        }
    }

    fn replace(&mut self, by: ConnId) -> Vec<ConnId> {
        let Some(new) = self.get(by).filter(|member| member.host.is_some()).cloned() else {
            return Vec::new();
        };
        let mut replaced = Vec::new();
        self.workers.retain(|member| {
            let is_same = member.conn != by && member.host == new.host && is_same(&member.hello, &new.hello);
            if is_same {
                replaced.push(member.conn);
            }
            !is_same
        });
        replaced
    }
}

impl Path {
    /// The workers.
    #[must_use]
    pub fn hops(&self) -> &[Member] {
        &self.hops
    }

    /// Whether a registry has not changed since this was found.
    #[must_use]
    pub const fn is_current(&self, registry: &Registry) -> bool {
        self.generation == registry.generation
    }

    /// The same for a WORK; where `logits` are wanted, the last hop returns them.
    #[must_use]
    pub fn route(&self, logits: bool) -> Vec<Hop> {
        let last = self.hops.len().saturating_sub(1);
        let hops = self.hops.iter().enumerate().map(|(at, member)| Hop {
            host: member.host.clone().unwrap_or_default(),
            port: member.hello.listen_port,
            layer_start: member.hello.layer_start,
            layer_end: member.hello.layer_end,
            flags: if logits && at == last { HOP_LOGITS } else { 0 },
        });
        hops.collect()
    }
}

struct Search<'a> {
    span: Span,
    workers: Vec<&'a Member>,
    /// Layers after which nothing was found.
    hopeless: BTreeSet<u32>,
    furthest: Option<u32>,
}

impl<'a> Search<'a> {
    fn extend(&mut self, layer: u32, hops: &mut Vec<&'a Member>) -> bool {
        self.furthest = self.furthest.max(Some(layer));
        if layer >= self.span.n_layers {
            return !self.span.needs_output || hops.last().is_some_and(|last| last.hello.has_output == 1);
        }
        // The end of all layers is no dead end: it depends on who is the last one.
        if self.hopeless.contains(&layer) {
            return false;
        }
        let first = self.workers.partition_point(|member| member.hello.layer_start < layer);
        let mut at = first;
        while let Some(member) =
            self.workers.get(at).copied().filter(|member| member.hello.layer_start == layer)
        {
            hops.push(member);
            // Every worker's range was checked: it does not end before it begins.
            if member.hello.layer_end >= layer && self.extend(member.hello.layer_end.saturating_add(1), hops)
            {
                return true;
            }
            hops.pop();
            at += 1;
        }
        self.hopeless.insert(layer);
        false
    }
}

/// `tcp://HOST:PORT`, as the driver reads it.
pub(crate) fn address(host: &str, port: u32) -> String {
    let is_v6 = host.contains(':') && !host.starts_with('[');
    let (open, close) = if is_v6 { ("[", "]") } else { ("", "") };
    ["tcp://", open, host, close, ":", &port.to_string()].concat()
}

fn is_same(a: &Hello, b: &Hello) -> bool {
    let key = |hello: &Hello| (hello.model_id, hello.layer_start, hello.layer_end, hello.has_output);
    key(a) == key(b)
}

/// Flag of a hop that returns logits.
pub(crate) const HOP_LOGITS: u32 = 1;

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn hello(layers: (u32, u32), has_output: u32) -> Hello {
        Hello {
            model_id: 1,
            quant_bits: 4,
            layer_start: layers.0,
            layer_end: layers.1,
            has_output,
            has_hidden: 1,
            ctx_size: 100,
            n_layers: 43,
            listen_port: 1000,
            model_name: "m".into(),
        }
    }

    /// A registry of workers with these layers on hosts of their own, and what the search for layers from `first` finds.
    fn find(first: u32, needs_output: bool, workers: &[(u32, u32, u32)]) -> Result<Vec<u64>, RouteError> {
        let mut registry = Registry::default();
        for (number, (start, end, has_output)) in (0..).zip(workers) {
            let host = Some(alloc::format!("10.0.0.{number}"));
            assert_eq!(registry.insert(ConnId::new(number), host, hello((*start, *end), *has_output)), []);
        }
        let path = registry.find(Span { first_layer: first, n_layers: 43, needs_output })?;
        Ok(path.hops().iter().map(|hop| hop.conn.get()).collect())
    }

    #[test]
    fn a_path_goes_on_exactly_where_the_worker_before_ends_with_the_longest_first() {
        assert_eq!(find(0, true, &[(21, 42, 1), (0, 20, 0)]), Ok(vec![1, 0]));
        assert_eq!(find(0, true, &[(0, 9, 0), (10, 42, 1), (0, 20, 0), (21, 42, 1)]), Ok(vec![2, 3]));
        // The longest leads nowhere.
        assert_eq!(find(0, true, &[(0, 9, 0), (10, 42, 1), (0, 20, 0)]), Ok(vec![0, 1]));
        // An overlap is no continuation.
        assert_eq!(
            find(0, true, &[(0, 20, 0), (20, 42, 1)]),
            Err(RouteError::Missing { layer: 21, unplaced: 0 })
        );
        assert_eq!(find(5, true, &[(0, 42, 1), (5, 42, 1)]), Ok(vec![1]));
        assert_eq!(find(43, false, &[]), Ok(vec![]));
        // Of equal ones the first that came.
        assert_eq!(find(0, true, &[(0, 42, 1), (0, 42, 1)]), Ok(vec![0]));
    }

    #[test]
    fn the_layer_that_is_missing_is_named() {
        for (workers, layer) in [
            (&[][..], 0),
            (&[(1, 42, 1)], 0),
            (&[(0, 9, 0), (11, 42, 1)], 10),
            (&[(0, 9, 0), (0, 20, 0), (10, 15, 0)], 21),
            (&[(0, 41, 0)], 42),
        ] {
            let error = find(0, true, workers).unwrap_err();
            assert_eq!(error, RouteError::Missing { layer, unplaced: 0 });
            assert_eq!(error.to_string(), alloc::format!("no worker begins with layer {layer}"));
        }
    }

    #[test]
    fn the_output_head_is_looked_for_too_where_it_is_needed() {
        assert_eq!(find(0, true, &[(0, 42, 0)]), Err(RouteError::NoOutput));
        assert_eq!(find(0, false, &[(0, 42, 0)]), Ok(vec![0]));
        assert_eq!(find(0, true, &[(0, 42, 0), (0, 20, 0), (21, 42, 0), (21, 42, 1)]), Ok(vec![1, 3]));
    }

    #[test]
    fn many_dead_ends_are_each_tried_once() {
        // Two workers for each layer but the last one: 2^42 ways that lead nowhere.
        let workers: Vec<_> = (0..42).flat_map(|layer| [(layer, layer, 0); 2]).collect();
        assert_eq!(find(0, true, &workers), Err(RouteError::Missing { layer: 42, unplaced: 0 }));
    }

    #[test]
    fn a_worker_replaces_the_one_that_was_in_its_place() {
        let mut registry = Registry::default();
        let conn = ConnId::new;
        let host = || Some("h".into());
        assert_eq!(registry.insert(conn(0), host(), hello((0, 20), 0)), []);
        for (number, host, hello) in [
            (1, None, hello((0, 20), 0)),
            (2, Some("g".into()), hello((0, 20), 0)),
            (3, host(), hello((0, 21), 0)),
            (4, host(), hello((0, 20), 1)),
            (5, host(), Hello { model_id: 2, ..hello((0, 20), 0) }),
        ] {
            assert_eq!(registry.insert(conn(number), host, hello), []);
        }
        // Another port, or name, is no other worker.
        let same = Hello { listen_port: 7, model_name: "n".into(), ..hello((0, 20), 0) };
        assert_eq!(registry.insert(conn(6), host(), same), [conn(0)]);
        assert!(registry.get(conn(0)).is_none());
        assert_eq!(registry.place(conn(1), "h"), [conn(6)]);
        assert_eq!(registry.workers().len(), 5);
    }

    #[test]
    fn every_change_ends_the_paths_that_were_found_before() {
        let mut registry = Registry::default();
        let span = Span { first_layer: 0, n_layers: 43, needs_output: true };
        let (a, b) = (ConnId::new(0), ConnId::new(1));
        registry.insert(a, None, hello((0, 42), 1));
        let error = registry.find(span).unwrap_err();
        assert_eq!(error, RouteError::Missing { layer: 0, unplaced: 1 });
        assert_eq!(error.to_string(), "no worker begins with layer 0; of 1 the host is not known");
        registry.place(a, "h");
        let path = registry.find(span).unwrap();
        assert!(path.is_current(&registry));
        let before = registry.generation();
        assert_eq!((registry.place(a, "h"), registry.generation()), (vec![], before));
        registry.insert(b, None, hello((0, 42), 1));
        assert!(!path.is_current(&registry));
        let path = registry.find(span).unwrap();
        assert_eq!(path.hops()[0].conn, a);
        assert!(registry.remove(b).is_some() && registry.remove(b).is_none());
        assert!(!path.is_current(&registry));
        assert_eq!(registry.generation(), before + 2);
    }

    #[test]
    fn addresses_are_written_as_the_driver_reads_them() {
        assert_eq!(address("10.0.0.2", 41001), "tcp://10.0.0.2:41001");
        assert_eq!(address("::1", 1), "tcp://[::1]:1");
        assert_eq!(address("[::1]", 1), "tcp://[::1]:1");
    }
}
