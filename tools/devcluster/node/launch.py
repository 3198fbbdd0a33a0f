"""From a container's spec to a command line that this machine can execute. Pure, but for looking up programs.

Called by the container runner each time it starts the container.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.devcluster.node.environment import expand
from tools.devcluster.node.images import Image, make_argv
from tools.devcluster.node.rewrite import PathRewriter
from tools.devcluster.node.runtime import StartError
from tools.devcluster.node.volumes import SERVICE_ACCOUNT

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Command:
    """All that starting a process takes."""

    argv: list[str]
    env: dict[str, str]
    cwd: Path


@dataclass(frozen=True)
class Surroundings:
    """What the node tells a container besides its spec."""

    hostname: str
    pod_ip: str
    api_host: str
    api_port: str


def make_command(
    container: Mapping[str, Any],
    image: Image,
    shims: Path,
    root: Path,
    values: Mapping[str, str],
    surroundings: Surroundings,
) -> Command:
    """The command of a container.

    Args:
        container: of the pod's spec.
        image: its entry of the image table.
        shims: folder of the image's executables.
        root: the container's root folder, mount paths already linked below it.
        values: the container's own environment, resolved.
        surroundings: the node's part.

    Raises:
        StartError: the spec and the image leave no command.
    """
    mount_paths = [mount["mountPath"] for mount in container.get("volumeMounts") or []]
    rewrite = PathRewriter(str(root), mount_paths)
    argv = [rewrite(expand(argument, values)) for argument in make_argv(container, image)]
    if not argv:
        raise StartError("no command specified")
    env = make_base_environment(root, mount_paths, surroundings) | image.env
    env |= {name: rewrite(value) for name, value in values.items()}
    env["PATH"] = f"{shims}:{env.get('PATH', SYSTEM_PATH)}"
    return Command(find_program(argv, env["PATH"], shims), env, working_dir(container, root, rewrite))


def make_base_environment(root: Path, mount_paths: list[str], surroundings: Surroundings) -> dict[str, str]:
    env = {
        "HOME": str(root / "root"),
        "HOSTNAME": surroundings.hostname,
        "CONTAINER_ROOT": str(root),
        "DEVCLUSTER_POD_IP": surroundings.pod_ip,
        "KUBERNETES_SERVICE_HOST": surroundings.api_host,
        "KUBERNETES_SERVICE_PORT": surroundings.api_port,
        "KUBERNETES_SERVICE_PORT_HTTPS": surroundings.api_port,
    }
    if SERVICE_ACCOUNT in mount_paths:
        env["WEIGHLOCK_SERVICEACCOUNT_DIR"] = f"{root}{SERVICE_ACCOUNT}"
    return env


def find_program(argv: list[str], path: str, shims: Path) -> list[str]:
    """`argv` with the program's full path. A path that only the image has (``/usr/bin/vllm``) is one of its shims.

    Raises:
        StartError: there is no such program.
    """
    program = argv[0]
    if "/" in program:
        shim = shims / Path(program).name
        found = str(shim) if shim.exists() else program if os.access(program, os.X_OK) else None
    else:
        found = shutil.which(program, path=path)
    if found is None:
        raise StartError(f'exec: "{program}": executable file not found in $PATH')
    return [found, *argv[1:]]


def working_dir(container: Mapping[str, Any], root: Path, rewrite: PathRewriter) -> Path:
    wanted = container.get("workingDir")
    if not wanted:
        return root
    real = Path(rewrite(wanted))
    if real == Path(wanted):
        real = root / wanted.strip("/")
    real.mkdir(parents=True, exist_ok=True)
    return real
