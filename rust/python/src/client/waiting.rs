//! Waits for what the engine does, without the GIL, and looks for signals meanwhile.

use std::pin::pin;
use std::time::Duration;

use pyo3::prelude::*;

use crate::runtime::SharedRuntime;

/// How long a signal may have to wait for Python to see it.
const SIGNALS_EVERY: Duration = Duration::from_millis(100);

/// What comes of it; an error is what a signal's handler raised, and then it is given up.
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
