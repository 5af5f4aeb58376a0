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
use super::pipeline::RequestContext;

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
    pub api: &'static Api,
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
    pub fn version(&self) -> i16 {
        self.version
    }

    /// What follows the request's header.
    pub fn body<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        &frame[self.header_len..]
    }

    /// Context and body of the request in `frame`, whose last byte arrived then.
    fn split<'a>(
        &self,
        listener: &'a Arc<Listener>,
        connection: &'a Arc<Link>,
        arrived: Instant,
        frame: &'a mut [u8],
    ) -> (RequestContext<'a>, &'a mut [u8]) {
        let (head, body) = frame.split_at_mut(self.header_len);
        let client_id = RequestHeader::parse(head).map_or(Cow::Borrowed(""), |(header, _)| header.client_id);
        let context = RequestContext {
            api: self.api,
            version: self.version,
            correlation_id: self.correlation_id,
            client_id,
            listener,
            connection,
            arrived,
        };
        (context, body)
    }

    /// Answers the request in `frame`, which the engine does itself.
    #[allow(clippy::too_many_arguments)] // What a connection lends to one request.
    pub fn handle(
        &self,
        core: &Core,
        listener: &Arc<Listener>,
        connection: &Arc<Link>,
        arrived: Instant,
        waker: &Waker,
        frame: &mut [u8],
        answer: &mut Answer,
    ) -> Outcome {
        let (context, body) = self.split(listener, connection, arrived, frame);
        answer.begin(self.header);
        let call = Call { core, context, answer };
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
        listener: &Arc<Listener>,
        connection: &Arc<Link>,
        arrived: Instant,
        frame: &mut [u8],
    ) -> Result<Box<Request>, NoMemoryError> {
        let (context, body) = self.split(listener, connection, arrived, frame);
        let body = memory::copied(body)?;
        Ok(Box::new(Request::of(handle, context, body)))
    }
}
