"""The development cluster behaves like a cluster: scheduling, probes, restarts, volumes, ends, identities."""

from __future__ import annotations

import json
import os
import signal
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.kube import Namespace, wait_until
from tools.devcluster import Cluster
from tools.devcluster.processes import Identity, with_environment

pytestmark = pytest.mark.e2e

SERVER = "exec python3 -m http.server --bind $(POD_IP) --directory /www 8000"
POD_IP = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
WWW = {"volumeMounts": [{"name": "www", "mountPath": "/www"}]}
EMPTY_WWW = [{"name": "www", "emptyDir": {}}]


def is_running(namespace: Namespace, pod: str) -> bool:
    return "running" in namespace.container(pod).get("state", {})


def terminated(namespace: Namespace, pod: str, state: str = "state") -> Any:
    return namespace.container(pod).get(state, {}).get("terminated")


def restarts(namespace: Namespace, pod: str) -> int:
    return int(namespace.container(pod).get("restartCount", 0))


def waiting(namespace: Namespace, pod: str) -> Any:
    return namespace.container(pod).get("state", {}).get("waiting", {})


def processes_of(cluster: Cluster, uid: str) -> list[Identity]:
    return list(with_environment("CONTAINER_ROOT", f"{cluster.state.files}/{uid[:8]}/"))


def running_ip(pod: Any) -> str:
    """The address of a pod whose first container runs, else nothing."""
    statuses = pod["status"].get("containerStatuses") or [{}]
    return str(pod["status"]["podIP"]) if "running" in statuses[0].get("state", {}) else ""


