# The kernel as its callers see it, compiled or interpreted; the C types stand in short_kernels.py.
def short_request(frame: bytes, at: int, version: int) -> tuple[str | bytes, int, int, int, int, int, int] | None: ...
def short_answer(
    frame: bytes,
    topic_start: int,
    topic_end: int,
    version: int,
    correlation_id: int,
    partition: int,
    base_offset: int,
    log_start_offset: int,
) -> bytes: ...
