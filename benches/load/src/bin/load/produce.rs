//! Maximum throughput: large batches, pipelined.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;

use klamm_load::requests::check_produced;
use klamm_load::{batch, connect, produce_frame, read_frame, send};

use crate::now_ms;
use crate::options::Options;

fn records_in(batch_bytes: u64, record: u64) -> usize {
    ((batch_bytes - 61) / (record + 11)).max(1) as usize
}

pub fn produce(options: &Options) -> io::Result<String> {
    let (record, wanted) = (options.number("record", 1024), options.number("bytes", 500_000_000));
    let count = records_in(options.number("batch", 1_000_000), record);
    let payload = batch(count, record as usize, now_ms());
    let partitions = options.number("partitions", 1) as i32;
    let connections = options.number("connections", 1);
    let spread = options.number("spread", 1) as usize;
    let acknowledged = AtomicU64::new(0);
    std::thread::scope(|scope| -> io::Result<()> {
        let workers: Vec<_> = (0..connections)
            .map(|worker| {
                let (payload, acknowledged) = (&payload, &acknowledged);
                scope.spawn(move || {
                    let own: Vec<i32> = (0..partitions)
                        .filter(|p| partitions < connections as i32 || *p as u64 % connections == worker)
                        .collect();
                    let own = if own.is_empty() { vec![worker as i32 % partitions] } else { own };
                    produce_on(options, worker as usize, &own, spread, payload, wanted, acknowledged)
                })
            })
            .collect();
        for worker in workers {
            worker.join().map_err(|_| io::Error::other("a connection's thread died"))??;
        }
        Ok(())
    })?;
    let requests = acknowledged.load(Ordering::Relaxed) / payload.len() as u64;
    Ok(format!(
        "\"bytes\":{},\"records\":{},\"batch_bytes\":{}",
        requests * payload.len() as u64,
        requests * count as u64,
        payload.len()
    ))
}

fn produce_on(
    options: &Options,
    worker: usize,
    own: &[i32],
    spread: usize,
    payload: &[u8],
    wanted: u64,
    acknowledged: &AtomicU64,
) -> io::Result<()> {
    let mut writer = connect(options.address(worker))?;
    let mut reader = writer.try_clone()?;
    let spread = spread.min(own.len());
    let (free, slots) = sync_channel::<()>(options.number("inflight", 5) as usize);
    let frames: Vec<Vec<u8>> = own
        .chunks(spread)
        .map(|part| produce_frame(1, options.text("topic", "bench"), part, options.acks(), payload))
        .collect();
    let sent = AtomicU64::new(0);
    let per_frame = (payload.len() * spread) as u64;
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| -> io::Result<u64> {
            let mut requests = 0;
            while sent.load(Ordering::Relaxed) + acknowledged.load(Ordering::Relaxed) < wanted + per_frame {
                if free.send(()).is_err() {
                    break;
                }
                sent.fetch_add(per_frame, Ordering::Relaxed);
                send(&mut writer, &frames[requests as usize % frames.len()])?;
                requests += 1;
            }
            drop(free);
            Ok(requests)
        });
        let mut buffer = Vec::new();
        while slots.recv().is_ok() {
            let length =
                read_frame(&mut reader, &mut buffer)?.ok_or_else(|| io::Error::other("closed by the broker"))?;
            check_produced(&buffer[..length])?;
            acknowledged.fetch_add(per_frame, Ordering::Relaxed);
            sent.fetch_sub(per_frame, Ordering::Relaxed);
        }
        writing.join().map_err(|_| io::Error::other("the writing thread died"))??;
        Ok(())
    })
}
