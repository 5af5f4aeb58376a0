//! Invariant: no bytes make a metadata record, or the image to which they are applied, panic or loop; decoding one
//! allocates no more than four times the input plus 64 KiB. Applying everything at once gives the same image as
//! applying batch by batch, and an image created from an image's records has the same records.

use klamm_metadata::MetadataImage;
use klamm_metadata::image_records::{UnwritableError, for_each_record};
use klamm_metadata::records::Record;
use klamm_records::{Batch, header};

/// Parses the bytes as one record, and as a metadata log whose batches have a valid CRC and valid offsets.
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

/// Content that records cannot express, like ELR without its feature, is lost the first time and not again.
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

/// The complete batches at the start of `data`, renumbered, each with its CRC.
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
