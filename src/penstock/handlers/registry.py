"""Every API that is served. What is not here is not in ApiVersions."""

from __future__ import annotations

from penstock.handlers.add_offsets_to_txn import handle_add_offsets_to_txn
from penstock.handlers.add_partitions_to_txn import handle_add_partitions_to_txn
from penstock.handlers.alter_configs import handle_alter_configs, handle_incremental_alter_configs
from penstock.handlers.api import Api, kio_api
from penstock.handlers.api_versions import api_versions_handler
from penstock.handlers.create_partitions import handle_create_partitions
from penstock.handlers.create_topics import handle_create_topics
from penstock.handlers.delete_groups import handle_delete_groups
from penstock.handlers.delete_records import handle_delete_records
from penstock.handlers.delete_topics import handle_delete_topics
from penstock.handlers.describe_cluster import handle_describe_cluster
from penstock.handlers.describe_configs import handle_describe_configs
from penstock.handlers.describe_groups import handle_describe_groups
from penstock.handlers.describe_producers import handle_describe_producers
from penstock.handlers.describe_topic_partitions import handle_describe_topic_partitions
from penstock.handlers.describe_transactions import handle_describe_transactions
from penstock.handlers.elect_leaders import handle_elect_leaders
from penstock.handlers.end_txn import handle_end_txn
from penstock.handlers.features import handle_update_features
from penstock.handlers.fetch import handle_fetch
from penstock.handlers.find_coordinator import handle_find_coordinator
from penstock.handlers.heartbeat import handle_heartbeat
from penstock.handlers.init_producer_id import handle_init_producer_id
from penstock.handlers.join_group import handle_join_group
from penstock.handlers.leave_group import handle_leave_group
from penstock.handlers.list_config_resources import handle_list_config_resources
from penstock.handlers.list_groups import handle_list_groups
from penstock.handlers.list_offsets import handle_list_offsets
from penstock.handlers.list_transactions import handle_list_transactions
from penstock.handlers.log_dirs import handle_alter_replica_log_dirs, handle_describe_log_dirs
from penstock.handlers.metadata import handle_metadata
from penstock.handlers.offset_commit import handle_offset_commit
from penstock.handlers.offset_delete import handle_offset_delete
from penstock.handlers.offset_fetch import handle_offset_fetch
from penstock.handlers.offset_for_leader_epoch import handle_offset_for_leader_epoch
from penstock.handlers.produce import handle_produce
from penstock.handlers.produce_short import produce_short
from penstock.handlers.reassignments import handle_alter_partition_reassignments, handle_list_partition_reassignments
from penstock.handlers.sasl import handle_sasl_authenticate, handle_sasl_handshake
from penstock.handlers.sync_group import handle_sync_group
from penstock.handlers.txn_offset_commit import handle_txn_offset_commit
from penstock.handlers.write_txn_markers import handle_write_txn_markers
from penstock.protocol.fetch import decode_fetch_request, encode_fetch_answer
from penstock.protocol.produce import decode_produce_request, encode_produce_answer


