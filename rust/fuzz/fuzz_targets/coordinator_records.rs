#![cfg_attr(fuzzing, no_main)]

#[global_allocator]
static HEAP: klamm_fuzz::heap::Counting = klamm_fuzz::heap::Counting;

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| klamm_fuzz::coordinator_records(data));

#[cfg(not(fuzzing))]
fn main() {
    eprintln!("run with: cargo +nightly fuzz run coordinator_records; without nightly: see rust/fuzz/README.md");
}
