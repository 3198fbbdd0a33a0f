"""Rollouts of other tools as ours: each tool's steps, gates and what is left out."""

import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from crds.v1alpha1.policy import RolloutPolicySpec
from crds.v1alpha1.rollout import InferenceRolloutSpec
from manifests.convert import Converted, ConvertRefused, convert_files

CONTAINER = {"name": "server", "image": "vllm/vllm-openai:v0.10.2", "ports": [{"containerPort": 8000}]}
TEMPLATE = {"metadata": {"labels": {"app": "chat"}}, "spec": {"containers": [CONTAINER]}}
TTFT = "histogram_quantile(0.99, sum(rate(vllm:time_to_first_token_seconds_bucket[5m])) by (le))"


def argo(**spec: Any) -> dict[str, Any]:
    base = {"replicas": 4, "template": TEMPLATE}
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Rollout",
        "metadata": {"name": "chat", "namespace": "llm"},
        "spec": base | spec,
    }


def canary(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    return argo(strategy={"canary": {"steps": list(steps), **more}})


def analysis(query: str = TTFT, condition: str = "result[0] <= 2", **more: Any) -> dict[str, Any]:
    metric = {"name": "m", "successCondition": condition, "provider": {"prometheus": {"query": query}}}
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "AnalysisTemplate",
        "metadata": {"name": "latency"},
        "spec": {"metrics": [metric], **more},
    }


def flagger(**parts: Any) -> dict[str, Any]:
    spec = {"targetRef": {"kind": "Deployment", "name": "chat"}, "service": {"port": 80, "targetPort": 8000}, **parts}
    return {"apiVersion": "flagger.app/v1beta1", "kind": "Canary", "metadata": {"name": "chat"}, "spec": spec}


