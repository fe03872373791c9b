"""Autoscaling annotations: defaults, bounds, and keys that nobody knows."""

from dataclasses import replace

import pytest

from controller.platforms.local.cluster_defaults import KNATIVE, LOCAL, ClusterDefaults
from controller.platforms.local.scaling_annotations import AnnotationRefused, edit_scaling, parse_scaling
from controller.platforms.local.scaling_spec import ScalingSpec


def test_defaults_are_knatives_but_for_the_initial_scale() -> None:
    spec = parse_scaling({}, container_concurrency=0)
    assert spec == ScalingSpec()
    assert (spec.window_s, spec.utilization, spec.initial_scale, spec.target_concurrency) == (60, 0.7, 0, 70)
    assert spec.target_burst_capacity == 211
    assert replace(LOCAL, initial_scale=1, allow_zero_initial_scale=False) == KNATIVE


def test_all_keys() -> None:
    spec = parse_scaling(
        {
            "class": "kpa.autoscaling.knative.dev",
            "metric": "concurrency",
            "min-scale": "1",
            "max-scale": "8",
            "initial-scale": "2",
            "activation-scale": "4",
            "target": "3",
            "target-utilization-percentage": "100",
            "target-burst-capacity": "-1",
            "window": "15s",
            "panic-window-percentage": "20",
            "panic-threshold-percentage": "150",
            "scale-down-delay": "1m30s",
            "scale-to-zero-pod-retention-period": "500ms",
        },
        container_concurrency=10,
    )
    assert spec == ScalingSpec(
        container_concurrency=10,
        target=3,
        utilization=1,
        target_burst_capacity=-1,
        window_s=15,
        panic_window_fraction=0.2,
        panic_threshold=1.5,
        min_scale=1,
        max_scale=8,
        initial_scale=2,
        activation_scale=4,
        scale_down_delay_s=90,
        retention_s=0.5,
    )


@pytest.mark.parametrize("key", ["minScale", "minscale", "min_scale"])
def test_an_unknown_key_is_refused_with_the_one_that_was_meant(key: str) -> None:
    with pytest.raises(AnnotationRefused, match="is unknown; is 'min-scale' meant") as refused:
        parse_scaling({key: "1"}, container_concurrency=0)
    assert refused.value.key == key


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("window", "5s"),
        ("window", "6.5s"),
        ("window", "2h"),
        ("window", "15"),
        ("min-scale", "-1"),
        ("max-scale", "many"),
        ("activation-scale", "0"),
        ("target-utilization-percentage", "0"),
        ("target-utilization-percentage", "101"),
        ("target-burst-capacity", "-2"),
        ("metric", "rps"),
        ("class", "hpa.autoscaling.knative.dev"),
    ],
)
def test_values_that_knative_refuses_or_that_mean_another_autoscaler(key: str, text: str) -> None:
    with pytest.raises(AnnotationRefused) as refused:
        parse_scaling({key: text}, container_concurrency=0)
    assert refused.value.key == key


def test_a_minimum_above_the_maximum_is_refused() -> None:
    with pytest.raises(AnnotationRefused, match="3 is more than max-scale 2"):
        parse_scaling({"min-scale": "3", "max-scale": "2"}, container_concurrency=0)


def test_a_clusters_defaults_hold_where_there_is_no_annotation() -> None:
    cluster = replace(LOCAL, stable_window_s=30.0, target_burst_capacity=0.0, max_scale=5)
    spec = parse_scaling({"window": "10s"}, container_concurrency=1, cluster=cluster)
    assert (spec.window_s, spec.target_burst_capacity, spec.max_scale, spec.cluster) == (10.0, 0.0, 5, cluster)


def test_an_edit_changes_what_it_names_and_can_be_taken_back() -> None:
    spec = parse_scaling({"window": "10s", "max-scale": "4"}, container_concurrency=1)
    edited = edit_scaling(spec, {"min-scale": "3", "window": None})
    assert edited == replace(spec, min_scale=3, window_s=60.0)
    with pytest.raises(AnnotationRefused, match="5 is more than max-scale 4"):
        edit_scaling(edited, {"min-scale": "5"})
    with pytest.raises(AnnotationRefused, match="is unknown"):
        edit_scaling(edited, {"minscale": None})


@pytest.mark.parametrize(
    ("cluster", "annotations", "reason"),
    [
        (KNATIVE, {"initial-scale": "0"}, "0 is not allowed on this cluster"),
        (replace(LOCAL, max_scale_limit=9), {"max-scale": "10"}, "from 1 to the cluster's limit 9, not 10"),
        (replace(LOCAL, max_scale_limit=9), {}, "from 1 to the cluster's limit 9, not 0"),
    ],
)
def test_what_the_cluster_does_not_allow(cluster: ClusterDefaults, annotations: dict[str, str], reason: str) -> None:
    with pytest.raises(AnnotationRefused, match=reason):
        parse_scaling(annotations, container_concurrency=0, cluster=cluster)
