"""Sockets: listener, framing, connections whose answers leave in order, dispatch to the handlers."""
