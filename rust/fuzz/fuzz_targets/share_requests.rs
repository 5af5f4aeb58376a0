#![cfg_attr(fuzzing, no_main)]

#[global_allocator]
static HEAP: klamm_fuzz::heap::Counting = klamm_fuzz::heap::Counting;

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| klamm_fuzz::share_requests(data));

#[cfg(not(fuzzing))]
fn main() {
    eprintln!("run with: cargo +nightly fuzz run share_requests; without nightly: see rust/fuzz/README.md");
}
