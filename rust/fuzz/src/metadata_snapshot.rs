//! Invariant: whatever a snapshot's file contains, loading it returns an image or an error with the file's name,
//! without a panic or a loop. Loading it again returns the same image, and the file is unchanged.

use std::fs;

use klamm_metadata::checkpoint::load_snapshot;

use crate::folder::Folder;
use crate::metadata_log::mended;

const NAME: &str = "00000000000000000010-0000000001.checkpoint";

/// The file as it is or, depending on the first byte, with valid checksums.
pub fn metadata_snapshot(data: &[u8]) {
    let Some((choices, bytes)) = data.split_first() else { return };
    let folder = Folder::new();
    let path = folder.0.join(NAME);
    let bytes = if choices & 1 == 1 { mended(bytes) } else { bytes.to_vec() };
    fs::write(&path, &bytes).expect("room for temporary files");
    match load_snapshot(&path, 10, 1) {
        Ok(image) => {
            let again = load_snapshot(&path, 10, 1);
            assert!(again.is_ok_and(|again| again == image), "the same file is the same image");
        }
        Err(error) => assert!(error.to_string().contains(NAME), "{error}"),
    }
    assert_eq!(fs::read(&path).expect("readable"), bytes, "a reader changes nothing");
}
