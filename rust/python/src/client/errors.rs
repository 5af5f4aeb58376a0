//! The client's errors as Python's exceptions.

use klamm_base::ErrorCode;
use klamm_client::attempts::Fault;
use klamm_client::{ClientError as Error, LinkError};
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;

create_exception!(
    klamm._engine.client,
    ClientError,
    PyException,
    "A call to a cluster that failed; the text says how to go on."
);
create_exception!(
    klamm._engine.client,
    UnreachableError,
    ClientError,
    "No answer: not yet, not any more, or not in time."
);
create_exception!(
    klamm._engine.client,
    ConnectError,
    UnreachableError,
    "There is no connection, and nothing was sent."
);
create_exception!(klamm._engine.client, ConnectRefusedError, ConnectError, "The host is there, and nothing listens.");
create_exception!(klamm._engine.client, ConnectionLostError, UnreachableError, "The connection was lost.");
create_exception!(klamm._engine.client, ClientTimeoutError, UnreachableError, "Nothing helped within the time-out.");
create_exception!(
    klamm._engine.client,
    UnsupportedVersionError,
    ClientError,
    "No version of an API is known to both sides; nothing was sent."
);
create_exception!(klamm._engine.client, BrokerError, ClientError, "A broker answered with an error code.");
create_exception!(
    klamm._engine.client,
    SecurityError,
    ClientError,
    "Client and broker do not trust each other: TLS or SASL failed, and would again."
);
create_exception!(
    klamm._engine.client,
    OffsetOutOfRangeError,
    ClientError,
    "An offset that the partition does not hold."
);
create_exception!(
    klamm._engine.client,
    TopicRecreatedError,
    ClientError,
    "The topic was deleted, and another one has its name."
);
create_exception!(klamm._engine.client, NotDeliveredError, ClientError, "Records that are not known to be in the log.");
create_exception!(
    klamm._engine.client,
    ProducerFencedError,
    ClientError,
    "A newer producer has the same transactional.id."
);
create_exception!(klamm._engine.client, NoTransactionsError, ClientError, "The brokers have no transactions.");
create_exception!(klamm._engine.client, DamagedBatchError, ClientError, "A fetched batch that cannot be read.");

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let base = py.get_type::<ClientError>();
    // Of one that Python raises, unless it says otherwise.
    for attribute in ["topic", "partition", "error_code"] {
        base.setattr(attribute, py.None())?;
    }
    module.add("ClientError", base)?;
    module.add("ClientTimeoutError", py.get_type::<ClientTimeoutError>())?;
    module.add("UnreachableError", py.get_type::<UnreachableError>())?;
    module.add("ConnectError", py.get_type::<ConnectError>())?;
    module.add("ConnectRefusedError", py.get_type::<ConnectRefusedError>())?;
    module.add("ConnectionLostError", py.get_type::<ConnectionLostError>())?;
    module.add("UnsupportedVersionError", py.get_type::<UnsupportedVersionError>())?;
    let broker = py.get_type::<BrokerError>();
    broker.setattr("error_code", ErrorCode::UNKNOWN_SERVER_ERROR.0)?;
    module.add("BrokerError", broker)?;
    module.add("SecurityError", py.get_type::<SecurityError>())?;
    module.add("OffsetOutOfRangeError", py.get_type::<OffsetOutOfRangeError>())?;
    module.add("TopicRecreatedError", py.get_type::<TopicRecreatedError>())?;
    module.add("NotDeliveredError", py.get_type::<NotDeliveredError>())?;
    module.add("ProducerFencedError", py.get_type::<ProducerFencedError>())?;
    module.add("NoTransactionsError", py.get_type::<NoTransactionsError>())?;
    module.add("DamagedBatchError", py.get_type::<DamagedBatchError>())
}

/// The exception of an error, with what programs ask of it as attributes.
pub fn client_error(py: Python<'_>, error: &Error) -> PyErr {
    let text = error.to_string();
    let is_fenced = matches!(error.code(), Some(ErrorCode::PRODUCER_FENCED | ErrorCode::INVALID_PRODUCER_EPOCH));
    let exception = match error {
        _ if error.lacks_transactions() => NoTransactionsError::new_err(text),
        _ if error.is_another_topic() => TopicRecreatedError::new_err(text),
        _ if is_fenced => ProducerFencedError::new_err(text),
        _ if error.is_security() => SecurityError::new_err(text),
        Error::Invalid(_) => return PyValueError::new_err(text),
        Error::TimedOut { .. } | Error::Refused { .. } => ClientTimeoutError::new_err(text),
        Error::OffsetOutOfRange { .. } => OffsetOutOfRangeError::new_err(text),
        Error::Damaged { .. } => DamagedBatchError::new_err(text),
        Error::NotDelivered { .. } => NotDeliveredError::new_err(text),
        Error::Failed { source, .. } => of_fault(source, text),
        Error::RecordTooLarge { .. } | Error::State { .. } | Error::Closed => ClientError::new_err(text),
    };
    match set_attributes(exception.value(py), error) {
        Ok(()) => exception,
        Err(failure) => failure,
    }
}

fn of_fault(fault: &Fault, text: String) -> PyErr {
    match fault {
        Fault::Link(error) => of_link(error, text),
        Fault::Code(_) => BrokerError::new_err(text),
        _ => ClientError::new_err(text),
    }
}

fn set_attributes(exception: &Bound<'_, PyAny>, error: &Error) -> PyResult<()> {
    let (topic, partition) = error.place();
    exception.setattr("topic", topic)?;
    exception.setattr("partition", partition)?;
    exception.setattr("error_code", error.code().map(|code| code.0))?;
    match error {
        Error::OffsetOutOfRange { offset, earliest, latest, .. } => {
            exception.setattr("offset", offset)?;
            exception.setattr("earliest", earliest)?;
            exception.setattr("latest", latest)
        }
        Error::Damaged { offset, .. } => exception.setattr("offset", offset),
        Error::NotDelivered { records, .. } => exception.setattr("records", records),
        _ => Ok(()),
    }
}

/// The exception of a connection that cannot be established or fails, or of an invalid response.
pub fn link_error(py: Python<'_>, error: &LinkError) -> PyErr {
    let exception = of_link(error, error.to_string());
    match exception.value(py).setattr("error_code", error.code().map(|code| code.0)) {
        Ok(()) => exception,
        Err(failure) => failure,
    }
}

fn of_link(error: &LinkError, text: String) -> PyErr {
    match error {
        _ if error.is_security() => SecurityError::new_err(text),
        _ if error.is_refused() => ConnectRefusedError::new_err(text),
        LinkError::Connect { .. } => ConnectError::new_err(text),
        LinkError::Broken { .. } | LinkError::Unwelcome { .. } | LinkError::Security { .. } => {
            ConnectionLostError::new_err(text)
        }
        LinkError::Late { .. } => ClientTimeoutError::new_err(text),
        LinkError::Version { .. } => UnsupportedVersionError::new_err(text),
        LinkError::Refused { .. } => BrokerError::new_err(text),
        LinkError::Malformed { .. }
        | LinkError::TooLong { .. }
        | LinkError::OutOfTurn { .. }
        | LinkError::Unasked { .. } => ClientError::new_err(text),
    }
}
