use cuframes_core::error::{Place, Problem};

use super::*;

#[test]
fn every_error_is_one_line_that_names_the_stream_or_the_file_and_has_a_code() {
    let key = || "cam0".parse::<Key>().unwrap();
    let path = || PathBuf::from("/dev/shm/cuframes-cam0");
    let misuse = Misuse::Argument { name: "frame_size", must: "smaller" };
    let errors = [
        (Error::Misuse { key: key(), misuse }, ErrorCode::INVALID_ARGUMENT),
        (Error::Forked { key: key() }, ErrorCode::INVALID_ARGUMENT),
        (Error::Gone { key: key(), gone: Gone::Disconnected }, ErrorCode::DISCONNECTED),
        (Error::Gone { key: key(), gone: Gone::Timeout { state: "Hello" } }, ErrorCode::TIMEOUT),
        (Error::already_exists(&key(), Holder::Lock(path())), ErrorCode::ALREADY_EXISTS),
        (Error::already_exists(&key(), Holder::Foreign(path())), ErrorCode::ALREADY_EXISTS),
        (Error::NotFound { key: key(), looked_in: vec![path(), path()] }, ErrorCode::NOT_FOUND),
        (Error::io("open", &path(), Errno::ACCESS), ErrorCode::PERMISSION),
        (Error::io("open", &path(), Errno::MFILE), ErrorCode::IO),
        (Error::descriptors_lost(&key()), ErrorCode::IO),
        (Error::NoSpace { path: path(), needed: 7424, available: Some(4096) }, ErrorCode::OUT_OF_MEMORY),
        (Error::PathTooLong { path: path(), max: 107 }, ErrorCode::INVALID_ARGUMENT),
        (Error::Untrusted { path: path(), problem: Distrust::NotADirectory }, ErrorCode::PERMISSION),
    ];
    for (error, code) in errors {
        let text = error.to_string();
        assert!(text.contains("cam0") && !text.contains('\n') && !text.contains("  "), "{text}");
        assert_eq!(error.code(), code, "{text}");
    }
}

#[test]
fn every_error_says_what_failed_and_what_to_do() {
    let key = || "cam0".parse::<Key>().unwrap();
    let refused = |code| Error::Refused { key: key(), refused: Refused { code, message: String::new() } };
    let region = || PathBuf::from("/dev/shm/cuframes-cam0");
    let violation = Violation { place: Place::Region, field: "magic", problem: Problem::Empty };
    let system = |errno: Errno| Error::system(&key(), "start a thread", errno);
    let process = |pid| Error::already_exists(&key(), Holder::Process { region: region(), pid });
    let named = |path: &str| Error::Untrusted {
        path: path.into(),
        problem: Distrust::NotTheRegion { region: region() },
    };
    let errors = [
        (refused(ErrorCode::UNSUPPORTED), "refused with UNSUPPORTED; use a subscriber with the extensions"),
        (refused(ErrorCode(-9999)), "-9999; its own log may say why"),
        (refused(ErrorCode::OK), "refused with OK; that is no error code"),
        (Error::violation(&key(), violation), "region magic: empty; use versions that fit"),
        (system(Errno::MFILE), "can't start a thread: Too many open files"),
        (system(Errno::MFILE), "; raise the limit on open files"),
        (system(Errno::AGAIN), "; raise the limits on processes and memory"),
        (Error::io("open", &region(), Errno::LOOP), "; mend the symbolic links"),
        (
            process(7),
            "says that process 7 publishes it; if that is a publisher, stop it, and if not, delete the file",
        ),
        (process(0), "does not say which process publishes it; stop its publisher"),
        (process(u64::MAX), "does not say which process publishes it; stop its publisher"),
        (named(""), "\"\" can't be trusted: the publisher names it"),
        (named("/dev\n"), "\"/dev\\n\" can't be trusted: the publisher names it"),
    ];
    for (error, part) in errors {
        let text = error.to_string();
        assert!(text.contains(part) && !text.contains('\n'), "{text}");
    }
}

#[test]
fn a_full_shm_says_how_many_bytes_are_needed_and_available() {
    let error = Error::NoSpace { path: "/dev/shm/x".into(), needed: 7424, available: Some(4096) };
    let text = error.to_string();
    assert!(text.starts_with("/dev/shm/x needs 7424 bytes, 4096 are available; "), "{text}");
}
