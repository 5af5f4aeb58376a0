//! SaslHandshake v1 and SaslAuthenticate v0-2: the mechanism, then its messages (KIP-43, KIP-152, KIP-368).

use bytes::Bytes;
use klamm_base::ErrorCode;
use klamm_base::primitives::WireError;
use klamm_wire::versioned::{VersionedReader, VersionedWriter};

use super::{Request, is_flexible};

const SASL_HANDSHAKE: i16 = 17;
const SASL_AUTHENTICATE: i16 = 36;

/// After v1 the mechanism's messages are requests too; after v0 they would be raw bytes.
pub struct SaslHandshakeRequest {
    pub mechanism: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaslHandshakeAnswer {
    pub error: ErrorCode,
    /// The mechanisms that the broker supports.
    pub mechanisms: Vec<String>,
}

impl Request for SaslHandshakeRequest {
    const API: i16 = SASL_HANDSHAKE;
    const VERSION_MIN: i16 = 1;
    const VERSION_MAX: i16 = 1;
    type Answer = SaslHandshakeAnswer;

    fn write(&self, out: &mut VersionedWriter<'_>, _version: i16) {
        out.string(self.mechanism);
    }

    fn read(body: &Bytes, version: i16) -> Result<SaslHandshakeAnswer, WireError> {
        let mut reader = VersionedReader::new(body, is_flexible(SASL_HANDSHAKE, version));
        let error = ErrorCode(reader.i16()?);
        let count = reader.array_len(2)?;
        let mut mechanisms = Vec::with_capacity(count);
        for _ in 0..count {
            mechanisms.push(reader.string()?.into_owned());
        }
        Ok(SaslHandshakeAnswer { error, mechanisms })
    }
}

/// One message of the mechanism. It has no `Debug`, because it may contain a password.
pub struct SaslAuthenticateRequest {
    pub message: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaslAuthenticateAnswer {
    pub error: ErrorCode,
    pub error_message: Option<String>,
    pub message: Vec<u8>,
    /// The lifetime of the session in ms; 0: unlimited.
    pub session_lifetime_ms: i64,
}

impl Request for SaslAuthenticateRequest {
    const API: i16 = SASL_AUTHENTICATE;
    const VERSION_MIN: i16 = 0;
    const VERSION_MAX: i16 = 2;
    type Answer = SaslAuthenticateAnswer;

    fn write(&self, out: &mut VersionedWriter<'_>, _version: i16) {
        out.bytes(&self.message);
        out.no_tags();
    }

    fn read(body: &Bytes, version: i16) -> Result<SaslAuthenticateAnswer, WireError> {
        let mut reader = VersionedReader::new(body, is_flexible(SASL_AUTHENTICATE, version));
        let error = ErrorCode(reader.i16()?);
        let error_message = reader.nullable_string()?.map(|text| text.into_owned());
        let message = reader.nullable_bytes()?.ok_or(WireError::UnexpectedNull)?.to_vec();
        let session_lifetime_ms = if version >= 1 { reader.i64()? } else { 0 };
        Ok(SaslAuthenticateAnswer { error, error_message, message, session_lifetime_ms })
    }
}