def kruise(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat"}
    return {
        "apiVersion": "rollouts.kruise.io/v1beta1",
        "kind": "Rollout",
        "metadata": {"name": "chat"},
        "spec": {"workloadRef": reference, "strategy": {"canary": {"steps": list(steps), **more}}},
    }


def converted(*objects: dict[str, Any]) -> Converted:
    return convert_files([("in.yaml", yaml.safe_dump_all(objects).encode())])


def spec_of(result: Converted, kind: str = "InferenceRollout") -> dict[str, Any]:
    found = [obj for obj in result.objects if obj["kind"] == kind]
    assert len(found) == 1
    return dict(found[0]["spec"])


def notes(result: Converted, code: str) -> list[str]:
    return [finding.path for finding in result.notes if finding.code == code]


def refusal(*objects: dict[str, Any]) -> str:
    with pytest.raises(ConvertRefused) as caught:
        converted(*objects)
    return caught.value.refusal.path


def test_argo_weights_and_pauses_keep_their_order() -> None:
    steps: list[dict[str, Any]] = [
        {"setWeight": 10},
        {"pause": {"duration": "1h30m"}},
        {"setWeight": 40},
        {"pause": {}},
        {"setWeight": 100},
    ]
    result = converted(canary(*steps))
    assert spec_of(result)["steps"] == [
        {"canary": {"weight": 10}},
        {"pause": {"duration": "90m"}},
        {"ramp": {"weight": 40}},
        {"pause": {}},
        {"ramp": {"weight": 100}},
    ]
    assert result.objects[0]["metadata"] == {"name": "chat", "namespace": "llm"}
    assert spec_of(result)["traffic"] == {"port": 8000}


def test_a_mirror_becomes_the_first_step() -> None:
    mirror = {"setMirrorRoute": {"name": "m", "percentage": 35, "match": [{"path": {"prefix": "/v1"}}]}}
    result = converted(canary({"setWeight": 5}, mirror, {"setMirrorRoute": {"name": "m"}}))
    assert spec_of(result)["steps"] == [{"shadow": {"percent": "35"}}, {"canary": {"weight": 5}}]
    assert notes(result, "moved-step") == ["spec.strategy.canary.steps[1].setMirrorRoute.percentage"]


def test_weights_that_do_not_rise_are_left_out_and_said() -> None:
    result = converted(canary({"setWeight": 0}, {"setWeight": 20}, {"setWeight": 10}, {"setWeight": 20}))
    assert spec_of(result)["steps"] == [{"canary": {"weight": 20}}]
    assert len(notes(result, "dropped-step")) == 3


def test_weights_out_of_another_whole_are_percent_of_it() -> None:
    result = converted(canary({"setWeight": 50}, trafficRouting={"maxTrafficWeight": 1000, "istio": {}}))
    assert spec_of(result)["steps"] == [{"canary": {"weight": 5}}]


def test_metrics_of_a_template_in_the_same_input_become_gates() -> None:
    result = converted(canary({"setWeight": 5}, analysis={"templates": [{"templateName": "latency"}]}), analysis())
    assert spec_of(result, "RolloutPolicy")["gates"] == [{"metric": "ttft", "percentile": "99", "limit": "2s"}]
    assert spec_of(result)["policyRef"] == {"name": "chat"}
    assert not notes(result, "no-gates")


def test_arguments_of_a_rollout_fill_the_condition() -> None:
    template = analysis(condition="result[0] <= {{args.limit}}", args=[{"name": "limit", "value": "9"}])
    use = {"templates": [{"templateName": "latency"}], "args": [{"name": "limit", "value": "3"}]}
    result = converted(canary({"analysis": use}, {"setWeight": 5}), template)
    assert spec_of(result, "RolloutPolicy")["gates"][0]["limit"] == "3s"


def test_a_template_that_is_not_there_is_named() -> None:
    result = converted(canary({"setWeight": 5}, analysis={"templates": [{"templateName": "elsewhere"}]}))
    assert notes(result, "template-missing") == ["spec.strategy.canary.analysis.templates[0]"]
    assert notes(result, "no-gates") == ["spec"]


def test_a_template_alone_becomes_a_policy() -> None:
    result = converted(analysis())
    assert [obj["kind"] for obj in result.objects] == ["RolloutPolicy"]


def test_a_metric_of_another_system_is_named_and_no_gate() -> None:
    template = analysis()
    template["spec"]["metrics"][0]["provider"] = {"job": {"spec": {}}}
    with pytest.raises(ConvertRefused):
        converted(template)
    result = converted(canary({"setWeight": 5}, analysis={"templates": [{"templateName": "latency"}]}), template)
    assert notes(result, "no-counterpart") == ["[1].spec.metrics[0].provider"]


def test_blue_green_proves_on_copies_and_waits_for_a_person() -> None:
    result = converted(argo(strategy={"blueGreen": {"activeService": "chat", "autoPromotionEnabled": False}}))
    assert spec_of(result)["steps"] == [{"shadow": {"percent": "auto"}}, {"pause": {}}]
    assert notes(result, "blue-green")


def test_a_gateway_api_route_is_the_traffic() -> None:
    plugin = {"argoproj-labs/gatewayAPI": {"httpRoute": "chat-route", "namespace": "llm"}}
    result = converted(canary({"setWeight": 5}, trafficRouting={"plugins": plugin}))
    assert spec_of(result)["traffic"] == {"port": 8000, "provider": "gatewayAPI", "httpRoute": "chat-route"}


def test_what_argo_itself_refuses_is_refused_with_its_path() -> None:
    broken = {"spec": {"containers": [{**CONTAINER, "resources": {"limits": {"memory": "lots"}}}]}}
    assert refusal(argo(template=broken)) == "spec.template.spec.containers[0].resources.limits.memory"
    assert refusal(canary({"pause": {"duration": "soon"}})) == "spec.strategy.canary.steps[0].pause.duration"
    assert refusal(canary({"setWeight": 120})) == "spec.strategy.canary.steps[0].setWeight"
    assert refusal(argo(template=None)) == "spec.template.spec.containers"


def test_flagger_steps_gates_and_people() -> None:
    metrics = [
        {"name": "request-success-rate", "thresholdRange": {"min": 99}},
        {"name": "request-duration", "threshold": 500},
    ]
    hooks = [{"name": "gate", "type": "confirm-promotion"}, {"name": "load", "url": "http://load/"}]
    parts = {"stepWeights": [5, 20, 50], "metrics": metrics, "webhooks": hooks, "mirror": True, "mirrorWeight": 40}
    result = converted(flagger(analysis=parts, progressDeadlineSeconds=600))
    assert spec_of(result)["steps"] == [
        {"shadow": {"percent": "40"}},
        {"canary": {"weight": 5}},
        {"ramp": {"weight": 20}},
        {"ramp": {"weight": 50}},
        {"pause": {}},
    ]
    assert spec_of(result)["workloadRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat"}
    assert spec_of(result)["capacity"] == {"readyDeadline": "10m"}
    assert spec_of(result, "RolloutPolicy")["gates"] == [
        {"metric": "success", "limit": "99%"},
        {"metric": "e2e", "percentile": "99", "limit": "500ms"},
    ]


def test_more_steps_than_we_take_are_thinned_and_the_last_stays() -> None:
    result = converted(flagger(analysis={"stepWeight": 1, "maxWeight": 50}))
    weights = [next(iter(step.values()))["weight"] for step in spec_of(result)["steps"]]
    assert (len(weights), weights[0], weights[-1]) == (20, 1, 50)
    assert notes(result, "dropped-step") == ["spec"]


def test_every_rise_waits_where_flagger_asked_before_each() -> None:
    hooks = [{"name": "ask", "type": "confirm-traffic-increase"}]
    result = converted(flagger(analysis={"stepWeight": 25, "maxWeight": 50, "webhooks": hooks}))
    assert spec_of(result)["steps"] == [
        {"canary": {"weight": 25, "approval": True}},
        {"ramp": {"weight": 50, "approval": True}},
    ]


def test_a_metric_template_alone_decides_nothing_yet() -> None:
    template = {
        "apiVersion": "flagger.app/v1beta1",
        "kind": "MetricTemplate",
        "metadata": {"name": "ttft"},
        "spec": {"provider": {"type": "prometheus"}, "query": TTFT},
    }
    gates = spec_of(converted(template), "RolloutPolicy")["gates"]
    assert gates == [{"metric": "ttft", "percentile": "99", "margin": "25%", "mode": "dryRun"}]
    metric = {"name": "x", "templateRef": {"name": "ttft"}, "thresholdRange": {"max": 1.5}}
    used = converted(flagger(analysis={"stepWeight": 50, "maxWeight": 50, "metrics": [metric]}), template)
    assert spec_of(used, "RolloutPolicy")["gates"] == [{"metric": "ttft", "percentile": "99", "limit": "1500ms"}]


def test_kruise_steps_set_traffic_and_pause() -> None:
    routing = [{"service": "chat", "gateway": {"httpRouteName": "chat"}}]
    steps: list[dict[str, Any]] = [
        {"traffic": "5%", "pause": {}},
        {"replicas": "50%", "pause": {"duration": 60}},
        {"replicas": 3},
    ]
    result = converted(kruise(*steps, trafficRoutings=routing))
    assert spec_of(result)["steps"] == [
        {"canary": {"weight": 5}},
        {"pause": {}},
        {"ramp": {"weight": 50}},
        {"pause": {"duration": "1m"}},
    ]
    assert spec_of(result)["traffic"] == {"provider": "gatewayAPI", "httpRoute": "chat"}
    assert notes(result, "no-counterpart") == ["spec.strategy.canary.steps[2].replicas"]


def test_other_documents_are_noted_and_nothing_alone_is_bad_input() -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "chat"}}
    result = converted(service, canary({"setWeight": 5}))
    assert notes(result, "not-converted") == ["[0]"]
    assert refusal(service) == ""
    with pytest.raises(ConvertRefused):
        convert_files([("empty.yaml", b"")])


