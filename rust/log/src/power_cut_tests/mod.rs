//! Power cuts and kills of all logs of a node, at any change to their files: several logs in two directories with
//! their checkpoints, through appends, flushes, truncations, deletions, retention, kills and clean stops.
//!
//! A seed decides a history. At some of its changes the power is cut or the process is killed: a node starts on what
//! is left and is checked against what was promised by then. Some of the nodes that start live on, with a history of
//! their own. `KLAMM_CRASH_SEED` replays one seed; `KLAMM_CRASH_SEEDS` and `KLAMM_CRASH_CUTS` run more.

mod acts;
mod expected;
mod faults;
mod history;
mod judge;
mod node;
mod restart;

use std::path::Path;

use history::History;
use tempfile::tempdir;

use crate::crash::{Disk, Rng};
use crate::crash_tests::number;

/// How often a node that started after a power cut lives on and loses the power again.
const LIVES: u64 = 3;

/// How a node ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The files are as they were.
    Kill,
    PowerCut,
}

/// Ends the node at some of its changes, and checks what starts on what is left.
fn end_at_random(history: &mut History, cuts: u64, lives: u64, rng: &mut Rng) {
    let count = history.changes.len() as u64;
    let first = history.first as u64;
    let mut at: Vec<usize> = (0..cuts).map(|_| (first + rng.below(count + 1 - first)) as usize).collect();
    at.sort_unstable();
    let lives_on = rng.below(cuts);
    let mut disk = std::mem::take(&mut history.disk);
    for (number, cut) in at.into_iter().enumerate() {
        while disk.played() < history.base + cut {
            disk.play(&history.changes[disk.played() - history.base], disk.played());
        }
        let end = if rng.one_in(4) { End::Kill } else { End::PowerCut };
        let target = tempdir().expect("temporary directory");
        eprintln!("  life {}, {end:?} after {cut} of {count} changes", LIVES - lives);
        leave(history, &disk, end, target.path(), rng);
        let mut next = History::after(target, history, &disk, end, rng);
        if number as u64 == lives_on && lives > 1 {
            next.run(rng);
            end_at_random(&mut next, cuts, lives - 1, rng);
        }
    }
}

/// Writes what is left after an end.
fn leave(history: &History, disk: &Disk, end: End, target: &Path, rng: &mut Rng) {
    match end {
        End::Kill => disk.stop(history.root(), target),
        End::PowerCut => {
            disk.lose_power(history.root(), target, history.changes.get(disk.played() - history.base), rng);
            node::forget_boot(target);
        }
    }
}

#[test]
fn a_power_cut_or_a_kill_takes_nothing_that_a_node_promised() {
    let first = number("KLAMM_CRASH_SEED", 1);
    let cuts = number("KLAMM_CRASH_CUTS", 6);
    for seed in first..first + number("KLAMM_CRASH_SEEDS", 6) {
        eprintln!(
            "KLAMM_CRASH_SEED={seed} KLAMM_CRASH_SEEDS=1 KLAMM_CRASH_CUTS={cuts} cargo test -p klamm-log --lib \
             a_power_cut_or_a_kill"
        );
        let rng = &mut Rng::new(seed);
        let mut history = History::new();
        history.run(rng);
        end_at_random(&mut history, cuts, LIVES, rng);
    }
}
