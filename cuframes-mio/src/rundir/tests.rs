use std::os::unix::fs::symlink;

use tempfile::{TempDir, tempdir};

use super::*;
use crate::testing::{key, skipped};

fn uid() -> u32 {
    geteuid().as_raw()
}

/// Places below `dir`: `run/cuframes`, `user/cuframes` and the fallback `tmp-cuframes`.
fn places(dir: &TempDir) -> Places {
    let path = |name| dir.path().join(name);
    let fallback = RunDir { path: path("tmp-cuframes"), trust: Trust::Alone(uid()) };
    Places::new(
        None,
        [(Some(path("run")), Trust::System), (Some(path("user")), Trust::User(uid()))],
        fallback,
    )
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn a_publisher_takes_the_first_directory_that_it_can_use_and_makes_it_private() {
    let dir = tempdir().unwrap();
    let places = places(&dir);
    for parent in [None, Some("user"), Some("run")] {
        if let Some(parent) = parent {
            fs::create_dir(dir.path().join(parent)).unwrap();
        }
        let expected =
            parent.map_or_else(|| "tmp-cuframes".into(), |parent| Path::new(parent).join("cuframes"));
        let expected = dir.path().join(expected);
        assert_eq!(places.for_publisher(&key(), Access::default()).unwrap().path(), expected);
        assert_eq!(mode(&expected), 0o700);
    }
    let looked_in: Vec<_> = places.candidates().map(RunDir::path).collect();
    let expected = ["run/cuframes", "user/cuframes", "tmp-cuframes"].map(|path| dir.path().join(path));
    assert_eq!(looked_in, expected, "a subscriber looks in the same order");
}

#[test]
fn a_chosen_directory_is_the_only_one() {
    let dir = tempdir().unwrap();
    let chosen = dir.path().join("chosen");
    let places = Places::from_environment(Some(&chosen));
    assert_eq!(places.candidates().map(RunDir::path).collect::<Vec<_>>(), [&chosen]);
    assert!(!places.candidates().next().unwrap().exists().unwrap());
    assert_eq!(places.for_publisher(&key(), Access::default()).unwrap().path(), chosen);
    assert!(places.candidates().next().unwrap().exists().unwrap());

    let missing = dir.path().join("missing/deep");
    let error =
        Places::from_environment(Some(&missing)).for_publisher(&key(), Access::default()).unwrap_err();
    assert!(error.to_string().ends_with("; create its parent directory"), "{error}");
}

#[test]
fn a_group_gets_into_a_new_directory_and_an_old_one_keeps_its_mode() {
    let dir = tempdir().unwrap();
    let access = Access { group: Some(rustix::process::getegid().as_raw()) };
    let places = places(&dir);
    places.for_publisher(&key(), access).unwrap();
    assert_eq!(mode(places.last.path()), 0o750);
    places.for_publisher(&key(), Access::default()).unwrap();
    assert_eq!(mode(places.last.path()), 0o750);
}

#[test]
fn in_tmp_neither_a_symbolic_link_nor_a_directory_of_others_is_trusted() {
    let dir = tempdir().unwrap();
    let places = places(&dir);
    let path = places.last.path();
    let problem = || {
        assert!(places.for_publisher(&key(), Access::default()).is_err());
        match places.last.exists() {
            Err(Error::Untrusted { problem, .. }) => problem,
            other => panic!("{other:?}"),
        }
    };

    let elsewhere = tempdir().unwrap();
    symlink(elsewhere.path(), path).unwrap();
    assert_eq!(problem(), Distrust::NotADirectory);
    fs::remove_file(path).unwrap();

    fs::write(path, "").unwrap();
    assert_eq!(problem(), Distrust::NotADirectory);
    fs::remove_file(path).unwrap();

    fs::create_dir(path).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o770)).unwrap();
    assert_eq!(problem(), Distrust::WritableByOthers { mode: 0o770 });

    let other = uid().wrapping_add(1);
    if lchown(path, Some(other), None).is_err() {
        return skipped("a directory of another user", "only root can make one");
    }
    assert_eq!(problem(), Distrust::Owner { found: other, expected: uid() });
}

