"""Defines healthy series, and for each alert a fault that fires it; one sample a minute."""

from typing import Final, NamedTuple

SAMPLES: Final = 240
"""The length of every series in minutes."""

HEALTHY: Final[dict[str, str]] = {
    'delay_router_build_info{instance="a",version="1"}': "1+0x240",
    'delay_router_build_info{instance="b",version="1"}': "1+0x240",
    'delay_router_partition_state{instance="a",topic="t",partition="0",state="active"}': "1+0x240",
    'delay_router_partition_state{instance="a",topic="t",partition="0",state="refused"}': "0+0x240",
    'delay_router_partition_state{instance="b",topic="t",partition="1",state="active"}': "1+0x240",
    'delay_router_delay_topic_partitions{instance="a",topic="t"}': "2+0x240",
    'delay_router_delay_topic_partitions{instance="b",topic="t"}': "2+0x240",
    # The next record is always due in half a minute; on the other router a long time from now.
    'delay_router_next_due_timestamp_seconds{instance="a",topic="t"}': "30+60x240",
    'delay_router_next_due_timestamp_seconds{instance="b",topic="t"}': "900000+60x240",
    # The router needs an hour of the log, which is kept for a week.
    'delay_router_needed_from_timestamp_seconds{instance="a",topic="t",partition="0"}': "-3600+60x240",
    'delay_router_delay_topic_retention_seconds{instance="a",topic="t"}': "604800+0x240",
    'delay_router_delay_topic_retention_seconds{instance="a",topic="for-ever"}': "Inf+0x240",
    'delay_router_needed_from_timestamp_seconds{instance="a",topic="for-ever",partition="0"}': "-9e8+60x240",
    # A burst beyond the rate of a target, which is gone after half an hour, and comes again.
    'delay_router_held_records{instance="a",topic="t"}': "0+0x30 3000-100x30 0+0x30 3000-100x30 0+0x116",
    # Half a minute, which ends by itself.
    'delay_router_hidden_by_open_transaction_seconds{instance="a",topic="t",partition="0"}': "0+0x60 30 0+0x178",
    # A large lag that shrinks, and a small one that grows.
    'delay_router_index_lag_records{instance="a",topic="t",partition="0"}': "1000000-1000x240",
    'delay_router_index_lag_records{instance="a",topic="small",partition="0"}': "0+10x240",
    'delay_router_release_lateness_seconds_bucket{instance="a",topic="t",le="0.01"}': "0+990x240",
    'delay_router_release_lateness_seconds_bucket{instance="a",topic="t",le="0.5"}': "0+999x240",
    'delay_router_release_lateness_seconds_bucket{instance="a",topic="t",le="+Inf"}': "0+1000x240",
    'delay_router_records_indexed_total{instance="a",topic="t"}': "0+1000x240",
    'delay_router_records_rejected_total{instance="a",topic="t",reason="INVALID_SCHEDULE"}': "0+10x240",
    # One record that cannot be handled is no fault of the consumer.
    'delay_router_attempts_total{instance="a",topic="t",attempt="1"}': "0+10x240",
    'delay_router_attempts_exhausted_total{instance="a",topic="t"}': "0+0x60 1+0x179",
    'delay_router_transactions_total{instance="a",topic="t",outcome="committed"}': "0+600x240",
    'delay_router_transactions_total{instance="a",topic="t",outcome="aborted"}': "0+6x240",
    # A connection is lost sometimes, and all of them when the brokers are restarted one by one.
    'delay_router_renewals_total{instance="a",topic="t"}': "0+0x20 1+0x40 2+1x5 7+0x174",
    'delay_router_renewals_total{instance="b",topic="t"}': "0+0x60 1+1x5 6+0x174",
    # One failure in an hour is tried again and forgotten.
    'delay_router_seal_failures_total{instance="a",topic="t"}': "0+0x60 1+0x60 2+0x120",
    'delay_router_load_failures_total{instance="a",topic="t"}': "0+0x240",
}


class Fault(NamedTuple):
    """Series that replace healthy ones from the beginning (empty: gone), and the minute in which the alert fires."""

    alert: str
    series: dict[str, str]
    fires_at: int
    silent_at: int


_BUILD: Final = 'delay_router_build_info{{instance="{}",version="{}"}}'

