//! ApiVersions: answered in any version.

use klamm_base::ErrorCode;
use klamm_wire::api_versions::{ApiVersionsRequest, write_error, write_response};

use super::{Call, Outcome};

pub fn handle(call: Call<'_>, body: &[u8]) -> Outcome {
    if !(call.context.api.version_min..=call.context.api.version_max).contains(&call.context.version) {
        // The client does not know the supported versions yet, so the response uses the oldest version (KIP-511).
        write_error(&mut call.answer.writer, 0, ErrorCode::UNSUPPORTED_VERSION);
        return Outcome::Answered;
    }
    match ApiVersionsRequest::parse(body, call.context.version) {
        Err(error) => call.malformed(error),
        Ok(request) if !request.is_valid() => {
            write_error(&mut call.answer.writer, call.context.version, ErrorCode::INVALID_REQUEST);
            Outcome::Answered
        }
        Ok(_) => {
            let features = call.core.features();
            let apis = call.core.advertised_apis(call.context.listener);
            write_response(&mut call.answer.writer, call.context.version, &apis, &features);
            Outcome::Answered
        }
    }
}
