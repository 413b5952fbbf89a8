"""Groups of the classic protocol, with their offsets: pure, on an injected clock."""
