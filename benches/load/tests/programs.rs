//! The two programs against each other: every mode that needs no metadata returns its figures.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

struct Ceiling {
    process: Child,
    address: String,
    _folder: tempfile::TempDir,
}

impl Ceiling {
    fn start(durable: bool) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut command = Command::new(env!("CARGO_BIN_EXE_klamm-ceiling"));
        command.arg("0").arg(folder.path()).args(durable.then_some("durable")).stdout(Stdio::piped());
        let mut process = command.spawn().expect("the ceiling starts");
        let mut line = String::new();
        let output = process.stdout.take().expect("stdout is a pipe");
        BufReader::new(output).read_line(&mut line).expect("the ceiling says where it listens");
        let address = line.trim().strip_prefix("ceiling on ").expect("an address").to_owned();
        Self { process, address, _folder: folder }
    }

    /// The output of the load generator, which must have succeeded.
    fn load(&self, mode: &str, options: &[&str]) -> serde_json::Value {
        let output = Command::new(env!("CARGO_BIN_EXE_klamm-load"))
            .args([mode, "topic=t", &format!("address={}", self.address), &format!("pid={}", self.process.id())])
            .args(options)
            .output()
            .expect("the load generator starts");
        assert!(output.status.success(), "{mode}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }
}

impl Drop for Ceiling {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn produced_records_are_fetched() {
    let ceiling = Ceiling::start(false);
    let produced = ceiling.load("produce", &["batch=100000", "bytes=1000000"]);
    let fetched = ceiling.load("fetch", &["bytes=1000000"]);
    let twice = ceiling.load("fetch", &["bytes=1000000", "passes=2"]);
    assert!(produced["bytes"].as_u64() >= Some(1_000_000), "{produced}");
    assert!(fetched["bytes"].as_u64() >= Some(1_000_000), "{fetched}");
    assert!(fetched["records"].as_u64() <= produced["records"].as_u64(), "{fetched} of {produced}");
    assert_eq!(twice["bytes"].as_u64(), fetched["bytes"].as_u64().map(|once| 2 * once), "{twice}");
    assert!(cfg!(not(target_os = "linux")) || produced["server_cpu_seconds"].is_number(), "{produced}");
}

#[test]
fn every_producer_writes_keyed_batches_to_every_partition() {
    let ceiling = Ceiling::start(true);
    let found = ceiling.load("keyed", &["connections=3", "partitions=10", "spread=5", "bytes=50000"]);
    assert_eq!(found["records"].as_u64().map(|records| records % 50), Some(0), "{found}");
    assert!(found["bytes"].as_u64() >= Some(50_000), "{found}");
}

#[test]
fn every_partition_returns_its_records() {
    let found = Ceiling::start(false).load("touch", &["partitions=250"]);
    assert_eq!(found["partitions"], 250);
}

#[test]
fn latencies_are_sorted() {
    let found = Ceiling::start(false).load("latency", &["rate=1000", "seconds=1"]);
    let at = |name: &str| found[name].as_u64().expect("a number");
    assert_eq!(at("requests"), 1000);
    assert!(at("p50_us") <= at("p99_us") && at("p99_us") <= at("p999_us") && at("p999_us") <= at("max_us"), "{found}");
}
