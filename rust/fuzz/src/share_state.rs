//! Invariant: whatever a share coordinator answers, the leader neither panics nor allocates more than four times the input
//! plus 64 KiB to read it, and a share partition that is loaded from it keeps its invariants.

use klamm_base::Uuid;
use klamm_share::{RecordState, SharePartition, StateBatch};
use klamm_wire::share_state::{PersistedBatch, SharePartitionName};

const NAME: SharePartitionName<'static> = SharePartitionName { group_id: "g", topic: Uuid([7; 16]), index: 0 };

/// Reads the bytes as answers about one share partition, and as the state batches of one that is loaded.
pub fn share_state(data: &[u8]) {
    let named = [&[2][..], &NAME.topic.0[..], &[2, 0, 0, 0, 0], data].concat();
    for body in [data, &named[..]] {
        let _ = crate::heap::bounded(body, 0, || NAME.write_response(body));
        let state = crate::heap::bounded(body, 0, || NAME.read_response(body));
        if let Ok(Some(state)) = state {
            load(state.start_offset, &state.batches);
        }
    }
    let small = data.chunks_exact(4).map(|bytes| PersistedBatch {
        first: i64::from(bytes[0]),
        last: i64::from(bytes[1]),
        state: (bytes[2] % 5) as i8,
        delivery_count: i16::from(bytes[3]),
    });
    load(0, &small.collect::<Vec<_>>());
}

fn load(start_offset: i64, batches: &[PersistedBatch]) {
    let known = batches.iter().filter_map(|batch| {
        Some(StateBatch {
            first: batch.first,
            last: batch.last,
            state: RecordState::of(batch.state)?,
            delivery_count: batch.delivery_count.max(0) as u16,
        })
    });
    let known: Vec<_> = known.collect();
    if let Ok(mut partition) = SharePartition::load(0, 0, start_offset, &known) {
        partition.check_invariants();
        partition.next_fetch_offset();
    }
}
