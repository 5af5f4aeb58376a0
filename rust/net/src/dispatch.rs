//! Routes a frame to the handler of its request.

use std::borrow::Cow;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use klamm_wire::api::{self, Api, Quota};
use klamm_wire::header::{RequestHeader, ResponseHeader};

use super::answer::Answer;
use super::core::Core;
use super::events::Request;
use super::handlers::verification::Verified;
use super::handlers::{self, Call, Outcome};
use super::link::Link;
use super::listener::Listener;
use super::memory::{self, NoMemoryError};
use super::pending::Timed;
use super::pipeline::{Principal, QuotaClient, RequestContext};

/// The destination of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The engine answers it, without waiting for earlier writes on this connection.
    Own,
    /// The engine answers it after the produces before it, so that it sees their effects.
    OwnInOrder,
    /// The engine answers it: a produce.
    Produce,
    /// It is answered outside of the engine.
    Outside,
    /// It is answered outside of the engine, where the commits of a connection take effect in the order of arrival.
    Commit,
}

/// A request whose header is parsed.
#[derive(Clone, Copy)]
pub struct Routed {
    pub route: Route,
    pub header: ResponseHeader,
    pub api: &'static Api,
    version: i16,
    correlation_id: i32,
    header_len: usize,
}

/// Determines the destination of the request in `frame`, or why the connection must be closed.
pub fn route(listener: &Listener, frame: &[u8]) -> Result<Routed, String> {
    let (header, body) = RequestHeader::parse(frame).map_err(|error| error.to_string())?;
    let (api, version) = (header.api, header.api_version);
    // ApiVersions is accepted in any version, so that the client learns the supported ones.
    if api.key != api::API_VERSIONS && !listener.serves(api.key, version) {
        return Err(format!("{} (API key {}), version {version}, is not served here", api.name, api.key));
    }
    let route = match api.key {
        api::PRODUCE => Route::Produce,
        api::OFFSET_COMMIT => Route::Commit,
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

    /// The client whose quota counts the time of the request in `frame`; `None` while there is no such quota.
    pub fn timed(&self, core: &Core, connection: &Link, frame: &[u8]) -> Option<Box<Timed>> {
        if !core.pipeline.quotas.is_time_limited() || self.api.quota == Quota::Exempt {
            return None;
        }
        let client_id = RequestHeader::parse(frame).map_or(Cow::Borrowed(""), |(header, _)| header.client_id);
        let client = QuotaClient::of(connection.principal().unwrap_or(&Principal::ANONYMOUS), &client_id);
        Some(Box::new(Timed { client, version: self.version }))
    }

    /// The bytes after the request's header.
    pub fn body<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        &frame[self.header_len..]
    }

    /// Context and body of the request in `frame`, whose last byte arrived at `arrived`.
    fn split<'a>(
        &self,
        listener: &'a Arc<Listener>,
        connection: &'a Arc<Link>,
        arrived: Instant,
        frame: &'a mut [u8],
    ) -> (RequestContext<'a>, &'a mut [u8]) {
        let request_bytes = frame.len();
        let (head, body) = frame.split_at_mut(self.header_len);
        let client_id = RequestHeader::parse(head).map_or(Cow::Borrowed(""), |(header, _)| header.client_id);
        let context = RequestContext {
            api: self.api,
            version: self.version,
            correlation_id: self.correlation_id,
            client_id,
            listener,
            request_bytes,
            connection,
            arrived,
        };
        (context, body)
    }

    /// Answers the request in `frame` with the engine's handler.
    #[allow(clippy::too_many_arguments)] // What a connection lends to one request.
    pub fn handle(
        &self,
        core: &Core,
        listener: &Arc<Listener>,
        connection: &Arc<Link>,
        arrived: Instant,
        waker: &Waker,
        verified: Option<Verified>,
        frame: &mut [u8],
        answer: &mut Answer,
    ) -> Outcome {
        let (context, body) = self.split(listener, connection, arrived, frame);
        answer.begin(self.header);
        let call = Call { core, context, answer };
        match self.api.key {
            api::PRODUCE => handlers::produce::handle(call, verified, body),
            api::FETCH => handlers::fetch::handle(call, self.header, waker, body),
            api::SHARE_FETCH => handlers::share::fetch(call, self.header, waker, body),
            api::SHARE_ACKNOWLEDGE => handlers::share::acknowledge(call, self.header, body),
            api::LIST_OFFSETS => handlers::list_offsets::handle(call, body),
            api::METADATA => handlers::metadata::handle(call, body),
            api::API_VERSIONS => handlers::api_versions::handle(call, body),
            api::OFFSET_FOR_LEADER_EPOCH => handlers::offset_for_leader_epoch::handle(call, body),
            api::DESCRIBE_TOPIC_PARTITIONS => handlers::describe_topic_partitions::handle(call, body),
            key => unreachable!("API key {key} is not one of the listener's own"),
        }
    }

    /// Converts the request in `frame` for an answer outside of the engine.
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