def fetch(url: str) -> int:
    """HTTP status, 0 where nobody answers."""
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def test_gpus_are_accounted_for(namespace: Namespace) -> None:
    pods = ["gpu-0", "gpu-1", "gpu-2"]
    for pod in pods:
        resources = {"resources": {"limits": {"nvidia.com/gpu": "2"}}}
        namespace.start(pod, "exec sleep 600", resources, nodeSelector={"kubernetes.io/hostname": "gpu-b"})
    wait_until("two of three pods run", lambda: sum(is_running(namespace, pod) for pod in pods) == 2)
    (pending,) = (pod for pod in pods if not is_running(namespace, pod))

    def reason() -> Any:
        conditions = namespace.status(pending).get("conditions") or []
        return next((c["message"] for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False"), None)

    assert "Insufficient nvidia.com/gpu" in wait_until("the scheduler's reason", reason)


def test_each_pod_has_its_own_address_and_probes_gate_readiness(namespace: Namespace) -> None:
    container = {
        "env": [POD_IP],
        "ports": [{"name": "http", "containerPort": 8000}],
        "startupProbe": {"tcpSocket": {"port": 8000}, "periodSeconds": 1, "failureThreshold": 30},
        "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 1, "failureThreshold": 1},
        **WWW,
    }
    for pod in ("one", "two"):
        namespace.start(pod, SERVER, container, volumes=EMPTY_WWW)
    for pod in ("one", "two"):
        wait_until("started", lambda pod=pod: namespace.container(pod).get("started"))
    addresses = {namespace.status(pod)["podIP"] for pod in ("one", "two")}
    assert [fetch(f"http://{address}:8000/ready") for address in addresses] == [404, 404]
    assert namespace.condition("one", "Ready") == "False"

    ready = Path(namespace.environment("one")["CONTAINER_ROOT"]) / "www" / "ready"
    ready.write_text("yes")
    wait_until("ready", lambda: namespace.condition("one", "Ready") == "True")
    assert namespace.condition("two", "Ready") == "False"
    ready.unlink()
    wait_until("not ready again", lambda: namespace.condition("one", "Ready") == "False")
    assert restarts(namespace, "one") == 0


def test_a_failed_liveness_probe_restarts_the_container(namespace: Namespace) -> None:
    probe = {"exec": {"command": ["test", "!", "-e", "/www/dead"]}, "periodSeconds": 1, "failureThreshold": 1}
    script = "echo run; exec sleep 600"
    namespace.start("live", script, {"livenessProbe": probe, **WWW}, volumes=EMPTY_WWW)
    wait_until("running", lambda: is_running(namespace, "live"))
    dead = Path(namespace.environment("live")["CONTAINER_ROOT"]) / "www" / "dead"
    dead.touch()
    wait_until("restarted", lambda: restarts(namespace, "live") == 1)
    dead.unlink()
    last = terminated(namespace, "live", "lastState")
    assert (last["exitCode"], last["reason"]) == (128 + signal.SIGTERM, "Error")


def test_a_crash_loop_backs_off_and_tells_exit_code_and_logs(cluster: Cluster, namespace: Namespace) -> None:
    namespace.start("crash", "echo attempt; exit 7")
    wait_until("CrashLoopBackOff", lambda: waiting(namespace, "crash").get("reason") == "CrashLoopBackOff")
    wait_until("two restarts", lambda: restarts(namespace, "crash") >= 2)
    wait_until("last state", lambda: terminated(namespace, "crash", "lastState"))
    assert terminated(namespace, "crash", "lastState")["exitCode"] == 7
    assert namespace.status("crash")["phase"] == "Running"
    assert namespace.log(cluster, "crash", run=1) == "attempt\n"


def test_a_pod_that_is_not_restarted_succeeds_or_fails(namespace: Namespace) -> None:
    namespace.start("good", "exit 0", restartPolicy="Never")
    namespace.start("bad", "exit 3", restartPolicy="Never")
    wait_until("succeeded", lambda: namespace.status("good").get("phase") == "Succeeded")
    wait_until("failed", lambda: namespace.status("bad").get("phase") == "Failed")
    assert terminated(namespace, "good")["reason"] == "Completed"
    assert terminated(namespace, "bad")["exitCode"] == 3


def test_memory_over_the_limit_is_out_of_memory(namespace: Namespace) -> None:
    script = "exec python3 -c \"x = b'x' * 200_000_000; import time; time.sleep(600)\""
    namespace.start("big", script, {"resources": {"limits": {"memory": "64Mi"}}}, restartPolicy="Never")
    ended = wait_until("ended", lambda: terminated(namespace, "big"))
    assert (ended["exitCode"], ended["reason"]) == (128 + signal.SIGKILL, "OOMKilled")


def test_config_maps_become_variables_and_files_that_follow_changes(cluster: Cluster, namespace: Namespace) -> None:
    namespace.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: cfg}, data: {LEVEL: low, app.conf: first}}")
    container = {
        "envFrom": [{"configMapRef": {"name": "cfg"}}],
        "env": [{"name": "CONF", "value": "/etc/app/app.conf"}, {"name": "TEXT", "value": "$(LEVEL)-$(NONE)"}],
        "volumeMounts": [{"name": "cfg", "mountPath": "/etc/app"}],
    }
    script = 'echo "$TEXT"; cat /etc/app/app.conf; exec sleep 600'
    namespace.start("conf", script, container, volumes=[{"name": "cfg", "configMap": {"name": "cfg"}}])
    wait_until("output", lambda: namespace.log(cluster, "conf") == "low-$(NONE)\nfirst")
    conf = Path(namespace.environment("conf")["CONF"])
    assert conf.read_text() == "first"
    changed = {"metadata": {"name": "cfg"}, "data": {"app.conf": "second"}}
    namespace.call("PUT", namespace.path("configmaps", "cfg"), changed)
    wait_until("the new content", lambda: conf.read_text() == "second")
    assert not (conf.parent / "LEVEL").exists()


def test_a_missing_config_map_holds_the_container_until_it_is_there(namespace: Namespace) -> None:
    reference = {"name": "LEVEL", "valueFrom": {"configMapKeyRef": {"name": "late", "key": "LEVEL"}}}
    namespace.start("early", "exec sleep 600", {"env": [reference]})
    wait_until("CreateContainerConfigError", lambda: "late" in waiting(namespace, "early").get("message", ""))
    namespace.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: late}, data: {LEVEL: high}}")
    wait_until("running", lambda: is_running(namespace, "early"))
    assert namespace.environment("early")["LEVEL"] == "high"


def test_an_image_that_the_table_lacks_is_an_image_pull_error(namespace: Namespace) -> None:
    namespace.start("odd", "true", {"image": "example/unknown:1"})
    waiting = wait_until(
        "waiting", lambda: namespace.container("odd").get("state", {}).get("waiting", {}).get("message")
    )
    assert "example/unknown:1" in waiting
    reasons = ("ErrImagePull", "ImagePullBackOff")
    assert namespace.container("odd")["state"]["waiting"]["reason"] in reasons


