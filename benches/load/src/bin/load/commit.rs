//! Offset commits of many groups.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use klamm_load::requests::{check_committed, offset_commit_frame};

use crate::options::Options;
use crate::pipeline::{Exchange, run};

struct Committer {
    frame: Vec<u8>,
    until: Instant,
    committed: Rc<Cell<u64>>,
}

impl Exchange for Committer {
    fn next_frame(&mut self) -> Option<&[u8]> {
        (Instant::now() < self.until).then_some(&self.frame)
    }

    fn on_answer(&mut self, body: &[u8]) -> io::Result<()> {
        self.committed.set(self.committed.get() + 1);
        check_committed(body)
    }
}

pub fn commit(options: &Options) -> io::Result<String> {
    let (topic, group) = (options.text("topic", "bench"), options.text("group", "bench"));
    let until = Instant::now() + Duration::from_secs(options.number("seconds", 10));
    let committed = Rc::new(Cell::new(0));
    let committers = (0..options.number("connections", 50))
        .map(|at| Committer {
            frame: offset_commit_frame(1, &format!("{group}-{at}"), topic, 0, 1),
            until,
            committed: committed.clone(),
        })
        .collect();
    run(|at| options.address(at), options.number("inflight", 5) as usize, committers)?;
    Ok(format!("\"commits\":{}", committed.get()))
}
