//! Small keyed batches: every producer writes to every partition.

use std::cell::Cell;
use std::io;
use std::rc::Rc;

use klamm_load::requests::check_produced;
use klamm_load::{keyed_batch, produce_frame};

use crate::now_ms;
use crate::options::Options;
use crate::pipeline::{Exchange, run};

const KEY_BYTES: usize = 16;

struct Producer {
    frames: Rc<Vec<Vec<u8>>>,
    next: usize,
    /// Requests that may still be sent, shared by all producers.
    left: Rc<Cell<u64>>,
}

impl Exchange for Producer {
    fn next_frame(&mut self) -> Option<&[u8]> {
        self.left.set(self.left.get().checked_sub(1)?);
        self.next = (self.next + 1) % self.frames.len();
        Some(&self.frames[self.next])
    }

    fn on_answer(&mut self, body: &[u8]) -> io::Result<()> {
        check_produced(body)
    }
}

pub fn keyed(options: &Options) -> io::Result<String> {
    let (records, record) = (options.number("records", 10), options.number("record", 100));
    let payload = keyed_batch(records as usize, Some(KEY_BYTES), record as usize, now_ms());
    let partitions: Vec<i32> = (0..options.number("partitions", 100) as i32).collect();
    let spread = (options.number("spread", 20) as usize).min(partitions.len());
    let topic = options.text("topic", "bench");
    let frames: Vec<Vec<u8>> =
        partitions.chunks_exact(spread).map(|part| produce_frame(1, topic, part, options.acks(), &payload)).collect();
    let per_request = (payload.len() * spread) as u64;
    let requests = options.number("bytes", 500_000_000).div_ceil(per_request);
    let (frames, left) = (Rc::new(frames), Rc::new(Cell::new(requests)));
    let producers = (0..options.number("connections", 50) as usize)
        .map(|at| Producer { frames: frames.clone(), next: at, left: left.clone() })
        .collect();
    run(options.text("address", "127.0.0.1:9092"), options.number("inflight", 5) as usize, producers)?;
    Ok(format!("\"bytes\":{},\"records\":{}", requests * per_request, requests * records * spread as u64))
}
