//! What the kernel can do, tried out.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use nix::sys::socket::{getsockopt, sockopt};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::process::{PidfdFlags, getpid, pidfd_open};

use super::Check;

pub(super) fn checks() -> Vec<Check> {
    vec![release(), seals(), pidfd(), peer(), clock(), pages()]
}

fn release() -> Check {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Check::ok("kernel", format!("Linux {}", release.trim()))
}

fn seals() -> Check {
    let what = "sealed memory";
    let tried =
        memfd_create("cuframes-doctor", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).and_then(|fd| {
            ftruncate(&fd, 4096)?;
            fcntl_add_seals(
                &fd,
                SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL,
            )
        });
    match tried {
        Ok(()) => Check::ok(what, "frames can be sealed against everybody but their publisher"),
        Err(errno) => Check::problem(
            what,
            errno.to_string(),
            "use Linux 5.1 or later, or a sandbox that allows memfd_create",
        ),
    }
}

fn pidfd() -> Check {
    let what = "process watching";
    match pidfd_open(getpid(), PidfdFlags::empty()) {
        Ok(_) => Check::ok(what, "the end of a process is noticed at once (pidfd)"),
        Err(errno) => Check::warning(
            what,
            format!("pidfd_open: {errno}"),
            "use Linux 5.3 or later; without it the bit of a subscriber that crashed is used again only after 10 s",
        ),
    }
}

fn peer() -> Check {
    let what = "peers elsewhere";
    let asked = UnixStream::pair().map_err(|error| error.to_string()).and_then(|(one, _other)| {
        getsockopt(&one.as_fd(), sockopt::PeerPidfd).map_err(|errno| errno.to_string())
    });
    match asked {
        Ok(_) => Check::ok(what, "processes of other containers are watched, too (SO_PEERPIDFD)"),
        Err(error) => Check::warning(
            what,
            format!("SO_PEERPIDFD: {error}"),
            "use Linux 6.5 or later if subscribers are in pid namespaces that the publisher can't see",
        ),
    }
}

fn clock() -> Check {
    let what = "clock";
    let source = fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    let source = source.unwrap_or_else(|_| "unknown".into());
    let start = cuframes_mio::now();
    for _ in 1..LOOKS {
        let _ = cuframes_mio::now();
    }
    let cost = cuframes_mio::now().as_nanos().saturating_sub(start.as_nanos()) / LOOKS;
    let found = format!("{}, {cost} ns for a look", source.trim());
    if cost <= 250 {
        return Check::ok(what, found);
    }
    let remedy = "each frame looks at it once: on a virtual machine let the host offer tsc or kvm-clock";
    Check::warning(what, found, remedy)
}

fn pages() -> Check {
    let what = "huge pages";
    let setting = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/shmem_enabled").unwrap_or_default();
    let chosen = setting.split('[').nth(1).and_then(|rest| rest.split(']').next()).unwrap_or("unknown");
    match chosen {
        "always" | "within_size" | "force" => Check::ok(what, format!("for frames: {chosen}")),
        // How most systems are: worth knowing, nothing to worry about.
        _ => Check::ok(
            what,
            format!("for frames: {chosen}; within_size makes large frames faster to write and read"),
        ),
    }
}

const LOOKS: i64 = 10_000;
