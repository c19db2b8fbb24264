//! Suites of tests that every implementation of a trait, or of the protocol, must pass. Each has a trait by which it
//! reaches what it tests, and a macro that makes one test of each of its cases.

pub mod gpu;
pub mod region;
pub mod session;

/// A module `$name` with one test for each case: `$suite::$case::<$subject>()`.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_tests {
    ($name:ident, $suite:path, $subject:ident, [$($case:ident),* $(,)?]) => {
        mod $name {
            use $suite as suite;
            $(
                #[test]
                fn $case() {
                    suite::$case::<super::$subject>();
                }
            )*
        }
    };
}

#[cfg(test)]
mod tests {
    /// Each `pub fn` of a suite, and whether a macro runs it.
    #[test]
    fn no_case_of_a_suite_is_left_out() {
        let suites = [
            include_str!("region.rs"),
            include_str!("session/common.rs"),
            include_str!("session/publisher/ends.rs"),
            include_str!("session/publisher/handshake.rs"),
            include_str!("session/publisher/members.rs"),
            include_str!("session/subscriber/descriptors.rs"),
            include_str!("session/subscriber/ends.rs"),
            include_str!("session/subscriber/handshake.rs"),
        ];
        for suite in suites {
            let cases = suite.lines().filter_map(|line| line.strip_prefix("pub fn ")?.split('<').next());
            for case in cases {
                let listed = format!("{case},");
                assert!(suite.lines().any(|line| line.trim() == listed), "{case} is in no macro");
            }
        }
    }
}
