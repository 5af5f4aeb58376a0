//! The server: listeners, their connections, and the entry point for responses from outside of the engine.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use klamm_base::ErrorCode;
use klamm_base::counters::Named;
use klamm_metadata::MetadataImage;
use klamm_quorum::Answering;
use klamm_wire::api::ListenerKind;
use klamm_wire::api_versions::ApiRange;
use parking_lot::Mutex;
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::backend::Backend;
use super::config::{ConnectionLimitsConfig, ListenerLimits, NetConfig};
use super::connection::Connection;
use super::core::{Core, SupportedFeatures};
use super::counters::Counters;
use super::events::{Event, EventQueue, LogLevel};
use super::hosts::{host_address, host_addresses};
use super::link::{Link, Note, Reply};
use super::listener::Listener;
use super::os;
use super::pipeline::{Pipeline, RequestMetrics};
use super::share;
use super::transport::TcpTransport;

/// The name, kind and address of a listener.
#[derive(Clone, Debug)]
pub struct ListenerOptions {
    pub name: String,
    pub kind: ListenerKind,
    /// Empty: all addresses of the host.
    pub host: String,
    /// 0: a free port.
    pub port: u16,
}

/// The network of one node. Dropping it closes everything.
pub struct Server {
    core: Arc<Core>,
    /// Present until the server is closed, because a handle keeps the runtime's descriptors open.
    runtime: Mutex<Option<Handle>>,
    listeners: Mutex<Vec<Accepting>>,
    /// Ends acquisition locks. Present until the server is closed, as the runtime.
    share_timers: Mutex<Option<JoinHandle<()>>>,
}

struct Accepting {
    listener: Arc<Listener>,
    task: JoinHandle<()>,
}

/// Pause after a failed accept, which mostly fails because of too many open files: others get time to close.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

impl Server {
    /// A server without listeners, whose tasks run on `runtime`.
    pub fn new(
        runtime: Handle,
        config: NetConfig,
        cluster_id: String,
        backend: Arc<dyn Backend>,
        pipeline: Pipeline,
    ) -> io::Result<Self> {
        let core = Arc::new(Core::new(config, cluster_id, backend, pipeline)?);
        let timers = share::run_timers(Arc::downgrade(&core), core.shares.has_timers.clone());
        let share_timers = match core.config.conditions.clone() {
            None => runtime.spawn(timers),
            Some(conditions) => runtime.spawn(async move { conditions.hold(timers).await }),
        };
        let (runtime, share_timers) = (Mutex::new(Some(runtime)), Mutex::new(Some(share_timers)));
        Ok(Self { core, runtime, listeners: Mutex::default(), share_timers })
    }

    /// Binds and accepts; requests wait until [`Server::open`] or [`Server::open_for_versions`]. Returns the local
    /// address.
    pub fn listen(&self, options: &ListenerOptions) -> io::Result<SocketAddr> {
        self.accept_on(bind(&self.core.config, options)?, options)
    }

    /// The same on a bound socket.
    pub fn accept_on(&self, socket: Socket, options: &ListenerOptions) -> io::Result<SocketAddr> {
        let runtime = self.runtime.lock().clone().ok_or_else(|| io::Error::other("the server is closed"))?;
        let _in_runtime = runtime.enter();
        let socket = TcpListener::from_std(socket.into())?;
        let address = socket.local_addr()?;
        let listener = Arc::new(Listener::new(&options.name, options.kind));
        self.core.limits(options.kind).add_listener(&listener.name);
        let accepting = accept(self.core.clone(), listener.clone(), socket);
        let task = match self.core.config.conditions.clone() {
            None => runtime.spawn(accepting),
            Some(conditions) => runtime.spawn(async move { conditions.hold(accepting).await }),
        };
        self.listeners.lock().push(Accepting { listener, task });
        Ok(address)
    }