def test_deletion_runs_pre_stop_then_sigterm_within_the_grace(cluster: Cluster, namespace: Namespace) -> None:
    script = 'trap "echo term; exit 0" TERM; echo up; while :; do sleep 0.1; done'
    hook = {"preStop": {"exec": {"command": ["sh", "-c", "echo hook >> $OUT"]}}}
    out = cluster.state.root / f"{namespace.name}-hook"
    container = {"lifecycle": hook, "env": [{"name": "OUT", "value": str(out)}]}
    namespace.start("polite", script, container, terminationGracePeriodSeconds=20)
    wait_until("up", lambda: namespace.log(cluster, "polite") == "up\n")
    uid = namespace.get("pods", "polite")["metadata"]["uid"]
    namespace.call("DELETE", namespace.path("pods", "polite"))
    wait_until("gone", lambda: namespace.get("pods", "polite") is None, 15)
    assert out.read_text() == "hook\n"
    assert namespace.log(cluster, "polite").splitlines()[-1] == "term"
    assert processes_of(cluster, uid) == []
    assert not (cluster.state.files / uid[:8]).exists()


def test_a_process_that_ignores_sigterm_is_killed_after_the_grace(cluster: Cluster, namespace: Namespace) -> None:
    script = 'trap "" TERM; sleep 600 & echo up; while :; do sleep 0.1; done'
    namespace.start("stubborn", script, terminationGracePeriodSeconds=2)
    wait_until("up", lambda: namespace.log(cluster, "stubborn") == "up\n")
    uid = namespace.get("pods", "stubborn")["metadata"]["uid"]
    assert len(processes_of(cluster, uid)) >= 2
    namespace.call("DELETE", namespace.path("pods", "stubborn"))
    wait_until("gone", lambda: namespace.get("pods", "stubborn") is None, 10)
    assert processes_of(cluster, uid) == []


def test_init_containers_run_first_and_sidecars_beside(cluster: Cluster, namespace: Namespace) -> None:
    tool = "devcluster/tool:1"
    inits = [
        {"name": "init", "image": tool, "command": ["sh", "-c", "echo made > /www/file"], **WWW},
        {"name": "side", "image": tool, "command": ["sleep", "600"], "restartPolicy": "Always"},
    ]
    spec = {"initContainers": inits, "volumes": EMPTY_WWW, "restartPolicy": "Never"}
    namespace.start("staged", "cat /www/file", dict(WWW), **spec)
    wait_until("succeeded", lambda: namespace.status("staged").get("phase") == "Succeeded")
    assert namespace.log(cluster, "staged") == "made\n"
    first, side = namespace.status("staged")["initContainerStatuses"]
    assert first["state"]["terminated"]["exitCode"] == 0
    assert "terminated" in side["state"]
    assert namespace.condition("staged", "Initialized") == "True"


def test_a_claim_gets_a_folder_that_outlives_the_pod(cluster: Cluster, namespace: Namespace) -> None:
    namespace.apply(
        """
        {apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: models},
         spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 50Gi}}}}
        """
    )
    volumes = [{"name": "www", "persistentVolumeClaim": {"claimName": "models"}}]
    for pod in ("first", "second"):
        namespace.start(pod, "cat /www/file; echo kept > /www/file", dict(WWW), volumes=volumes, restartPolicy="Never")
        wait_until("ended", lambda pod=pod: terminated(namespace, pod))
    assert namespace.log(cluster, "second") == "kept\n"


def test_a_public_vllm_deployment_runs_unchanged(cluster: Cluster, namespace: Namespace, shared_data: Path) -> None:
    namespace.apply("{apiVersion: v1, kind: Secret, metadata: {name: hf-secret}, stringData: {hf_token: none}}")
    namespace.apply((shared_data / "k8s" / "07-k8s-examples-vllm.yaml").read_text())
    pod = wait_until("a running pod", lambda: next((p for p in namespace.list("pods") if running_ip(p)), None))
    models = f"http://{running_ip(pod)}:8080/v1/models"
    wait_until("the engine's answer", lambda: fetch(models) == 200)
    with urllib.request.urlopen(models, timeout=5) as answer:
        assert json.load(answer)["data"][0]["id"] == "google/gemma-3-1b-it"


