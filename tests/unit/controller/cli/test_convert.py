"""`weighlock convert`: what is printed where."""

import json
from pathlib import Path

import pytest
import yaml

from controller.cli.main import main

CANARY = """
apiVersion: flagger.app/v1beta1
kind: Canary
metadata: {name: chat}
spec:
  targetRef: {apiVersion: apps/v1, kind: Deployment, name: chat}
  service: {port: 8000}
  analysis:
    interval: 1m
    threshold: 5
    stepWeights: [5, 50]
    metrics: [{name: request-success-rate, thresholdRange: {min: 99.5}}]
"""


def test_text_is_yaml_to_apply_and_notes_go_to_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "canary.yaml"
    file.write_text(CANARY)
    assert main(["convert", str(file)]) == 0
    out, err = capsys.readouterr()
    assert [obj["kind"] for obj in yaml.safe_load_all(out)] == ["InferenceRollout", "RolloutPolicy"]
    assert "spec.analysis.threshold" in err


def test_json_has_objects_and_notes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "canary.yaml"
    file.write_text(CANARY)
    assert main(["convert", str(file), "-o", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["objects"][1]["spec"]["gates"] == [{"metric": "success", "limit": "99.5%"}]
    assert {"code", "level", "file", "path", "message"} == set(answer["notes"][0])


def test_nothing_to_convert_is_bad_input_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "other.yaml"
    file.write_text("kind: Service\nmetadata: {name: x}\n")
    assert main(["convert", str(file)]) == 2
    assert capsys.readouterr().err.startswith(f"weighlock: {file}: nothing to convert (found Service)")
