"""Where Penstock answers otherwise than Apache Kafka, and why. An entry that no answer needs any more is a failure."""

from tests.support.differential import Known

KNOWN = [
    # 4.3.
    Known(
        kafka="4.3",
        case=r"(create|random: create).*",
        path=r"topics\[.*\]\.configs\[.*\]\.value",
        reason="4.3 tells a new topic's values as they were written; 3.9 and Penstock as they were read",
    ),
    Known(
        kafka="4.3",
        case=r"elect all v.*",
        path=r"replica_election_results\[.*\]",
        reason="a topic of which no partition needed an election is not listed; 3.9 does not list it either",
    ),
    Known(
        kafka="4.3",
        case=r"create: segment.bytes=14 v.*",
        path=r"topics\[d-new\]\..*",
        reason="4.0 wants segments of a megabyte at least; here they may be as small as in 3.9",
    ),
    # Both.
    Known(
        case=r"change: operation 9 v.*",
        path=r".*\.error_code",
        reason="an unknown operation is INVALID_REQUEST and no failure of the server",
    ),
    # 3.9, where Penstock goes with 4.3.
    Known(
        kafka="3.9",
        case=r"(setup|create:|configs:) .*",
        path=r".*\.configs\[message\.(downconversion\.enable|format\.version|timestamp\.difference\.max\.ms)\]",
        reason="4.0 has retired these keys",
    ),
    Known(
        kafka="3.9",
        case=r"(setup|create:|configs:) .*",
        path=r".*\.configs\[message\.timestamp\.after\.max\.ms\]\..*value",
        reason="4.0 has lowered this default to an hour",
    ),
    Known(
        kafka="3.9",
        case=r"configs: broker v.*",
        path=r".*\.synonyms\[num\.recovery\.threads\.per\.data\.dir\]\.value",
        reason="4.0 has raised this default to 2",
    ),
    Known(
        kafka="3.9",
        case=r"create: .* v7",
        path=r"topics\[.*\]\.topic_id",
        reason="3.9 gives a topic that is only validated no id",
    ),
    Known(
        kafka="3.9",
        case=r"create: by hand, (unknown|no) broker v.*",
        path=r"topics\[d-new\]\..*",
        reason="3.9 finds out only when it creates the topic",
    ),
    Known(
        kafka="3.9",
        case=r"elect 9 v.*",
        path=r".*error_code",
        reason="an unknown kind of election is INVALID_REQUEST and no failure of the server",
    ),
    Known(
        kafka="3.9",
        case=r"features: .*",
        path=r"error_code|results\[nonsense\]",
        reason="3.9 answers each feature on its own, 4.x the request as a whole",
    ),
    Known(
        kafka="3.9",
        case=r"describe: unknown v.*",
        path=r".*\.authorized_operations",
        reason="groups have configurations since 4.0",
    ),
    Known(
        kafka="3.9",
        case=r"delete: neither v6",
        path=r".*\.error_code",
        reason="a topic without name and id is INVALID_REQUEST; nobody was refused anything",
    ),
]