def make_registry(*, cluster: bool = False) -> dict[int, Api]:
    """What a broker serves; calls between brokers only where there are others."""
    apis: dict[int, Api] = {}
    listed: tuple[Api, ...] = (
        Api(
            0,
            "Produce",
            3,
            13,
            9,
            handle_produce,
            decode_produce_request,
            encode_produce_answer,
            advertised_low=0,
            short=produce_short,
        ),
        Api(1, "Fetch", 4, 18, 12, handle_fetch, decode_fetch_request, encode_fetch_answer),
        kio_api(2, "ListOffsets", 1, 11, 6, handle_list_offsets),
        kio_api(3, "Metadata", 0, 13, 9, handle_metadata),
        kio_api(8, "OffsetCommit", 2, 10, 8, handle_offset_commit),
        kio_api(9, "OffsetFetch", 1, 10, 6, handle_offset_fetch),
        kio_api(10, "FindCoordinator", 0, 6, 3, handle_find_coordinator),
        kio_api(11, "JoinGroup", 0, 9, 6, handle_join_group),
        kio_api(12, "Heartbeat", 0, 4, 4, handle_heartbeat),
        kio_api(13, "LeaveGroup", 0, 5, 4, handle_leave_group),
        kio_api(14, "SyncGroup", 0, 5, 4, handle_sync_group),
        kio_api(15, "DescribeGroups", 0, 6, 5, handle_describe_groups),
        kio_api(16, "ListGroups", 0, 5, 3, handle_list_groups),
        kio_api(17, "SaslHandshake", 0, 1, 2, handle_sasl_handshake),
        kio_api(18, "ApiVersions", 0, 4, 3, api_versions_handler(apis)),
        kio_api(19, "CreateTopics", 2, 7, 5, handle_create_topics),
        kio_api(20, "DeleteTopics", 1, 6, 4, handle_delete_topics),
        kio_api(21, "DeleteRecords", 0, 2, 2, handle_delete_records),
        kio_api(22, "InitProducerId", 0, 5, 2, handle_init_producer_id),
        kio_api(23, "OffsetForLeaderEpoch", 2, 4, 4, handle_offset_for_leader_epoch),
        kio_api(24, "AddPartitionsToTxn", 0, 5, 3, handle_add_partitions_to_txn),
        kio_api(25, "AddOffsetsToTxn", 0, 4, 3, handle_add_offsets_to_txn),
        kio_api(26, "EndTxn", 0, 5, 3, handle_end_txn),
        kio_api(27, "WriteTxnMarkers", 1, 2, 1, handle_write_txn_markers),
        kio_api(28, "TxnOffsetCommit", 0, 5, 3, handle_txn_offset_commit),
        kio_api(32, "DescribeConfigs", 1, 4, 4, handle_describe_configs),
        kio_api(33, "AlterConfigs", 0, 2, 2, handle_alter_configs),
        kio_api(34, "AlterReplicaLogDirs", 1, 2, 2, handle_alter_replica_log_dirs),
        kio_api(35, "DescribeLogDirs", 1, 5, 2, handle_describe_log_dirs),
        kio_api(36, "SaslAuthenticate", 0, 2, 2, handle_sasl_authenticate),
        kio_api(37, "CreatePartitions", 0, 3, 2, handle_create_partitions),
        kio_api(42, "DeleteGroups", 0, 2, 2, handle_delete_groups),
        kio_api(43, "ElectLeaders", 0, 2, 2, handle_elect_leaders),
        kio_api(44, "IncrementalAlterConfigs", 0, 1, 1, handle_incremental_alter_configs),
        kio_api(45, "AlterPartitionReassignments", 0, 1, 0, handle_alter_partition_reassignments),
        kio_api(46, "ListPartitionReassignments", 0, 0, 0, handle_list_partition_reassignments),
        kio_api(47, "OffsetDelete", 0, 0, 1, handle_offset_delete),
        kio_api(57, "UpdateFeatures", 0, 2, 0, handle_update_features),
        kio_api(60, "DescribeCluster", 0, 2, 0, handle_describe_cluster),
        kio_api(74, "ListConfigResources", 0, 1, 0, handle_list_config_resources),
        kio_api(75, "DescribeTopicPartitions", 0, 0, 0, handle_describe_topic_partitions),
        kio_api(61, "DescribeProducers", 0, 0, 0, handle_describe_producers),
        kio_api(65, "DescribeTransactions", 0, 0, 0, handle_describe_transactions),
        kio_api(66, "ListTransactions", 0, 2, 0, handle_list_transactions),
    )
    if cluster:
        from penstock.handlers.between_brokers import (
            BETWEEN_BROKERS,  # a broker alone starts without the cluster's code
        )

        listed = (*listed, *BETWEEN_BROKERS)
    for api in listed:
        assert api.key not in apis, f"{api.name} is listed twice"
        apis[api.key] = api
    return apis