    /// Stops accepting on the listener with this name and closes its connections; `false` if there is none.
    pub fn close_listener(&self, name: &str) -> bool {
        let mut listeners = self.listeners.lock();
        let Some(at) = listeners.iter().position(|accepting| &*accepting.listener.name == name) else { return false };
        let Accepting { listener, task } = listeners.swap_remove(at);
        task.abort();
        self.core.limits(listener.kind).remove_listener(name);
        self.core.links().iter().filter(|link| &*link.listener == name).for_each(|link| link.ask_to_close());
        true
    }

    /// Answers requests on the listener with this name from now on; `false` if there is none.
    pub fn open(&self, name: &str) -> bool {
        self.core.early_image.store(None);
        let listeners = self.listeners.lock();
        let named = listeners.iter().filter(|accepting| &*accepting.listener.name == name);
        named.map(|accepting| accepting.listener.open()).count() > 0
    }

    /// Answers ApiVersions on every listener from now on, and nothing else on those that are not open. Its features
    /// are those of `image`, which is used for nothing else, until the first listener opens.
    pub fn open_for_versions(&self, image: Arc<MetadataImage>) {
        self.core.early_image.store(Some(image));
        self.listeners.lock().iter().for_each(|accepting| accepting.listener.open_for_versions());
    }

    /// Sets the feature information for ApiVersions that the image does not contain.
    pub fn set_supported_features(&self, features: SupportedFeatures) {
        self.core.supported_features.store(Arc::new(features));
    }

    /// Sets the API versions of the active controller if it is another node: ApiVersions on client listeners then
    /// includes only these versions of forwarded APIs. `None` if they are not known, or this node is the controller.
    pub fn set_controller_apis(&self, apis: Option<Vec<ApiRange>>) {
        self.core.controller_apis.store(Arc::new(apis));
    }

    /// Sets the part that answers fetches of the quorum's log while it has a lease. Once.
    pub fn set_answering(&self, answering: Arc<Answering>) {
        // A second one would belong to the same log.
        let _ = self.core.answering.set(answering);
    }

    /// Applies new limits: closes connections beyond the total limit.
    pub fn set_limits(&self, limits: ConnectionLimitsConfig) {
        for kind in [ListenerKind::Broker, ListenerKind::Controller] {
            self.core.limits(kind).set(limits.clone());
            self.core.close_excess(kind);
        }
    }

    /// Applies new limits of single listeners.
    pub fn set_listener_limits(&self, own: ListenerLimits) {
        let own = Arc::new(own);
        self.core.all_limits().into_iter().for_each(|limits| limits.set_own(own.clone()));
    }

    /// Applies the client quotas of a new image. Hosts are resolved on a thread of its own, because that may take seconds.
    pub fn set_quotas(&self, image: &MetadataImage) {
        let hosts = self.core.pipeline.quotas.apply(image);
        if hosts.is_empty() {
            return;
        }
        let core = Arc::downgrade(&self.core);
        let resolve = move || {
            let resolved = |host: String| {
                let address = host_address(&host);
                (host, address)
            };
            let found = hosts.into_iter().map(resolved).collect();
            if let Some(core) = core.upgrade() {
                core.pipeline.quotas.resolved(found);
            }
        };
        if let Err(error) = thread::Builder::new().name("klamm-resolve".to_owned()).spawn(resolve) {
            self.core.events.log(LogLevel::Error, format!("the hosts of client quotas are not resolved: {error}"));
        }
    }

    /// Drops the share partitions that this node no longer leads in their epoch. Call it when the image is published.
    pub fn drop_stale_shares(&self, image: &MetadataImage) {
        self.core.shares.on_image(image);
    }

    /// The result of [`Event::ShareState`]: the response's body, or the final error of the persister.
    pub fn share_state_answered(&self, request_id: u64, code: ErrorCode, body: &[u8]) {
        self.core.shares.on_answered(&self.core, request_id, code, body);
    }

    /// Share sessions, and records in flight of share partitions.
    pub fn share_gauges(&self) -> Vec<Named> {
        self.core.shares.gauges(&self.core.backend.image())
    }

