//! Sequential reading of a file, of which a window is kept.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes read at once when every byte is looked at.
pub const WHOLE: usize = 4 << 20;
/// Bytes read at once when only headers are.
pub const HEADERS: usize = 16 << 10;

pub struct Reader {
    file: File,
    size: u64,
    window: Vec<u8>,
    window_at: u64,
    piece: usize,
}

impl Reader {
    /// `piece`: bytes to read at once.
    pub fn open(path: &Path, piece: usize) -> io::Result<Self> {
        let file = File::open(path)?;
        let size = file.metadata()?.len();
        Ok(Self { file, size, window: Vec::new(), window_at: 0, piece })
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    /// `len` bytes from `position` on, which must lie within the size.
    pub fn bytes(&mut self, position: u64, len: usize) -> io::Result<&[u8]> {
        let end = self.window_at + self.window.len() as u64;
        if position < self.window_at || position + len as u64 > end {
            self.fill(position, len)?;
        }
        let from = (position - self.window_at) as usize;
        Ok(&self.window[from..from + len])
    }

    /// What is in the window from `position` on: at least one byte.
    pub fn some(&mut self, position: u64) -> io::Result<&[u8]> {
        self.bytes(position, 1)?;
        Ok(&self.window[(position - self.window_at) as usize..])
    }

    fn fill(&mut self, position: u64, len: usize) -> io::Result<()> {
        let want = len.max(self.piece).min((self.size - position.min(self.size)) as usize);
        if want < len {
            return Err(io::Error::new(ErrorKind::UnexpectedEof, "the file ends early"));
        }
        self.window_at = position;
        self.window.resize(want, 0);
        let mut done = 0;
        while done < want {
            match self.file.read_at(&mut self.window[done..], position + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.window.clear();
                    return Err(error);
                }
            }
        }
        self.window.truncate(done);
        if done < len { Err(io::Error::new(ErrorKind::UnexpectedEof, "the file ends early")) } else { Ok(()) }
    }

    /// Where the first byte from `position` on stands that is not zero; the size when there is none.
    pub fn first_not_zero(&mut self, mut position: u64) -> io::Result<u64> {
        while position < self.size {
            let bytes = self.some(position)?;
            if let Some(at) = bytes.iter().position(|&byte| byte != 0) {
                return Ok(position + at as u64);
            }
            position += bytes.len() as u64;
        }
        Ok(self.size)
    }
}
