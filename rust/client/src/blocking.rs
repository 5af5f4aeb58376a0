//! A connection for a dedicated thread: the thread itself waits for the socket, and no other thread has to wake it.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use klamm_base::conditions::Conditions;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::channel::ChannelPlan;
use super::connection::Connection;
use super::link_error::LinkError;
use super::versions::Versions;

/// The longest delay before a caller checks for signals.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// One connection, used by one thread at a time.
#[derive(Debug)]
pub struct BlockingConnection {
    connection: Connection,
    runtime: Runtime,
    conditions: Option<Arc<Conditions>>,
}

/// Ends a wait early.
pub enum Until<'a> {
    /// By another thread.
    Interrupted(&'a Interrupter),
    /// By the caller, which is polled regularly.
    Refused(&'a dyn Fn() -> bool),
}

/// Interrupts what a thread waits for, or its next wait.
#[derive(Clone, Debug, Default)]
pub struct Interrupter(Arc<Notify>);

impl Interrupter {
    pub fn interrupt(&self) {
        self.0.notify_one();
    }
}

/// Why a call has no result.
#[derive(Debug)]
pub enum Unfinished {
    Interrupted,
    Failed(LinkError),
}

impl BlockingConnection {
    /// Connects and queries the broker's API versions.
    pub fn open(plan: &ChannelPlan, within: Duration, until: &Until<'_>) -> Result<Self, Unfinished> {
        let failed = |error: io::Error| Unfinished::Failed(LinkError::connect(&plan.address, error));
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let conditions = plan.conditions.clone();
        let open = Connection::open_under(conditions.as_ref(), &plan.address, &plan.client_id, &plan.security, within);
        let connection = run(&runtime, until, held(conditions.as_ref(), open))?;
        Ok(Self { connection, runtime, conditions })
    }

    pub fn versions(&self) -> &Versions {
        self.connection.versions()
    }

    /// Sends a request body in this version of an API and returns the response body. After an error the connection
    /// must not be used.
    pub fn call(
        &mut self,
        api: i16,
        version: i16,
        body: &[u8],
        within: Duration,
        until: &Until<'_>,
    ) -> Result<Bytes, Unfinished> {
        run(&self.runtime, until, held(self.conditions.as_ref(), self.connection.call_raw(api, version, body, within)))
    }

    /// The first half of `call`.
    pub fn send(
        &mut self,
        api: i16,
        version: i16,
        body: &[u8],
        within: Duration,
        until: &Until<'_>,
    ) -> Result<(), Unfinished> {
        run(&self.runtime, until, held(self.conditions.as_ref(), self.connection.send_raw(api, version, body, within)))
    }

    /// The second half: the response to the last request.
    pub fn receive(
        &mut self,
        api: i16,
        version: i16,
        within: Duration,
        until: &Until<'_>,
    ) -> Result<Bytes, Unfinished> {
        run(&self.runtime, until, held(self.conditions.as_ref(), self.connection.receive_raw(api, version, within)))
    }
}

async fn held<F: Future>(conditions: Option<&Arc<Conditions>>, call: F) -> F::Output {
    match conditions {
        None => call.await,
        Some(conditions) => conditions.hold(call).await,
    }
}

fn run<T>(
    runtime: &Runtime,
    until: &Until<'_>,
    call: impl Future<Output = Result<T, LinkError>>,
) -> Result<T, Unfinished> {
    match until {
        Until::Interrupted(Interrupter(notify)) => runtime.block_on(async {
            tokio::select! {
                biased;
                outcome = call => outcome.map_err(Unfinished::Failed),
                () = notify.notified() => Err(Unfinished::Interrupted),
            }
        }),
        Until::Refused(may_go_on) => {
            let mut call = pin!(call);
            loop {
                match runtime.block_on(async { timeout(LOOK_EVERY, call.as_mut()).await }) {
                    Ok(outcome) => return outcome.map_err(Unfinished::Failed),
                    Err(_) if may_go_on() => {}
                    Err(_) => return Err(Unfinished::Interrupted),
                }
            }
        }
    }
}