FAULTS: Final = (
    Fault(
        "DelayRouterAbsent",
        {_BUILD.format("a", 1): "1+0x60 stale", _BUILD.format("b", 1): "1+0x60 stale"},
        fires_at=70,
        silent_at=63,
    ),
    Fault(
        # The counter appears with the event.
        "DelayRouterRecordsLost",
        {'delay_router_records_lost_total{instance="a",topic="new"}': "_x60 3+0x180"},
        fires_at=62,
        silent_at=59,
    ),
    Fault(
        # The counter existed before, long unchanged after an old loss, and rises now.
        "DelayRouterRecordsLost",
        {'delay_router_records_lost_total{instance="a",topic="t"}': "7+0x60 9+0x180"},
        fires_at=65,
        silent_at=59,
    ),
    Fault(
        "DelayRouterRetentionTooShort",
        {'delay_router_needed_from_timestamp_seconds{instance="b",topic="t",partition="1"}': "-544000+0x240"},
        fires_at=30,
        silent_at=3,
    ),
    Fault(
        "DelayRouterOverdue",
        {'delay_router_next_due_timestamp_seconds{instance="a",topic="t"}': "3600+0x240"},
        fires_at=64,
        silent_at=60,
    ),
    Fault(
        "DelayRouterPartitionRefused",
        {
            'delay_router_partition_state{instance="a",topic="t",partition="0",state="active"}': "1+0x60 0+0x180",
            'delay_router_partition_state{instance="a",topic="t",partition="0",state="refused"}': "0+0x60 1+0x180",
        },
        fires_at=63,
        silent_at=60,
    ),
    Fault(
        "DelayRouterPausedForHours",
        {
            'delay_router_partition_state{instance="a",topic="t",partition="0",state="active"}': "1+0x10 0+0x230",
            'delay_router_partition_state{instance="a",topic="t",partition="0",state="paused"}': "0+0x10 1+0x230",
            'delay_router_next_due_timestamp_seconds{instance="a",topic="t"}': "3600+0x240",
        },
        fires_at=195,
        silent_at=188,
    ),
    Fault(
        "DelayRouterPausedForHours",
        {
            'delay_router_partition_state{instance="a",topic="t",partition="0",state="active"}': "1+0x10 0+0x230",
            'delay_router_partition_state{instance="a",topic="t",partition="0",state="drained"}': "0+0x10 1+0x230",
            'delay_router_next_due_timestamp_seconds{instance="a",topic="t"}': "3600+0x240",
        },
        fires_at=195,
        silent_at=188,
    ),
    Fault(
        "DelayRouterHeldForHours",
        {'delay_router_held_records{instance="a",topic="t"}': "0+0x10 1+1x230"},
        fires_at=135,
        silent_at=125,
    ),
    Fault(
        "DelayRouterPartitionNotActive",
        {'delay_router_partition_state{instance="a",topic="t",partition="0",state="active"}': "1+0x60 0+0x180"},
        fires_at=67,
        silent_at=64,
    ),
    Fault(
        "DelayRouterPartitionUnserved",
        {'delay_router_partition_state{instance="b",topic="t",partition="1",state="active"}': "1+0x60 stale"},
        fires_at=67,
        silent_at=64,
    ),
    Fault(
        # A topic of which no router has a partition.
        "DelayRouterPartitionUnserved",
        {'delay_router_delay_topic_partitions{instance="a",topic="new"}': "_x60 4+0x180"},
        fires_at=67,
        silent_at=64,
    ),
    Fault(
        "DelayRouterTopicHidden",
        {'delay_router_hidden_by_open_transaction_seconds{instance="a",topic="t",partition="0"}': "0+0x60 15+60x178"},
        fires_at=64,
        silent_at=61,
    ),
    Fault(
        "DelayRouterPolicyUnreadable",
        {'delay_router_policies_unreadable{instance="a"}': "0+0x60 1+0x180"},
        fires_at=67,
        silent_at=64,
    ),
    Fault(
        "DelayRouterLate",
        {
            'delay_router_release_lateness_seconds_bucket{instance="a",topic="t",le="0.5"}': "0+980x240",
            'delay_router_release_lateness_seconds_bucket{instance="a",topic="t",le="5.0"}': "0+1000x240",
            'delay_router_release_lateness_seconds_bucket{instance="a",topic="t",le="0.01"}': "0+900x240",
        },
        fires_at=20,
        silent_at=8,
    ),
    Fault(
        "DelayRouterIndexLagging",
        {'delay_router_index_lag_records{instance="a",topic="t",partition="0"}': "20000+100x240"},
        fires_at=30,
        silent_at=12,
    ),
    Fault(
        "DelayRouterRejecting",
        {'delay_router_records_rejected_total{instance="a",topic="t",reason="INVALID_SCHEDULE"}': "0+100x240"},
        fires_at=20,
        silent_at=8,
    ),
    Fault(
        # No record was ever accepted, so the counter of accepted records does not exist.
        "DelayRouterRejecting",
        {'delay_router_records_rejected_total{instance="a",topic="other",reason="TARGET_MISSING"}': "0+1x240"},
        fires_at=20,
        silent_at=8,
    ),
    Fault(
        "DelayRouterAttemptsExhausted",
        {'delay_router_attempts_exhausted_total{instance="a",topic="t"}': "0+1x240"},
        fires_at=20,
        silent_at=8,
    ),
    Fault(
        "DelayRouterTransactionsFailing",
        {'delay_router_transactions_total{instance="a",topic="t",outcome="abandoned"}': "0+100x240"},
        fires_at=20,
        silent_at=8,
    ),
    Fault(
        "DelayRouterPartitionsInDoubt",
        {'delay_router_partitions_in_doubt{instance="a",topic="t"}': "0x9 2x230"},
        fires_at=28,
        silent_at=24,
    ),
    Fault(
        # One every two minutes, in one of two partitions.
        "DelayRouterConnectionsCut",
        {'delay_router_renewals_total{instance="a",topic="t"}': "0+0.5x240"},
        fires_at=70,
        silent_at=30,
    ),
    Fault(
        # Loads fail, while seals of the same topic succeed.
        "DelayRouterUpkeepFailing",
        {'delay_router_load_failures_total{instance="a",topic="t"}': "0+1x240"},
        fires_at=40,
        silent_at=10,
    ),
    Fault(
        "DelayRouterMemoryShort",
        {
            'process_resident_memory_bytes{instance="a"}': "800x19 950x220",
            'delay_router_memory_limit_bytes{instance="a"}': "1000x240",
            'process_resident_memory_bytes{instance="b"}': "5000x240",
            'delay_router_memory_limit_bytes{instance="b"}': "0x240",
        },
        fires_at=32,
        silent_at=25,
    ),
    Fault(
        "DelayRouterMixedVersions",
        {_BUILD.format("b", 1): "1+0x10 stale", _BUILD.format("b", 2): "_x10 1+0x230"},
        fires_at=140,
        silent_at=100,
    ),
    Fault(
        "DelayRouterTopicNotServed",
        {
            'delay_router_partition_state{instance="a",topic="orders.delay",partition="0",state="active"}': (
                "1+0x60 stale"
            )
        },
        fires_at=70,
        silent_at=63,
    ),
)
