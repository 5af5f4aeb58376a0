//! What threads leave for an event loop, which a descriptor wakes.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::WakeUp;

/// What an inbox contains.
pub trait Content {
    fn is_empty(&self) -> bool;
}

impl<T> Content for Vec<T> {
    fn is_empty(&self) -> bool {
        Self::is_empty(self)
    }
}

/// Content behind a lock, with a descriptor that is readable while there is some.
///
/// The descriptor is raised without the lock. The loop that it wakes takes the lock at once, perhaps on the processor of
/// the thread that raised it, and may have to wait until that thread runs again. Python's loop would hold the GIL meanwhile.
///
/// No wake-up is lost:
///
/// 1. While there is content, `is_signalled` is set.
/// 2. Who sets `is_signalled` raises the descriptor after releasing the lock.
/// 3. Only [`Inbox::take`] lowers the descriptor and resets `is_signalled`, both with the lock. What it leaves, and what
///    comes after it, sets `is_signalled` again, so that the descriptor is raised after it was lowered.
///
/// A descriptor that is raised late, for content that was already taken, wakes the loop once for nothing.
pub struct Inbox<C> {
    state: Mutex<State<C>>,
}

struct State<C> {
    content: C,
    is_signalled: bool,
    /// `None` after [`Inbox::close`].
    wake_up: Option<Arc<WakeUp>>,
}

/// The descriptor to raise without the lock, if it has to be.
type Raise = Option<Arc<WakeUp>>;

impl<C: Content> State<C> {
    fn signal(&mut self) -> Raise {
        if self.is_signalled || self.content.is_empty() {
            return None;
        }
        self.is_signalled = true;
        self.wake_up.clone()
    }
}

impl<C: Content> Inbox<C> {
    pub fn new(content: C) -> io::Result<Self> {
        let wake_up = Some(Arc::new(WakeUp::new()?));
        Ok(Self { state: Mutex::new(State { content, is_signalled: false, wake_up }) })
    }

    /// The descriptor; `None` after [`Inbox::close`].
    pub fn fd(&self) -> Option<RawFd> {
        self.state.lock().wake_up.as_ref().map(|wake_up| wake_up.as_raw_fd())
    }

    /// Releases the descriptor: no one is woken any more.
    pub fn close(&self) {
        let closed = self.state.lock().wake_up.take();
        drop(closed);
    }

    pub fn look<T>(&self, look: impl FnOnce(&C) -> T) -> T {
        look(&self.state.lock().content)
    }

    /// Changes the content, and wakes the loop if there is some that it was not woken for.
    pub fn change<T>(&self, change: impl FnOnce(&mut C) -> T) -> T {
        let (changed, raise) = self.change_quietly(change);
        raise.iter().for_each(|wake_up| wake_up.raise());
        changed
    }

    fn change_quietly<T>(&self, change: impl FnOnce(&mut C) -> T) -> (T, Raise) {
        let mut state = self.state.lock();
        let changed = change(&mut state.content);
        (changed, state.signal())
    }

    /// Takes content, for the loop. If some is left, the descriptor stays readable.
    pub fn take<T>(&self, take: impl FnOnce(&mut C) -> T) -> T {
        let mut state = self.state.lock();
        state.wake_up.iter().for_each(|wake_up| wake_up.lower());
        state.is_signalled = false;
        let taken = take(&mut state.content);
        let raise = state.signal();
        drop(state);
        raise.iter().for_each(|wake_up| wake_up.raise());
        taken
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const LONG_MS: i32 = 20_000;

    fn is_readable(inbox: &Inbox<Vec<usize>>, wait_ms: i32) -> bool {
        let mut polled = libc::pollfd { fd: inbox.fd().expect("it is open"), events: libc::POLLIN, revents: 0 };
        // SAFETY: the array has one element.
        unsafe { libc::poll(&mut polled, 1, wait_ms) == 1 }
    }

    /// One turn of the loop, which takes one thing.
    fn turn(inbox: &Inbox<Vec<usize>>, taken: &mut Vec<usize>) -> bool {
        let is_woken = is_readable(inbox, 0);
        if is_woken {
            taken.extend(inbox.take(Vec::pop));
        }
        is_woken
    }

    /// All orders in which threads take two steps each.
    fn orders(left: [usize; 3]) -> Vec<Vec<usize>> {
        if left == [0; 3] {
            return vec![Vec::new()];
        }
        let mut found = Vec::new();
        for thread in (0..3).filter(|thread| left[*thread] > 0) {
            let mut after = left;
            after[thread] -= 1;
            found.extend(orders(after).into_iter().map(|rest| [vec![thread], rest].concat()));
        }
        found
    }

    #[test]
    fn no_wake_up_is_lost_in_any_order_of_steps() {
        const STEPS: usize = 6;
        for order in orders([2; 3]) {
            for turns in 0..1 << STEPS {
                let inbox = Inbox::new(Vec::new()).expect("a descriptor");
                let (mut raises, mut taken) = ([const { None }; 3], Vec::new());
                for (step, thread) in order.iter().enumerate() {
                    match raises[*thread].take() {
                        None => raises[*thread] = Some(inbox.change_quietly(|content| content.push(*thread)).1),
                        Some(raise) => raise.iter().for_each(|wake_up: &Arc<WakeUp>| wake_up.raise()),
                    }
                    if turns >> step & 1 == 1 {
                        turn(&inbox, &mut taken);
                    }
                }
                while turn(&inbox, &mut taken) {}
                taken.sort_unstable();
                assert_eq!(taken, [0, 1, 2], "{order:?} with turns of the loop {turns:b}");
            }
        }
    }

    #[test]
    fn no_wake_up_is_lost_between_threads() {
        const THREADS: usize = 4;
        const EACH: usize = 2_000;
        let inbox = Inbox::new(Vec::new()).expect("a descriptor");
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| (0..EACH).for_each(|number| inbox.change(|content| content.push(number))));
            }
            let mut count = 0;
            while count < THREADS * EACH {
                assert!(is_readable(&inbox, LONG_MS), "the loop is woken after {count}");
                count += inbox.take(|content| content.split_off(content.len().saturating_sub(3))).len();
            }
        });
    }

    #[test]
    fn a_closed_inbox_keeps_its_content() {
        let inbox = Inbox::new(Vec::new()).expect("a descriptor");
        inbox.change(|content| content.push(1));
        inbox.close();
        inbox.change(|content| content.push(2));
        assert_eq!((inbox.fd(), inbox.look(Vec::len)), (None, 2));
        assert_eq!(inbox.take(std::mem::take), [1, 2]);
    }
}