#[test]
fn sockets_and_locks_are_named_after_the_key_and_a_long_path_is_refused() {
    let at = |len| RunDir { path: format!("/{}", "x".repeat(len - 1)).into(), trust: Trust::Chosen };
    let longest = MAX_SOCKET_PATH - "/cam0.sock".len();
    assert!(at(longest).socket_path(&key()).unwrap().ends_with("cam0.sock"));
    assert!(at(longest).lock_path(&key()).ends_with("cam0.lock"));
    let error = at(longest + 1).socket_path(&key()).unwrap_err();
    assert!(matches!(error, Error::PathTooLong { max: 107, .. }), "{error}");
}

/// `/run/cuframes` is the administrator's matter, `$XDG_RUNTIME_DIR/cuframes` the user's; in neither may everybody write.
#[test]
fn where_everybody_may_write_or_another_user_rules_is_no_default() {
    let dir = tempdir().unwrap();
    let places = places(&dir);
    let [run, user] = ["run/cuframes", "user/cuframes"].map(|path| dir.path().join(path));
    fs::create_dir_all(&run).unwrap();
    fs::create_dir_all(&user).unwrap();
    let chosen = || places.for_publisher(&key(), Access::default()).unwrap().path().to_path_buf();
    for mode in [0o700, 0o755, 0o2770] {
        for path in [&run, &user] {
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }
        assert_eq!(chosen(), run, "{mode:o}");
    }
    for mode in [0o777, 0o1777, 0o702] {
        fs::set_permissions(&run, Permissions::from_mode(mode)).unwrap();
        assert_eq!(chosen(), user, "{mode:o}");
        fs::set_permissions(&user, Permissions::from_mode(mode)).unwrap();
        assert_eq!(chosen(), places.last.path(), "{mode:o}");
        assert!(places.first.iter().all(|dir| matches!(dir.exists(), Err(Error::Untrusted { .. }))));
        fs::set_permissions(&user, Permissions::from_mode(0o700)).unwrap();
    }
    let other = uid().wrapping_add(1);
    if lchown(&user, Some(other), None).is_err() {
        return skipped("a directory of another user", "only root can make one");
    }
    assert_eq!(chosen(), places.last.path());
    fs::set_permissions(&run, Permissions::from_mode(0o755)).unwrap();
    lchown(&run, Some(other), None).unwrap();
    assert_eq!(chosen(), run, "root let that user have it");
}

#[test]
fn a_chosen_directory_that_others_rule_is_used_and_told_of() {
    let dir = tempdir().unwrap();
    let path = dir.path().to_path_buf();
    let chosen = RunDir { path: path.clone(), trust: Trust::Chosen };
    for (mode, is_loose) in [(0o700, false), (0o770, false), (0o1777, false), (0o777, true), (0o702, true)] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        assert_eq!(chosen.looseness().is_some(), is_loose, "{mode:o}");
        chosen.prepare(Access::default()).unwrap();
    }
    if lchown(&path, Some(uid().wrapping_add(1)), None).is_err() {
        return skipped("a directory of another user", "only root can make one");
    }
    for (mode, is_loose) in [(0o755, false), (0o1777, true)] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        assert_eq!(chosen.looseness().is_some(), is_loose, "{mode:o}");
    }
}

#[test]
fn a_symbolic_link_that_leads_nowhere_is_no_directory() {
    let dir = tempdir().unwrap();
    let link = dir.path().join("link");
    symlink("/nowhere/at/all", &link).unwrap();
    let error = Places::from_environment(Some(&link)).for_publisher(&key(), Access::default()).unwrap_err();
    let expected =
        format!("{} can't be trusted: not a directory; set CUFRAMES_RUN_DIR to one", link.display());
    assert_eq!(error.to_string(), expected);
}
