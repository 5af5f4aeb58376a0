//! Writing without blocking to a transport that accepts few bytes at a time and buffers unflushed bytes, as TLS does.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use proptest::prelude::*;
use tokio::io::AsyncWrite;

use super::channel::Outgoing;

#[derive(Default)]
struct Taken {
    kept: Vec<u8>,
    flushed: Vec<u8>,
    /// The number of bytes accepted by each call, the last entry first; without entries it is not ready.
    room: Vec<usize>,
    may_flush: bool,
}

#[derive(Clone, Default)]
struct Narrow(Arc<Mutex<Taken>>);

impl AsyncWrite for Narrow {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let mut taken = self.0.lock();
        let Some(room) = taken.room.pop() else { return Poll::Pending };
        let bytes = room.min(data.len());
        taken.kept.extend_from_slice(&data[..bytes]);
        Poll::Ready(Ok(bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut taken = self.0.lock();
        if !taken.may_flush {
            return Poll::Pending;
        }
        let kept = std::mem::take(&mut taken.kept);
        taken.flushed.extend(kept);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

proptest! {
    #[test]
    fn everything_is_written_in_order_and_flushed(
        frames in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..40), 1..6),
        rooms in proptest::collection::vec(proptest::collection::vec(1usize..20, 0..4), 0..6),
    ) {
        let narrow = Narrow::default();
        let mut outgoing = Outgoing::default();
        outgoing.write = Some(Box::new(narrow.clone()));
        for (at, frame) in frames.iter().enumerate() {
            narrow.0.lock().room = rooms.get(at).cloned().unwrap_or_default();
            outgoing.backlog.extend_from_slice(frame);
            outgoing.write_on(Waker::noop()).expect("not ready is no error");
        }
        {
            let mut taken = narrow.0.lock();
            prop_assert!(taken.flushed.is_empty());
            (taken.room, taken.may_flush) = (vec![1000], true);
        }
        outgoing.write_on(Waker::noop()).expect("it takes everything");
        prop_assert!(outgoing.backlog.is_empty());
        prop_assert_eq!(&narrow.0.lock().flushed, &frames.concat());
    }
}

#[test]
fn a_transport_that_accepts_nothing_is_lost() {
    let narrow = Narrow::default();
    narrow.0.lock().room = vec![0];
    let mut outgoing = Outgoing::default();
    outgoing.write = Some(Box::new(narrow));
    outgoing.backlog = b"frame".to_vec();
    assert_eq!(outgoing.write_on(Waker::noop()).expect_err("no progress").kind(), io::ErrorKind::WriteZero);
}
