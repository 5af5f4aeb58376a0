//! Invariant: no bytes make the request parser panic, loop, or allocate more than four times the input plus 64 KiB,
//! at any version of any API; the batches of a produce are within its frame, each after the previous one.

use klamm_wire::api::Api;
use klamm_wire::frame::{read, read_request};

/// Parses the bytes as a frame, and as the request of the API and version that the first two bytes select.
pub fn frame(data: &[u8]) {
    crate::heap::bounded(data, 0, || read(data));
    if let [key, version, body @ ..] = data {
        let api = &Api::all()[usize::from(*key) % Api::all().len()];
        let version = i16::from(*version) % (api.version_max + 2);
        let _ = crate::heap::bounded(data, 0, || read_request(api.key, version, body));
    }
}
