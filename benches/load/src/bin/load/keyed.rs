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
    /// The requests to the leader that this producer is connected to.
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
    let (topic, leaders) = (options.text("topic", "bench"), options.leaders());
    let spread = (options.number("spread", 20) as usize).min(partitions.len() / leaders);
    let frames_to = |leader: usize| {
        let led: Vec<i32> = partitions.iter().copied().filter(|at| *at as usize % leaders == leader).collect();
        let parts = led.chunks_exact(spread);
        Rc::new(parts.map(|part| produce_frame(1, topic, part, options.acks(), &payload)).collect::<Vec<_>>())
    };
    let frames: Vec<_> = (0..leaders).map(frames_to).collect();
    let per_request = (payload.len() * spread) as u64;
    let requests = options.number("bytes", 500_000_000).div_ceil(per_request);
    let left = Rc::new(Cell::new(requests));
    let producers = (0..options.number("connections", 50) as usize)
        .map(|at| Producer { frames: frames[at % leaders].clone(), next: at, left: left.clone() })
        .collect();
    run(|at| options.address(at), options.number("inflight", 5) as usize, producers)?;
    Ok(format!("\"bytes\":{},\"records\":{}", requests * per_request, requests * records * spread as u64))
}
