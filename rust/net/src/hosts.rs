//! The addresses of hosts. IPv4 comes first, as in Java: a name like `localhost` has both.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

/// All addresses of a host, with the port. Waits for the resolver.
pub fn host_addresses(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let mut addresses: Vec<_> = (host, port).to_socket_addrs()?.collect();
    addresses.sort_by_key(SocketAddr::is_ipv6);
    Ok(addresses)
}

/// The address that stands for a host (`InetAddress.getByName`); `None` if it has none. Waits for the resolver.
pub fn host_address(host: &str) -> Option<IpAddr> {
    Some(host_addresses(host, 0).ok()?.first()?.ip())
}