    /// The counters of share groups.
    pub fn share_counters(&self) -> impl Iterator<Item = Named> + '_ {
        self.core.shares.metrics.named()
    }

    /// Readable while [`Server::drain`] has events.
    pub fn event_fd(&self) -> Option<RawFd> {
        self.core.events.fd()
    }

    /// Takes at most `max` events.
    pub fn drain(&self, max: usize) -> Vec<Event> {
        let mut events = self.core.events.drain(max);
        // The connection of the request may be closed.
        events.retain(|event| !matches!(event, Event::Verify(verify) if !self.core.expects_reply(verify.handle)));
        if self.core.pipeline.metrics.is_on() {
            let requests = events.iter().filter_map(|event| match event {
                Event::Request(request) => Some((self.core.link(request.connection_id)?, request.handle)),
                _ => None,
            });
            requests.for_each(|(link, handle)| link.note_begun(handle));
        }
        events
    }

    /// Counters and metrics of requests.
    pub fn request_metrics(&self) -> &RequestMetrics {
        &self.core.pipeline.metrics
    }

    /// Whether the time that Python works on requests counts for a quota (KIP-124).
    pub fn is_time_limited(&self) -> bool {
        self.core.pipeline.quotas.is_time_limited()
    }

    /// Stores what Python reports about the request with this handle, which it answers next.
    pub fn note(&self, handle: u64, note: Note) {
        self.core.note(handle, note);
    }

    /// Answers the request with this handle, without blocking; `false` if its connection is closed or it was answered
    /// already.
    pub fn answer(&self, handle: u64, reply: Reply) -> bool {
        self.core.reply(handle, reply).map(|link| link.wake()).is_some()
    }

    /// By handle, the transaction coordinator's error codes for the partitions of [`Event::Verify`], in order, or one for
    /// all.
    pub fn on_verified(&self, verified: impl IntoIterator<Item = (u64, Box<[ErrorCode]>)>) {
        self.answer_all(verified.into_iter().map(|(handle, codes)| (handle, Reply::Verified(codes))));
    }

    /// Answers many requests. All responses are stored before the first connection is woken: a woken task needs a
    /// processor, and may take the one on which the remaining responses would be stored.
    pub fn answer_all(&self, answers: impl Iterator<Item = (u64, Reply)>) {
        let links: Vec<_> = answers.filter_map(|(handle, reply)| self.core.reply(handle, reply)).collect();
        links.iter().for_each(|link| link.wake());
    }

    /// Closes the connections whose requests are still queued: Python has stopped, and no longer takes them.
    pub fn refuse_queued(&self) {
        let queued = self.core.events.take_requests();
        self.answer_all(queued.into_iter().map(|request| (request.handle, Reply::Close)));
    }

    /// Closes a connection, whatever it is doing; `false` if it is closed already.
    pub fn close_connection(&self, id: u64) -> bool {
        self.core.link(id).map(|link| link.ask_to_close()).is_some()
    }

    pub fn connection_count(&self) -> usize {
        self.core.all_limits().into_iter().map(|limits| limits.count()).sum()
    }

    pub fn counters(&self) -> &Counters {
        &self.core.counters
    }

    /// Whether a connection could start to receive a large frame now.
    pub fn has_room_for_large_frames(&self) -> bool {
        self.core.buffers.has_room()
    }

    pub fn events(&self) -> &EventQueue {
        &self.core.events
    }

    /// Stops accepting; connections continue.
    pub fn stop_accepting(&self) {
        self.listeners.lock().iter().for_each(|accepting| accepting.task.abort());
    }

    /// Stops accepting and taking requests, and closes each connection after the responses to the requests it has
    /// taken; waiting fetches are answered immediately. [`Server::connection_count`] shows when all are closed.
    pub fn finish(&self) {
        self.stop_accepting();
        self.core.links().iter().for_each(|link| link.ask_to_finish());
    }

    /// Stops accepting and closes every connection. The server cannot listen again.
    pub fn close(&self) {
        self.stop_accepting();
        self.core.links().iter().for_each(|link| link.ask_to_close());
        if let Some(timers) = self.share_timers.lock().take() {
            timers.abort();
        }
        self.listeners.lock().clear();
        self.runtime.lock().take();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.close();
    }
}

