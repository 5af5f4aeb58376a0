//! A range of a file that is sent to a socket.

use std::fmt;
use std::sync::Arc;

use super::files::OpenFile;

/// `len` bytes of `file` from `position` on. Holding it keeps the file usable, also when it is removed meanwhile.
#[derive(Clone)]
pub struct FileSlice {
    pub file: Arc<OpenFile>,
    pub position: u64,
    pub len: usize,
}

impl fmt::Debug for FileSlice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.position + self.len as u64;
        write!(out, "{}[{}..{end}]", self.file.path().display(), self.position)
    }
}
