//! Publishers and subscribers that are killed, stopped and started again at random, while every frame that anybody gets is
//! checked; and after each round nothing is left of those that are gone.
//!
//! `CHAOS_SECONDS` says how long (a few seconds by default), `CHAOS_SEED` which run: the seed decides what is done to whom,
//! the system when each process gets to feel it.

#![expect(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a failure ends the test")]

mod actors;
mod process;
mod show;
mod traces;

use std::time::Duration;

use show::Show;

#[test]
fn whoever_dies_the_others_go_on_and_nothing_is_left() {
    let number = |name, default| std::env::var(name).map_or(default, |value| value.parse().unwrap());
    let seed = number("CHAOS_SEED", fastrand::u64(..));
    println!("CHAOS_SEED={seed}");
    let mut show = Show::new(seed);
    show.run(Duration::from_secs(number("CHAOS_SECONDS", 4)));
    println!("{}", show.tally());
}
