# The kernel as its callers see it, compiled or interpreted.
MAPPED_FROM_BYTES: int
KEPT_BYTES: int

def keep_freed_memory() -> bool: ...
