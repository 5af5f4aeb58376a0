//! Topics created one by one, by many clients.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use klamm_load::requests::{check_created, create_topic_frame};

use crate::options::Options;
use crate::pipeline::{Exchange, run};

struct Creator {
    prefix: String,
    begun: u64,
    created: Rc<Cell<u64>>,
    frame: Vec<u8>,
    until: Instant,
}

impl Exchange for Creator {
    fn next_frame(&mut self) -> Option<&[u8]> {
        self.frame = create_topic_frame(1, &format!("{}-{}", self.prefix, self.begun));
        self.begun += 1;
        (Instant::now() < self.until).then_some(&self.frame)
    }

    fn on_answer(&mut self, body: &[u8]) -> io::Result<()> {
        self.created.set(self.created.get() + 1);
        check_created(body)
    }
}

pub fn create(options: &Options) -> io::Result<String> {
    let prefix = options.text("topic", "bench");
    let until = Instant::now() + Duration::from_secs(options.number("seconds", 10));
    let created = Rc::new(Cell::new(0));
    let creators = (0..options.number("connections", 50))
        .map(|at| Creator {
            prefix: format!("{prefix}-{at}"),
            begun: 0,
            created: created.clone(),
            frame: Vec::new(),
            until,
        })
        .collect();
    run(|at| options.address(at), options.number("inflight", 1) as usize, creators)?;
    Ok(format!("\"topics\":{}", created.get()))
}
