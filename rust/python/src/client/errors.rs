//! The client's errors as Python's exceptions.

use klamm_base::ErrorCode;
use klamm_client::{ClientError as Error, LinkError};
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;

create_exception!(
    klamm._engine,
    ClientError,
    PyException,
    "A call to a cluster that failed; the text says how to go on."
);
create_exception!(klamm._engine, ClientTimeoutError, ClientError, "Nothing helped within the time-out.");
create_exception!(
    klamm._engine,
    MistrustError,
    ClientError,
    "Client and broker do not trust each other: TLS or SASL failed, and would again."
);
create_exception!(klamm._engine, OffsetOutOfRangeError, ClientError, "An offset that the partition does not hold.");
create_exception!(
    klamm._engine,
    TopicRecreatedError,
    ClientError,
    "The topic was deleted, and another one has its name."
);
create_exception!(klamm._engine, NotDeliveredError, ClientError, "Records that are not known to be in the log.");
create_exception!(klamm._engine, ProducerFencedError, ClientError, "A newer producer has the same transactional.id.");
create_exception!(klamm._engine, NoTransactionsError, ClientError, "The brokers have no transactions.");
create_exception!(klamm._engine, DamagedBatchError, ClientError, "A fetched batch that cannot be read.");

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("ClientError", py.get_type::<ClientError>())?;
    module.add("ClientTimeoutError", py.get_type::<ClientTimeoutError>())?;
    module.add("MistrustError", py.get_type::<MistrustError>())?;
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
        _ if error.is_mistrust() => MistrustError::new_err(text),
        Error::Invalid(_) => return PyValueError::new_err(text),
        Error::TimedOut { .. } | Error::Refused { .. } => ClientTimeoutError::new_err(text),
        Error::OffsetOutOfRange { .. } => OffsetOutOfRangeError::new_err(text),
        Error::Damaged { .. } => DamagedBatchError::new_err(text),
        Error::NotDelivered { .. } => NotDeliveredError::new_err(text),
        Error::Failed { .. } | Error::RecordTooLarge { .. } | Error::State { .. } | Error::Closed => {
            ClientError::new_err(text)
        }
    };
    match set_attributes(exception.value(py), error) {
        Ok(()) => exception,
        Err(failure) => failure,
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

/// The exception of a link that does not come about, or breaks.
pub fn link_error(py: Python<'_>, error: &LinkError) -> PyErr {
    let text = error.to_string();
    let exception = match error {
        _ if error.is_mistrust() => MistrustError::new_err(text),
        LinkError::Late { .. } => ClientTimeoutError::new_err(text),
        _ => ClientError::new_err(text),
    };
    match exception.value(py).setattr("error_code", error.code().map(|code| code.0)) {
        Ok(()) => exception,
        Err(failure) => failure,
    }
}
