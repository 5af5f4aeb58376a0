//! ApiVersions v0-3: the API versions of a broker.

use bytes::Bytes;
use klamm_base::ErrorCode;
use klamm_base::primitives::WireError;
use klamm_wire::api::API_VERSIONS;
use klamm_wire::versioned::{VersionedReader, VersionedWriter};

use super::{Request, is_flexible};

/// Requests the versions of every API. A broker older than Apache Kafka 2.4 rejects v3 and answers in v0 (KIP-511).
pub struct ApiVersionsRequest;

/// Key, lowest and highest version of each API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiVersionsAnswer {
    pub error: ErrorCode,
    pub apis: Vec<(i16, i16, i16)>,
}

impl Request for ApiVersionsRequest {
    const API: i16 = API_VERSIONS;
    const VERSION_MIN: i16 = 0;
    const VERSION_MAX: i16 = 3;
    type Answer = ApiVersionsAnswer;

    fn write(&self, out: &mut VersionedWriter<'_>, version: i16) {
        if version >= 3 {
            out.string("klamm");
            out.string(env!("CARGO_PKG_VERSION"));
            out.no_tags();
        }
    }

    fn read(body: &Bytes, version: i16) -> Result<ApiVersionsAnswer, WireError> {
        let refused = body.first_chunk() == Some(&ErrorCode::UNSUPPORTED_VERSION.0.to_be_bytes());
        let version = if refused { 0 } else { version };
        let mut reader = VersionedReader::new(body, is_flexible(API_VERSIONS, version));
        let error = ErrorCode(reader.i16()?);
        let apis = reader.array(6, |reader| {
            let versions = (reader.i16()?, reader.i16()?, reader.i16()?);
            reader.skip_tags()?;
            Ok(versions)
        })?;
        Ok(ApiVersionsAnswer { error, apis })
    }
}
