//! Runs the targets on mutated seeds for a number of cases: the part of fuzzing that every toolchain can run.
//!
//! `smoke [TARGET|all] [CASES] [SEED]`; a case is determined by its seed, and a failure prints the seed. `cargo test`
//! runs each target for fewer cases.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use klamm_fuzz::{TARGETS, Target};

#[global_allocator]
static HEAP: klamm_fuzz::heap::Counting = klamm_fuzz::heap::Counting;

const CASES: u64 = 20_000;
const INPUT_BYTES_MAX: usize = 64 * 1024;

thread_local! {
    static RUNNING: Cell<(&'static str, u64)> = const { Cell::new(("", 0)) };
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let wanted = arguments.next().unwrap_or_else(|| "all".to_owned());
    let number = |text: Option<String>, default| text.map_or(Ok(default), |text| text.parse::<u64>());
    let (Ok(cases), Ok(seed)) = (number(arguments.next(), CASES), number(arguments.next(), 1)) else {
        eprintln!("usage: smoke [TARGET|all] [CASES] [SEED]");
        return ExitCode::from(2);
    };
    let targets: Vec<&Target> = TARGETS.iter().filter(|target| wanted == "all" || wanted == target.name).collect();
    if targets.is_empty() {
        eprintln!("no target {wanted}; there are: {}", TARGETS.iter().map(|t| t.name).collect::<Vec<_>>().join(", "));
        return ExitCode::from(2);
    }
    report_the_case_of_a_panic();
    for target in targets {
        let seeds = run(target, seed, cases);
        println!("{}: {cases} cases from {seeds} seeds", target.name);
    }
    ExitCode::SUCCESS
}

/// Panics at the first case that violates the target's invariant. Returns the number of seeds.
fn run(target: &Target, first: u64, cases: u64) -> usize {
    let seeds = seeds_of(target);
    for case in first..first.saturating_add(cases) {
        RUNNING.set((target.name, case));
        (target.run)(&input_of(case, &seeds));
    }
    seeds.len()
}

fn report_the_case_of_a_panic() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        usual(panic);
        let (target, case) = RUNNING.get();
        eprintln!("again: cargo run --profile fuzz -p klamm-fuzz --bin smoke -- {target} 1 {case}");
    }));
}

fn seeds_of(target: &Target) -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files: Vec<PathBuf> = Vec::new();
    for folder in target.seeds {
        let entries = std::fs::read_dir(root.join(folder)).unwrap_or_else(|error| panic!("{folder}: {error}"));
        files.extend(entries.map(|entry| entry.expect("readable").path()));
    }
    // The order of a folder depends on the file system; a case must be the same everywhere.
    files.sort();
    let binary = files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "bin"));
    binary.map(|file| std::fs::read(file).expect("readable")).collect()
}

/// xorshift64*: the only source of randomness for a case.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: usize) -> usize {
        ((self.next() >> 32) as usize) % end.max(1)
    }
}

fn input_of(case: u64, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut random = Random(case.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    for _ in 0..8 {
        random.next();
    }
    let mut bytes = match seeds.len() {
        0 => Vec::new(),
        count => seeds[random.below(count)].clone(),
    };
    for _ in 0..random.below(6) {
        mutate(&mut bytes, &mut random, seeds);
    }
    bytes.truncate(INPUT_BYTES_MAX);
    bytes
}

fn mutate(bytes: &mut Vec<u8>, random: &mut Random, seeds: &[Vec<u8>]) {
    const ODD: [u8; 8] = [0, 1, 0x7f, 0x80, 0xff, 0xfe, 0x10, 0x40];
    let at = random.below(bytes.len());
    // Most decisions are in headers and first records.
    let at = if random.below(2) == 0 { at.min(random.below(100)) } else { at };
    let len = random.below(9);
    match random.below(8) {
        0 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
        1 if !bytes.is_empty() => bytes[at] = ODD[random.below(ODD.len())],
        2 if !bytes.is_empty() => bytes[at] = random.next() as u8,
        3 => bytes.truncate(at),
        4 => drop(bytes.drain(at..(at + len).min(bytes.len()))),
        5 => drop(bytes.splice(at..at, (0..len).map(|_| random.next() as u8).collect::<Vec<_>>())),
        6 => bytes.iter_mut().skip(at).take(len).for_each(|byte| *byte = ODD[random.below(ODD.len())]),
        _ => {
            let other = seeds.get(random.below(seeds.len())).map_or(&[][..], Vec::as_slice);
            bytes.truncate(at);
            bytes.extend_from_slice(&other[random.below(other.len()).min(other.len())..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{TARGETS, report_the_case_of_a_panic, run};

    const CASES: u64 = 2_000;

    #[test]
    fn every_target_holds() {
        report_the_case_of_a_panic();
        let cases = std::env::var("SMOKE_CASES").map_or(CASES, |text| text.parse().expect("SMOKE_CASES is a number"));
        std::thread::scope(|scope| {
            for target in TARGETS {
                scope.spawn(move || assert!(run(target, 1, cases) > 0, "{} has no seeds", target.name));
            }
        });
    }
}
