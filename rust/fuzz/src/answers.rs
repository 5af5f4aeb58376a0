//! Invariant: no response of a broker makes the client panic, loop, or allocate more than a fixed multiple of the
//! input, at any version; reading the records of a fetch always advances, and allocates no more than the limit for
//! them.

use bytes::Bytes;
use klamm_client::Slice;
use klamm_client::messages::api_versions::ApiVersionsRequest;
use klamm_client::messages::fetch::FetchRequest;
use klamm_client::messages::list_offsets::ListOffsetsRequest;
use klamm_client::messages::metadata::MetadataRequest;
use klamm_client::messages::offset_fetch::OffsetFetchRequest;
use klamm_client::messages::produce::ProduceRequest;
use klamm_client::messages::sasl::{SaslAuthenticateRequest, SaslHandshakeRequest};
use klamm_client::messages::transactions::{
    AddOffsetsRequest, AddPartitionsRequest, EndTxnRequest, FindCoordinatorRequest, InitProducerIdRequest,
    TxnOffsetCommitRequest,
};
use klamm_client::messages::{Request, split_answer};
use klamm_client::slice::Watermarks;
use klamm_records::{RecordsError, records};

const DECOMPRESSED_BYTES_MAX: usize = 256 * 1024;
/// Limit on a structure's size in memory relative to its encoded size: topics without partitions need most.
const SHARE: usize = 32;

/// Parses the bytes as the response to the request and version that the first two bytes select, and as the records of
/// a fetch.
pub fn answers(data: &[u8]) {
    if let [kind, version, body @ ..] = data {
        let version = i16::from(*version);
        let body = Bytes::copy_from_slice(body);
        crate::heap::bounded(data, SHARE * data.len(), || match kind % 14 {
            0 => read::<ApiVersionsRequest>(&body, version),
            1 => read::<MetadataRequest<'_>>(&body, version),
            2 => read::<ListOffsetsRequest<'_>>(&body, version),
            3 => read::<FetchRequest<'_>>(&body, version),
            4 => read::<ProduceRequest<'_>>(&body, version),
            5 => read::<FindCoordinatorRequest<'_>>(&body, version),
            6 => read::<InitProducerIdRequest<'_>>(&body, version),
            7 => read::<AddPartitionsRequest<'_>>(&body, version),
            8 => read::<AddOffsetsRequest<'_>>(&body, version),
            9 => read::<TxnOffsetCommitRequest<'_>>(&body, version),
            10 => read::<EndTxnRequest<'_>>(&body, version),
            11 => read::<SaslHandshakeRequest>(&body, version),
            12 => read::<OffsetFetchRequest<'_>>(&body, version),
            _ => read::<SaslAuthenticateRequest>(&body, version),
        });
    }
    crate::heap::bounded(data, 2 * DECOMPRESSED_BYTES_MAX, || read_records(data));
}

fn read<R: Request>(body: &Bytes, version: i16) {
    let version = R::VERSION_MIN + version % (R::VERSION_MAX - R::VERSION_MIN + 1);
    let _ = R::read(body, version);
    if let Ok((_, body)) = split_answer(R::API, version, body) {
        let _ = R::read(&body, version);
    }
}

/// Reads the bytes as records from an offset that they contain, some of them of an aborted transaction.
fn read_records(data: &[u8]) {
    let start = data.get(7).map_or(0, |byte| i64::from(*byte));
    let watermarks = Watermarks { high_watermark: -1, last_stable_offset: -1, log_start_offset: -1 };
    let aborted = vec![(i64::from(data.len() as u8), start), (0, 0)];
    let bytes = Bytes::copy_from_slice(data);
    let mut slice = Slice::new(bytes, start, i64::MAX, aborted, DECOMPRESSED_BYTES_MAX, watermarks);
    let _ = walk(&mut slice);
    assert!(slice.next_offset() >= start);
}

fn walk(slice: &mut Slice) -> Result<(), RecordsError> {
    let bytes = slice.bytes();
    let mut window = Vec::new();
    while let Some(found) = slice.next_batch(&bytes)? {
        let before = slice.next_offset();
        for record in records(found.batch, &mut window, slice.decompressed_bytes_max())? {
            let offset = record?.offset;
            if offset >= found.first {
                slice.stop_at(offset);
            }
        }
        slice.passed(found.batch);
        assert!(slice.next_offset() > before, "a batch with data leads on");
    }
    Ok(())
}
