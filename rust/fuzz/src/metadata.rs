//! Invariant: no bytes make a metadata record, or the image they are applied to, panic or loop; decoding one holds no more
//! than four times the input and 64 KiB. What was applied in one piece is what is applied batch by batch, and an image made of
//! an image's records is said by the same records.

use klamm_metadata::MetadataImage;
use klamm_metadata::image_records::{UnwritableError, for_each_record};
use klamm_metadata::records::Record;
use klamm_records::{Batch, header};

/// Reads the bytes as one record, and as a metadata log whose batches have a CRC and offsets that fit.
pub fn metadata(data: &[u8]) {
    crate::heap::bounded(data, 0, || check_record(data));
    let log = mended(data);
    let Ok(image) = MetadataImage::default().apply_batches(&log) else { return };
    let piecewise = klamm_records::batches(&log).try_fold(MetadataImage::default(), |image, batch| {
        image.apply_batches(batch.expect("it was read before").bytes())
    });
    assert!(piecewise.is_ok_and(|piecewise| piecewise == image), "applied in pieces it is another image");
    check_records_of(&image);
}

fn check_record(data: &[u8]) {
    if let Ok((record, version)) = Record::decode(data) {
        let written = record.encode(version).expect("what was read can be written");
        assert_eq!(Record::decode(&written), Ok((record, version)));
    }
}

/// What cannot be said, like ELR without its feature, is lost the first time and not again.
fn check_records_of(image: &MetadataImage) {
    let Ok(records) = records_of(image) else { return };
    let again = MetadataImage::default().apply(records.iter().map(Vec::as_slice)).expect("an image can be said again");
    assert_eq!(records_of(&again), Ok(records));
}

fn records_of(image: &MetadataImage) -> Result<Vec<Vec<u8>>, UnwritableError> {
    let mut records = Vec::new();
    for_each_record(image, |record, version| {
        records.push(record.encode(version).expect("what the image holds fits its version"));
        Ok(())
    })?;
    Ok(records)
}

/// The whole batches that `data` begins with, numbered through, each with its CRC.
fn mended(data: &[u8]) -> Vec<u8> {
    let mut log = data.to_vec();
    let (mut at, mut offset) = (0, 0);
    while let Ok(batch) = Batch::at_start_of(&log[at..]) {
        let (size, count) = (batch.bytes().len(), i64::from(batch.header().record_count().max(1)));
        let batch = &mut log[at..at + size];
        header::set_position(batch, offset, 1);
        header::set_crc(batch);
        at += size;
        offset += count;
    }
    log.truncate(at);
    log
}
