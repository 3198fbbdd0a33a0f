"""`make demo`: the whole main job, from nothing, in four acts. Exit 0 only if every act ended as it should.

Environment: DEMO_KEEP=1 leaves everything running; DEMO_APPROVE=manual waits for a person on the dashboard;
DEMO_FOLDER is where logs and records go (default .weighlock/demo).
"""

import os
import sys
from pathlib import Path

from tools.demo import acts
from tools.demo.screen import Screen
from tools.demo.story import Story
from tools.demo.world import CHECKOUT, NAMESPACE, DemoError, World, go_first, make_world


def main() -> int:
    """Run the acts."""
    go_first()
    keep = os.environ.get("DEMO_KEEP") == "1"
    folder = Path(os.environ.get("DEMO_FOLDER") or CHECKOUT / ".weighlock" / "demo").resolve()
    with make_world(folder, keep) as world, Screen() as screen:
        story = Story(world, screen, os.environ.get("DEMO_APPROVE") == "manual")
        try:
            _run(world, screen, story)
        except DemoError as error:
            story.failures.append(str(error))
            screen.bad(str(error))
        finally:
            story.close()
        world.went_wrong = bool(story.failures)
        _close(world, screen, story, keep)
    return 1 if story.failures else 0


def _run(world: World, screen: Screen, story: Story) -> None:
    screen.act("Weighlock", "Real API server, scheduler, Envoy and judge; engines are simulators that say so.")
    world.cluster.up()
    world.install()
    screen.good(f"operator, recorder and dashboard run; dashboard: {world.dashboard_url}")
    screen.say(
        "demo policy: margin 100 % on P99, steps of 35 s; a production policy (25 %, 1 h history) takes about an hour"
    )
    acts.install(story)
    acts.good_change(story)
    acts.bundle(story)
    acts.late_break(story)
    acts.epilogue(story)


def _close(world: World, screen: Screen, story: Story, keep: bool) -> None:
    for failure in story.failures:
        screen.bad(f"not as it should be: {failure}")
    if not story.failures:
        screen.good("every act ended as it should")
    screen.say(f"records of every request, and the load's log: {world.folder}")
    if story.failures and not keep:
        screen.say(f"logs of the operator, the recorder, the engines and the control plane: {world.logs}")
    if not keep:
        screen.say(
            "DEMO_KEEP=1 make demo leaves it running, logs too, to look around with kubectl and on the dashboard"
        )
    else:
        screen.say(f"left running. Dashboard {world.dashboard_url}, log in with: {world.cluster.token('approver')}")
        screen.say(f"export KUBECONFIG={world.cluster.kubeconfig('admin')}; kubectl get iro,irm,ira -n {NAMESPACE}")
        screen.say(f"stop it with: .venv/bin/python -m tools.devcluster down --state {world.cluster.state.root}")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("stopped; what the demo had started is down again", file=sys.stderr)
        sys.exit(130)