def test_token_review_knows_the_four_users(cluster: Cluster) -> None:
    admin = cluster.api()
    groups = {}
    for user in ("admin", "approver", "viewer", "stranger"):
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": cluster.token(user)}}
        _, answer = admin.call("POST", "/apis/authentication.k8s.io/v1/tokenreviews", body)
        assert answer["status"]["authenticated"] is True
        assert answer["status"]["user"]["username"] == user
        groups[user] = answer["status"]["user"]["groups"]
    assert "system:masters" in groups["admin"]
    assert "weighlock:approvers" in groups["approver"]
    assert "weighlock:viewers" in groups["viewer"]
    assert cluster.api("stranger").call("GET", "/api/v1/namespaces/default/pods")[0] == 403


CLIENT = """
import os
from kubernetes import client
from kubernetes.config.incluster_config import InClusterConfigLoader
folder = os.environ["WEIGHLOCK_SERVICEACCOUNT_DIR"]
InClusterConfigLoader(f"{folder}/token", f"{folder}/ca.crt").load_and_set()
namespace = open(f"{folder}/namespace").read()
print([pod.metadata.name for pod in client.CoreV1Api().list_namespaced_pod(namespace).items])
"""


def test_a_pod_reaches_the_api_with_its_service_account(cluster: Cluster, namespace: Namespace) -> None:
    namespace.apply(
        """
        {apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: reader},
         rules: [{apiGroups: [""], resources: [pods], verbs: [list]}]}
---
        {apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: reader},
         roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader},
         subjects: [{kind: ServiceAccount, name: default}]}
        """
    )
    container = {"command": ["python3", "-c", CLIENT]}
    namespace.start("inside", "", container, restartPolicy="Never")
    wait_until("ended", lambda: terminated(namespace, "inside"))
    assert namespace.log(cluster, "inside").strip() == "['inside']"


def test_logs_are_served_as_a_kubelet_serves_them(cluster: Cluster, namespace: Namespace) -> None:
    script = "seq 1 5; test -e /www/second && exec sleep 600; touch /www/second; exit 1"
    namespace.start("talker", script, dict(WWW), volumes=EMPTY_WWW)
    wait_until("a second run", lambda: restarts(namespace, "talker") == 1 and is_running(namespace, "talker"))
    path = namespace.path("pods", "talker/log")
    assert cluster.api().call("GET", f"{path}?tailLines=2")[1] == "4\n5\n"
    assert cluster.api().call("GET", f"{path}?previous=true")[1] == "1\n2\n3\n4\n5\n"


def test_a_killed_control_plane_comes_back_and_pods_run_on(cluster: Cluster, namespace: Namespace) -> None:
    namespace.start("steady", "exec sleep 600")
    wait_until("running", lambda: is_running(namespace, "steady"))
    pid = namespace.pid("steady")
    for name in ("kube-apiserver", "etcd"):
        os.kill(json.loads((cluster.state.run / f"{name}.json").read_text())["pid"], signal.SIGKILL)
    cluster.up()
    assert cluster.server == namespace.api.server
    assert namespace.pid("steady") == pid
    assert restarts(namespace, "steady") == 0


def test_a_killed_node_process_leaves_nothing_behind(cluster: Cluster, namespace: Namespace) -> None:
    namespace.start("survivor", "sleep 600 & exec sleep 600")
    wait_until("running", lambda: is_running(namespace, "survivor"))
    uid = namespace.get("pods", "survivor")["metadata"]["uid"]
    before = set(processes_of(cluster, uid))
    os.kill(json.loads((cluster.state.run / "node.json").read_text())["pid"], signal.SIGKILL)
    cluster.up()
    wait_until("restarted", lambda: restarts(namespace, "survivor") == 1)
    wait_until("running", lambda: is_running(namespace, "survivor"))
    assert not any(process.is_alive() for process in before)
    assert processes_of(cluster, uid)


def test_pods_live_on_after_the_cluster_was_down(
    cluster: Cluster, namespace: Namespace, capsys: pytest.CaptureFixture[str]
) -> None:
    namespace.start("sleeper", "exec sleep 600")
    wait_until("running", lambda: is_running(namespace, "sleeper"))
    before = Identity.of(namespace.pid("sleeper"))
    address = namespace.status("sleeper")["podIP"]
    cluster.down(keep_state=True)
    assert before is not None
    assert not before.is_alive()
    assert "left behind" not in capsys.readouterr().err
    cluster.up()
    wait_until("restarted", lambda: restarts(namespace, "sleeper") == 1 and is_running(namespace, "sleeper"))
    assert namespace.status("sleeper")["podIP"] == address
    assert namespace.status("sleeper")["podIPs"] == [{"ip": address}]
