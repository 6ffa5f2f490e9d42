"""Tests the chart: linted, rendered, validated against Kubernetes' schemas; its alerts and its dashboard."""
