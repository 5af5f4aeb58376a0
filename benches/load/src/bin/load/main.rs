//! Generates load for a broker on this machine, and prints a line of JSON with the measurements.
//!
//! `klamm-load MODE key=value...`, MODE one of
//! - `produce`: `connections` connections keep `inflight` requests with a batch of `batch` bytes in flight until `bytes` are
//!   acknowledged;
//! - `keyed`: the same with small batches: each request has `records` keyed records for each of `spread` partitions, and
//!   every connection writes to all `partitions`;
//! - `fetch`: reads `bytes` from the start of partition 0;
//! - `latency`: one record per request at `rate` per second for `seconds`, open loop; acknowledgement times;
//! - `touch`: writes one record to each of `partitions`, twice, and reads all of them;
//! - `commit`: `connections` groups commit offsets for `seconds`, with `inflight` requests in flight each;
//! - `create`: `connections` clients create topics of one partition for `seconds`, one per request;
//! - `transactions`: `connections` producers commit transactions of `batches` requests of `records` records for
//!   `seconds`, at `rate` per second or as fast as they can; times of EndTxn and of whole transactions;
//! - `share`: `connections` members of a share group read `partitions` until `records` are accepted, or held;
//! - `idle`: the cost of `connections` idle connections, in addition to the first hundred.

use std::collections::HashMap;
use std::io;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use klamm_load::process::{cpu_seconds, raise_open_files};

use crate::options::{Options, usage};

mod commit;
mod create;
mod fetch;
mod idle;
mod keyed;
mod latency;
mod options;
mod pipeline;
mod produce;
mod share;
mod touch;
mod transactions;

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mode = arguments.next().unwrap_or_else(|| usage("no mode"));
    let pairs = arguments.map(|word| match word.split_once('=') {
        Some((key, value)) => (key.to_owned(), value.to_owned()),
        None => usage(&word),
    });
    let options = Options(pairs.collect::<HashMap<_, _>>());
    raise_open_files();
    let pid = options.number("pid", 0) as u32;
    let cpu_before = cpu_seconds(pid);
    let start = Instant::now();
    let fields = match mode.as_str() {
        "produce" => produce::produce(&options)?,
        "keyed" => keyed::keyed(&options)?,
        "fetch" => fetch::fetch(&options)?,
        "latency" => latency::latency(&options)?,
        "touch" => touch::touch(&options)?,
        "commit" => commit::commit(&options)?,
        "create" => create::create(&options)?,
        "transactions" => transactions::transactions(&options)?,
        "share" => share::share(&options)?,
        "idle" => idle::idle(&options)?,
        other => usage(other),
    };
    let seconds = start.elapsed().as_secs_f64();
    let cpu =
        cpu_before.zip(cpu_seconds(pid)).map_or("null".to_owned(), |(before, after)| format!("{:.6}", after - before));
    println!("{{\"mode\":\"{mode}\",\"seconds\":{seconds:.4},\"server_cpu_seconds\":{cpu},{fields}}}");
    Ok(())
}

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}