def test_every_handed_rollout_is_converted_into_valid_objects(shared_data: Path) -> None:
    files = sorted((shared_data / "rollouts").glob("*.yaml"))
    assert files
    for file in files:
        if "malformed" in file.name:
            with pytest.raises(ConvertRefused):
                convert_files([(file.name, file.read_bytes())])
            continue
        for obj in convert_files([(file.name, file.read_bytes())]).objects:
            model = InferenceRolloutSpec if obj["kind"] == "InferenceRollout" else RolloutPolicySpec
            model.model_validate(obj["spec"])


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_file_is_converted_or_refused_never_a_traceback(seed: int) -> None:
    dice = random.Random(seed)
    whole = [canary({"setWeight": 5}, {"pause": {"duration": "10s"}}), analysis(), flagger(analysis={"stepWeight": 5})]
    lines = yaml.safe_dump_all([*whole, kruise({"traffic": "5%"})]).splitlines()
    for _ in range(60):
        damaged = list(lines)
        for _ in range(dice.randint(1, 4)):
            at = dice.randrange(len(damaged))
            edit = dice.choice(("cut", "swap", "value", "indent"))
            if edit == "cut":
                del damaged[at]
            elif edit == "swap":
                other = dice.randrange(len(damaged))
                damaged[at], damaged[other] = damaged[other], damaged[at]
            elif edit == "value":
                odd = dice.choice(("[]", "{}", "-1", "1e999", "null", "'x'", "[1, [2]]", "\u202e"))
                damaged[at] = damaged[at].partition(":")[0] + ": " + odd
            else:
                damaged[at] = "  " + damaged[at]
        try:
            result = convert_files([("in.yaml", "\n".join(damaged).encode())])
        except ConvertRefused as refused:
            assert refused.refusal.problem
        else:
            assert result.objects
