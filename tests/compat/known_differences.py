"""Where Penstock answers otherwise than Apache Kafka, and why. An entry that no answer needs any more is a failure."""

from tests.support.differential import Known

KNOWN = [
    Known(
        kafka="4.3",
        case=r"create: .*",
        path=r"topics\[d-new\]\.configs\[.*\]\.value",
        reason="4.3 tells a new topic's values as they were written; 3.9 and Penstock as they were read",
    ),
    Known(
        case=r"produce: keyless on compacted v.*",
        path=r".*\.log_start_offset",
        reason="a refused batch's answer has no log start offset",
    ),
    Known(
        case=r"fetch: unknown .*",
        path=r".*\.aborted_transactions",
        reason="an error has no list of aborted transactions",
    ),
    Known(
        case=r"change: operation 9 v.*",
        path=r".*\.error_code",
        reason="an unknown operation is INVALID_REQUEST and no failure of the server",
    ),
]
