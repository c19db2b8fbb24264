//! Containers, namespaces and processors.

use std::fs;
use std::path::Path;
use std::thread::available_parallelism;

use super::Check;

pub(super) fn checks() -> Vec<Check> {
    vec![container(), namespaces(), processors()]
}

fn container() -> Check {
    let what = "container";
    let mark = |path: &str| Path::new(path).exists();
    let kind = if mark("/.dockerenv") {
        Some("Docker")
    } else if mark("/run/.containerenv") {
        Some("Podman")
    } else if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        Some("Kubernetes")
    } else {
        None
    };
    match kind {
        None => Check::ok(what, "none that is known"),
        Some(kind) => Check::ok(
            what,
            format!("{kind}: share the run directory with the other containers (docs/operations.md)"),
        ),
    }
}

fn namespaces() -> Check {
    let what = "namespaces";
    let number = |kind: &str| {
        let name = fs::read_link(format!("/proc/self/ns/{kind}")).ok()?;
        name.to_str()?.split(['[', ']']).nth(1)?.parse::<u64>().ok()
    };
    // The first of each kind has a number that is fixed in Linux.
    let own: Vec<_> = [("pid", 4_026_531_836), ("ipc", 4_026_531_839), ("user", 4_026_531_837)]
        .into_iter()
        .filter(|(kind, first)| number(kind).is_some_and(|number| number != *first))
        .map(|(kind, _)| kind)
        .collect();
    if own.is_empty() {
        return Check::ok(what, "those of the host");
    }
    let found = format!("of its own: {}", own.join(", "));
    if own.contains(&"pid") || own.contains(&"ipc") {
        let remedy =
            "frames in GPU memory over legacy IPC handles need a common pid and ipc namespace; others do not";
        return Check::warning(what, found, remedy);
    }
    Check::ok(what, found)
}

fn processors() -> Check {
    let what = "processors";
    match available_parallelism().map(usize::from) {
        Ok(1) => {
            Check::warning(what, "1", "looking for frames without sleeping (--spin) is of no use with one")
        }
        Ok(n) => Check::ok(what, n.to_string()),
        Err(error) => Check::warning(what, error.to_string(), "mount /proc"),
    }
}
