//! Invariant: no bytes make the reader of requests panic, loop, or hold more than four times the input and 64 KiB, at any
//! version of any API; the batches of a produce lie in its frame, each behind the one before.

use klamm_wire::api::Api;
use klamm_wire::frame::{read, read_request};

/// Reads the bytes as a frame, and as the request of the API and version that the first two bytes choose.
pub fn frame(data: &[u8]) {
    crate::heap::bounded(data, 0, || read(data));
    if let [key, version, body @ ..] = data {
        let api = &Api::all()[usize::from(*key) % Api::all().len()];
        let version = i16::from(*version) % (api.version_max + 2);
        let _ = crate::heap::bounded(data, 0, || read_request(api.key, version, body));
    }
}
