//! `key=value` words.

use std::collections::HashMap;

pub struct Options(pub HashMap<String, String>);

impl Options {
    pub fn number(&self, key: &str, default: u64) -> u64 {
        self.0.get(key).map_or(default, |text| text.parse().unwrap_or_else(|_| usage(&format!("{key}={text}"))))
    }

    pub fn text<'a>(&'a self, key: &str, default: &'a str) -> &'a str {
        self.0.get(key).map_or(default, String::as_str)
    }

    /// Where the requests of connection `at` go. With several addresses separated by commas, partition `p` is led at
    /// address `p` modulo their number, and so is what connection `at` writes to.
    pub fn address(&self, at: usize) -> &str {
        let addresses = self.text("address", "127.0.0.1:9092");
        addresses.split(',').nth(at % self.leaders()).unwrap_or(addresses)
    }

    /// The number of addresses.
    pub fn leaders(&self) -> usize {
        self.text("address", "").split(',').count()
    }

    pub fn acks(&self) -> i16 {
        self.text("acks", "-1").parse().unwrap_or_else(|_| usage("acks"))
    }
}

pub fn usage(wrong: &str) -> ! {
    eprintln!(
        "{wrong}: usage: klamm-load produce|keyed|fetch|latency|touch|commit|transactions|share|idle address=HOST:PORT topic=T \
         [partitions=1] [spread=1] [connections=1] [inflight=5] [record=1024] [records=10] [batch=1000000] \
         [bytes=500000000] [acks=-1] [rate=1000] [seconds=10] [passes=1] [protocol=2] \
         [batches=1] [records_max=500] [hold=0] [pid=PID]"
    );
    std::process::exit(2)
}
