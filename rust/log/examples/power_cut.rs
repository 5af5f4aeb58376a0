//! Simulates a power cut on a node's folder: `power_cut FOLDER CHANGES`. `CHANGES` is the record of file changes that
//! `tests/support/file_changes.c` writes.
//!
//! Each line of standard input is `CUT SEED TARGET`: the power fails after the first `CUT` bytes of the record (never
//! fewer than in the line before), and the surviving files are written to the new folder `TARGET`. One line of output
//! answers each line of input.

use std::error::Error;
use std::fs;
use std::io::{BufRead, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use klamm_log::recorder::{self, Change};

#[allow(dead_code, reason = "the example needs a part of it")]
#[path = "../src/crash.rs"]
mod crash;

use crash::{Disk, Rng};

/// One recorded change.
struct Recorded {
    change: Change,
    /// The number of the first change that a sync does not cover.
    begun: usize,
    /// The position in the file where its record ends.
    end: usize,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(root), Some(changes)) = (arguments.next(), arguments.next()) else {
        return Err("power_cut FOLDER CHANGES".into());
    };
    let root = PathBuf::from(root);
    let changes = parse(&fs::read(changes)?).ok_or("a record that is cut or unknown")?;
    let mut disk = Disk::default();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let [cut, seed, target] = line.splitn(3, ' ').collect::<Vec<_>>()[..] else {
            return Err("CUT SEED TARGET".into());
        };
        let cut: usize = cut.parse()?;
        while let Some(next) = changes.get(disk.played()).filter(|next| next.end <= cut) {
            disk.play(&next.change, next.begun);
        }
        let torn = changes.get(disk.played()).map(|recorded| &recorded.change);
        fs::create_dir(target)?;
        disk.lose_power(&root, Path::new(target), torn, &mut Rng::new(seed.parse()?));
        println!("{}", disk.played());
        std::io::stdout().flush()?;
    }
    Ok(())
}

fn parse(bytes: &[u8]) -> Option<Vec<Recorded>> {
    let mut rest = bytes;
    let mut changes: Vec<Recorded> = Vec::new();
    while !rest.is_empty() {
        let kind = u32::from_ne_bytes(take(&mut rest, 4)?.try_into().ok()?);
        let path_bytes = u32::from_ne_bytes(take(&mut rest, 4)?.try_into().ok()?) as usize;
        let data_bytes = u32::from_ne_bytes(take(&mut rest, 4)?.try_into().ok()?) as usize;
        take(&mut rest, 4)?;
        let begun = u64::from_ne_bytes(take(&mut rest, 8)?.try_into().ok()?) as usize;
        let id = u64::from_ne_bytes(take(&mut rest, 8)?.try_into().ok()?);
        let position = u64::from_ne_bytes(take(&mut rest, 8)?.try_into().ok()?);
        let path = path(take(&mut rest, path_bytes)?);
        let data = take(&mut rest, data_bytes)?;
        let change = match kind {
            1 => Change::Create { id, path },
            2 => Change::Write { id, position, bytes: data.to_vec() },
            3 => Change::SetLen { id, len: position },
            4 => Change::Sync { id },
            5 => Change::SyncAll,
            6 => Change::Rename { from: path, to: self::path(data) },
            7 => Change::Remove { path },
            8 => Change::CreateDir { path },
            9 => Change::SyncDir { path },
            _ => return None,
        };
        let begun = changes.partition_point(|recorded| recorded.end <= begun);
        changes.push(Recorded { change, begun, end: bytes.len() - rest.len() });
    }
    Some(changes)
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(count)?;
    *rest = after;
    Some(taken)
}

fn path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(std::ffi::OsStr::from_bytes(bytes))
}
