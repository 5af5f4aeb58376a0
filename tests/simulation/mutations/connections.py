"""Connections to the other replicas: to their current endpoints, and opened again when they are lost."""

from klamm.client.peer import Peer
from klamm.raft.driver.peers import PeerTransport


def a_moved_peer_is_asked_at_its_old_address(patch):
    """A request is sent to the endpoint that it names."""
    find = PeerTransport._peer

    def stubborn(self, node_id, endpoint):
        found = self._peers.get(node_id)
        return found if found is not None else find(self, node_id, endpoint)

    patch.setattr(PeerTransport, "_peer", stubborn)


def a_peer_that_refused_is_never_connected_again(patch):
    """After a failure, an address is not tried for a moment only."""
    connect = Peer.connect
    patch.setattr(Peer, "connect", lambda self, *, at_once=False: not self._failures and connect(self, at_once=at_once))


def a_lost_connection_is_used_on(patch):
    """After a connection is lost, requests are sent on another one."""
    forget = Peer._forget_channel

    def careless(self):
        channel, versions = self._channel, self._versions
        forget(self)
        if versions is not None:
            self._channel, self._versions = channel, versions

    patch.setattr(Peer, "_forget_channel", careless)
