//! From a frame to the one that answers it.

use std::borrow::Cow;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use klamm_wire::api::{self, Api};
use klamm_wire::header::{RequestHeader, ResponseHeader};

use super::answer::Answer;
use super::core::Core;
use super::events::Request;
use super::handlers::{self, Call, Outcome};
use super::link::Link;
use super::listener::Listener;
use super::memory::{self, NoMemoryError};

/// Where a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Answered by the engine, without regard to what was written just before on this connection.
    Own,
    /// Answered by the engine, after the produces before it, so that it sees what they promise.
    OwnInOrder,
    /// Answered by the engine, a produce.
    Produce,
    /// Answered elsewhere.
    Outside,
}

/// A request whose header is read.
#[derive(Clone, Copy)]
pub struct Routed {
    pub route: Route,
    pub header: ResponseHeader,
    api: &'static Api,
    version: i16,
    correlation_id: i32,
    header_len: usize,
}

/// Finds out where the request in `frame` goes, or why the connection has to be closed.
pub fn route(listener: &Listener, frame: &[u8]) -> Result<Routed, String> {
    let (header, body) = RequestHeader::parse(frame).map_err(|error| error.to_string())?;
    let (api, version) = (header.api, header.api_version);
    // ApiVersions is answered in any version, so that the client learns which ones there are.
    if api.key != api::API_VERSIONS && !listener.serves(api.key, version) {
        return Err(format!("{} (API key {}), version {version}, is not served here", api.name, api.key));
    }
    let route = match api.key {
        api::PRODUCE => Route::Produce,
        key if !listener.answers_itself(key) => Route::Outside,
        api::API_VERSIONS | api::METADATA | api::DESCRIBE_TOPIC_PARTITIONS => Route::Own,
        _ => Route::OwnInOrder,
    };
    Ok(Routed {
        route,
        header: ResponseHeader::to(&header),
        api,
        version,
        correlation_id: header.correlation_id,
        header_len: frame.len() - body.len(),
    })
}

impl Routed {
    pub fn api_key(&self) -> i16 {
        self.api.key
    }

    pub fn version(&self) -> i16 {
        self.version
    }

    /// What follows the request's header.
    pub fn body<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        &frame[self.header_len..]
    }

    /// Answers the request in `frame`, which the engine does itself.
    pub fn handle(
        &self,
        core: &Core,
        listener: &Arc<Listener>,
        link: &Arc<Link>,
        waker: &Waker,
        frame: &mut [u8],
        answer: &mut Answer,
    ) -> Outcome {
        let (head, body) = frame.split_at_mut(self.header_len);
        let client_id = RequestHeader::parse(head).map_or(Cow::Borrowed(""), |(header, _)| header.client_id);
        answer.begin(self.header);
        let call = Call { core, listener, link, api: self.api, version: self.version, client_id: &client_id, answer };
        match self.api.key {
            api::PRODUCE => handlers::produce::handle(call, body),
            api::FETCH => handlers::fetch::handle(call, self.header, waker, body),
            api::LIST_OFFSETS => handlers::list_offsets::handle(call, body),
            api::METADATA => handlers::metadata::handle(call, body),
            api::API_VERSIONS => handlers::api_versions::handle(call, body),
            api::OFFSET_FOR_LEADER_EPOCH => handlers::offset_for_leader_epoch::handle(call, body),
            api::DESCRIBE_TOPIC_PARTITIONS => handlers::describe_topic_partitions::handle(call, body),
            key => unreachable!("API key {key} is not one of the listener's own"),
        }
    }

    /// The request in `frame` as something for elsewhere.
    pub fn to_request(
        self,
        handle: u64,
        listener: &Listener,
        link: &Link,
        frame: &[u8],
    ) -> Result<Box<Request>, NoMemoryError> {
        let (head, body) = frame.split_at(self.header_len);
        let client_id = RequestHeader::parse(head).map_or(Cow::Borrowed(""), |(header, _)| header.client_id);
        Ok(Box::new(Request {
            handle,
            connection_id: link.id,
            listener: listener.name.clone(),
            peer: link.peer,
            api_key: self.api.key,
            api_version: self.version,
            correlation_id: self.correlation_id,
            client_id: client_id.into_owned(),
            body: memory::copied(body)?,
            arrived: Instant::now(),
        }))
    }
}
