//! The error codes of an encoded response, as Apache Kafka counts them in `AbstractResponse.errorCounts`.

use klamm_base::ErrorCode;
use klamm_base::primitives::{ErrorCounts, Reader, WireError, Writer};
use klamm_wire::versioned::VersionedReader;

use super::message_schema::{Field, Kind, MessageSchema};

impl MessageSchema {
    /// Every error code of the message in `body` with its number, also `NONE`. Stops where the body is malformed.
    pub(super) fn count_error_codes(&self, body: &[u8]) -> ErrorCounts {
        let mut counted = Writer::new();
        counted.count_errors();
        let _ = self.count(&mut VersionedReader::new(body, self.is_flexible), &mut counted);
        counted.take_errors()
    }

    fn count(&self, reader: &mut VersionedReader<'_>, counted: &mut Writer) -> Result<(), WireError> {
        for field in &self.fields {
            field.count(reader, counted)?;
        }
        reader.tags(|tag, left: &mut Reader<'_>| {
            let Some((_, field)) = self.tagged.iter().find(|(known, _)| *known == tag) else { return Ok(false) };
            let mut inner = VersionedReader::new(left.remaining(), true);
            field.count(&mut inner, counted)?;
            *left = inner.reader;
            Ok(true)
        })
    }
}

impl Field {
    fn count(&self, reader: &mut VersionedReader<'_>, counted: &mut Writer) -> Result<(), WireError> {
        if !self.is_array {
            return self.count_one(reader, counted, self.is_nullable);
        }
        let size_min = self.kind.size_min(reader.is_flexible());
        let items = reader.nullable_array_len(size_min)?.unwrap_or(0);
        (0..items).try_for_each(|_| self.count_one(reader, counted, false))
    }

    fn count_one(
        &self,
        reader: &mut VersionedReader<'_>,
        counted: &mut Writer,
        is_nullable: bool,
    ) -> Result<(), WireError> {
        match &self.kind {
            Kind::ErrorCode => counted.error_code(ErrorCode(reader.i16()?)),
            Kind::String => drop(reader.nullable_string()?),
            Kind::Bytes => drop(reader.nullable_bytes()?),
            Kind::Struct(_) if is_nullable && reader.i8()? < 0 => {}
            Kind::Struct(schema) => schema.get().count(reader, counted)?,
            plain => drop(reader.reader.slice(plain.size_min(reader.is_flexible()))?),
        }
        Ok(())
    }
}
