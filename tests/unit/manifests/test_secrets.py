"""No secret is printed, wherever it stands; that it changed is still said."""

import time

import pytest

from controller.cli.main import main
from manifests.diff import diff
from manifests.importing import import_files
from manifests.secrets import redact_script, scrub

FILE = """
apiVersion: v1
kind: ConfigMap
metadata: {name: scripts}
data:
  run.sh: |
    export HF_TOKEN=MARKER01
    vllm serve m --api-key MARKER02 --otlp-traces-endpoint http://u:MARKER03@host/x
  cfg.yaml: |
    model: m
    api-key: MARKER04
  DB_PASSWORD: MARKER05
---
apiVersion: v1
kind: Pod
metadata: {name: a, annotations: {x: "token=MARKER06"}}
spec:
  containers:
  - name: vllm
    image: vllm/vllm-openai:v0.11.0
    command:
    - sh
    - -c
    - "export AWS_SECRET_ACCESS_KEY='MARKER07'; HF_TOKEN=MARKER08 vllm serve m --api-key=MARKER09 --api-key MARKER10
      --config /c/cfg.yaml --served-model-name \\"$MY_PASSWORD\\""
    env:
    - {name: MY_PASSWORD, value: MARKER11}
    - {name: PROXY_URL, value: "https://user:MARKER12@proxy"}
    - {name: S3_ACCESS_KEY, value: MARKER13}
    - {name: AUTH_HEADER, value: "Authorization: Bearer MARKER14"}
    - {name: EXTRA, value: "--enable-x --api-key MARKER15"}
    - {name: JSON_CONFIG, value: '{"api_key": "MARKER16", "password":"MARKER17"}'}
    envFrom: [{configMapRef: {name: scripts}}]
    volumeMounts: [{name: c, mountPath: /c}]
    readinessProbe: {httpGet: {path: /h, port: 80, httpHeaders: [{name: Authorization, value: Bearer MARKER18}]}}
    livenessProbe: {exec: {command: [sh, -c, "curl -H 'Authorization: Bearer MARKER19' localhost"]}}
  - name: sglang
    image: lmsysorg/sglang:v0.5.5
    command: [python3, -m, sglang.launch_server]
    args: [--model-path, m, --api-key, MARKER20, --admin-api-key=MARKER21, "--api-key MARKER22"]
  - name: script
    image: foo/bar
    command: [/x.sh, --token, MARKER23, --password=MARKER24, "https://a:MARKER25@b", password=MARKER26]
    resources: {limits: {nvidia.com/gpu: 1}}
  - name: nested
    image: vllm/vllm-openai:v0.11.0
    args:
    - --model
    - m
    - --kv-transfer-config
    - '{"kv_connector":"x","kv_connector_extra_config":{"redis_password":"MARKER27","url":"redis://:MARKER28@h"}}'
    - --hf-token
    - MARKER29
    - --ssl-keyfile-password
    - MARKER30
    - --middleware
    - "x?token=MARKER31"
  volumes: [{name: c, configMap: {name: scripts}}]
"""


@pytest.mark.parametrize("output", [[], ["-o", "json"], ["-o", "yaml"]])
@pytest.mark.parametrize("command", ["import", "lint"])
def test_no_marker_is_printed(tmp_path, capsys, command: str, output: list[str]) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "a.yaml"
    path.write_text(FILE, encoding="utf-8")
    main([command, str(path), *(output if command == "import" or "yaml" not in output else [])])
    out, err = capsys.readouterr()
    assert "a" in out and "MARKER" not in out + err


@pytest.mark.parametrize("name", ["vllm", "sglang", "script", "nested"])
def test_a_diff_says_changed_and_prints_none(tmp_path, capsys, name: str) -> None:  # type: ignore[no-untyped-def]
    old, new = tmp_path / "a.yaml", tmp_path / "b.yaml"
    old.write_text(FILE, encoding="utf-8")
    new.write_text(FILE.replace("MARKER", "MARKERX"), encoding="utf-8")
    for output in ([], ["-o", "json"]):
        assert main(["diff", str(old), str(new), "--select", f"a/{name}", *output]) == 0
        out, err = capsys.readouterr()
        assert "MARKER" not in out + err
        assert name == "script" or "the secret changed" in out


def test_secrets_inside_values_and_files_are_compared_by_their_salted_hash() -> None:
    sides = [
        import_files([("a.yaml", FILE.replace("MARKER", marker).encode())], salt=b"salt").manifests
        for marker in ("MARKER", "MARKERX")
    ]
    for index, setting in ((0, "file:/c/DB_PASSWORD"), (3, "kv-transfer-config")):
        found = {line.setting: line for line in diff(sides[0][index], sides[1][index]).changes}
        assert found[setting].mechanism == "credentials" and found[setting].correctness == "none"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("export HF_TOKEN=abc", "export HF_TOKEN=<redacted>"),
        ("serve m --api-key abc --port 1", "serve m --api-key <redacted> --port 1"),
        ("--enable-x --api-key 'a b'", "--enable-x --api-key '<redacted>'"),
        ('{"password": "abc", "n": 1}', '{"password": "<redacted>", "n": 1}'),
        ("--api-key $KEY", "--api-key $KEY"),
        ("eos_token: </s>", "eos_token: </s>"),
        ("max_tokens: 5", "max_tokens: 5"),
        ("--max-num-batched-tokens 8192", "--max-num-batched-tokens 8192"),
        ("--tokenizer org/m", "--tokenizer org/m"),
    ],
)
def test_texts(text: str, expected: str) -> None:
    assert redact_script(text) == expected


@pytest.mark.parametrize("piece", ["a.", "-b.", "a-", "--a ", "k: ", "k: '", '--a "', "a=", "a" * 7, "x:", "\\\\"])
def test_a_long_hostile_text_is_read_in_linear_time(piece: str) -> None:
    start = time.process_time()
    redact_script(piece * (400_000 // len(piece)))
    assert time.process_time() - start < 5


def test_values_of_any_depth() -> None:
    value = {"a": [{"api_key": "abc", "port": 1}], "password": "", "text": "see abcdef"}
    assert scrub(value, {"abcdef"}) == {
        "a": [{"api_key": "<redacted>", "port": 1}],
        "password": "",
        "text": "see <redacted>",
    }
