//! Connections over transports with fewer capabilities than TCP.

use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::task::{Context, Poll};

use klamm_log::FileSlice;
use klamm_log::files::FileCache;
use tokio::io::ReadBuf;

use crate::output::Output;
use crate::transport::{PeerEnd, TcpTransport, Transport};

/// TCP, but all bytes must pass through this process, as with TLS; at most this many at a time.
struct Copying(TcpTransport, usize);

impl Transport for Copying {
    fn poll_read(&mut self, cx: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.0.poll_read(cx, room)
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8], more: bool) -> Poll<io::Result<usize>> {
        self.0.poll_send(cx, &bytes[..bytes.len().min(self.1)], more)
    }

    fn sends_files(&self) -> bool {
        false
    }

    fn poll_send_file(&mut self, _: &mut Context<'_>, _: &File, _: u64, _: usize) -> Poll<io::Result<usize>> {
        unreachable!("it sends no files")
    }

    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<PeerEnd> {
        self.0.poll_end(cx)
    }

    fn wake_at(&mut self, bytes: usize) {
        self.0.wake_at(bytes);
    }
}

#[test]
fn slices_of_files_are_sent_by_a_transport_that_sends_no_files() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("records");
    let content: Vec<_> = (0..200_000u32).flat_map(u32::to_be_bytes).collect();
    File::create(&path).and_then(|mut file| file.write_all(&content)).expect("a file");
    let file = Arc::new(FileCache::new(8).open_read_only(&path).expect("a file"));
    let slice = |position: usize, len| FileSlice { file: file.clone(), position: position as u64, len };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    let reader = std::thread::spawn(move || {
        let mut received = Vec::new();
        listener.accept().expect("a connection").0.read_to_end(&mut received).expect("all bytes");
        received
    });
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(address).await.expect("it listens");
        let mut transport = Copying(TcpTransport::new(stream), 50_001);
        let mut output = Output::default();
        output.push(b"beforeafter", vec![(6, slice(1000, 700_000)), (11, slice(5, 10))]);
        std::future::poll_fn(|cx| output.poll_send(cx, &mut transport)).await.expect("a reader");
    });
    let expected = [b"before", &content[1000..701_000], b"after", &content[5..15]].concat();
    assert!(reader.join().expect("no panic") == expected);
}
