//! Waits for the engine without the GIL, and handles signals meanwhile.

use std::pin::pin;
use std::time::Duration;

use pyo3::prelude::*;

use crate::runtime::SharedRuntime;

/// How often signals are checked.
const SIGNALS_EVERY: Duration = Duration::from_millis(100);

/// Waits for the call. If a signal handler raises an exception, the call is cancelled and the exception returned.
pub fn wait<T: Send>(py: Python<'_>, runtime: &SharedRuntime, call: impl Future<Output = T> + Send) -> PyResult<T> {
    let handle = runtime.handle();
    let mut call = pin!(call);
    loop {
        let step = async { tokio::time::timeout(SIGNALS_EVERY, call.as_mut()).await };
        match py.detach(|| handle.block_on(step)) {
            Ok(outcome) => return Ok(outcome),
            Err(_) => py.check_signals()?,
        }
    }
}