/// Creates the listening socket of a listener. Connecting clients wait until they are accepted.
pub fn bind(config: &NetConfig, options: &ListenerOptions) -> io::Result<Socket> {
    let port = options.port;
    let addresses: Vec<SocketAddr> = match options.host.as_str() {
        "" => vec![([0u16; 8], port).into(), ([0u8; 4], port).into()],
        host => host_addresses(host, port)?,
    };
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in addresses {
        match bind_to(config, address) {
            Ok(listener) => return Ok(listener),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn bind_to(config: &NetConfig, address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // The wildcard address includes IPv4 addresses.
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    socket.set_reuse_address(true)?;
    // The window is negotiated when a connection is made, so its size must be set before.
    if let Some(size) = config.receive_buffer() {
        socket.set_recv_buffer_size(size)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(config.listen_backlog)?;
    Ok(socket)
}

async fn accept(core: Arc<Core>, listener: Arc<Listener>, socket: TcpListener) {
    let mut has_failed = false;
    let limits = core.limits(listener.kind);
    loop {
        limits.wait_for_room(&listener.name).await;
        match socket.accept().await {
            Ok((stream, peer)) => {
                has_failed = false;
                let throttle = core.pipeline.quotas.connected(listener.kind, peer.ip());
                if !throttle.is_zero() {
                    tokio::spawn(close_after(stream, throttle));
                    continue;
                }
                let wait = limits.wait_for_turn(&listener.name);
                if !wait.is_zero() {
                    tokio::time::sleep(wait).await;
                }
                start(&core, &listener, stream, peer);
            }
            Err(error) => {
                if !std::mem::replace(&mut has_failed, true) {
                    let message = format!("listener {} cannot accept a connection: {error}", listener.name);
                    core.events.log(LogLevel::Error, message);
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Closes a connection of an address that connects too often, later, so that its client does not try again at once.
async fn close_after(stream: TcpStream, throttle: Duration) {
    tokio::time::sleep(throttle).await;
    drop(stream);
}

fn start(core: &Arc<Core>, listener: &Arc<Listener>, stream: TcpStream, peer: SocketAddr) {
    let limits = core.limits(listener.kind);
    let Some(place) = limits.take(&listener.name, peer.ip()) else {
        core.counters.refused.add(1);
        let most = limits.max_of(peer.ip());
        core.events.log(LogLevel::Info, format!("connection from {peer} closed: its address has {most} already"));
        return;
    };
    if configure(core, &stream).is_err() {
        // The peer has already closed the connection.
        return;
    }
    core.counters.accepted.add(1);
    let link = Arc::new(Link::new(core.new_id(), peer, listener));
    core.touch(&link, Instant::now());
    core.add_link(&link);
    // A protected connection may be one too many.
    core.close_excess(listener.kind);
    let transport = TcpTransport::new(stream);
    let serving = Connection::new(core.clone(), listener.clone(), link, transport, place).serve();
    match core.config.conditions.clone() {
        None => tokio::spawn(serving),
        Some(conditions) => tokio::spawn(async move { conditions.hold(serving).await }),
    };
}

fn configure(core: &Core, stream: &TcpStream) -> io::Result<()> {
    let socket = socket2::SockRef::from(stream);
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&TcpKeepalive::new())?;
    if let Some(size) = core.config.send_buffer() {
        socket.set_send_buffer_size(size)?;
    }
    if stream.local_addr()?.ip() == stream.peer_addr()?.ip() {
        os::send_unpaced(stream.as_raw_fd());
    }
    Ok(())
}
