"""A server with a repository, a scripted model, and a worker in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from cleveragents.access.model.project import ResourceKind
from cleveragents.app.plan_parts import PlanParts
from cleveragents.app.worker_parts import WorkerParts
from cleveragents.plans.jobs.names import should_run
from cleveragents.plans.model.sub_plan import asked_below, waits_for_sub_plans
from tests.conditions import wait_until
from tests.plan_bench import new_repository
from tests.server_bench import ServerBench, server_bench

__all__ = ["PlanServer", "plan_server"]

Json = dict[str, Any]


@dataclass
class PlanServer:
    """The bench of a server, and the resource of its plans: `shop`, of the project `team`."""

    bench: ServerBench
    repository: Path
    home: Path

    @property
    def parts(self) -> PlanParts:
        return self.bench.service.parts

    def script(self, *rules: Mapping[str, Any]) -> str:
        """Return the name of a model that answers from this script."""
        path = self.home / f"script-{len(list(self.home.glob('script-*')))}.yaml"
        facts = {"image_tokens": 900, "pdf_tokens": 1_000_000}
        path.write_text(json.dumps({"version": 1, "facts": facts, "rules": list(rules)}))
        return f"scripted/{path}"

    def make(self, client: TestClient | None = None, **body: Any) -> Json:
        """Create a plan and return its view."""
        answer = (client or self.bench.operator).post("/api/plans", json={"resource": "shop", **body})
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    def command(self, script: str, **body: Any) -> Json:
        """Create a plan that runs a shell script."""
        arguments = {"argv": ["sh", "-c", script]}
        return self.make(action="builtin/command", arguments=arguments, **{"profile": "full-auto", **body})

    def asking(self, word: str, **body: Any) -> Json:
        """Create a plan that waits for approval to replace a word everywhere."""
        arguments = {"pattern": word, "replacement": word.upper()}
        made = self.make(action="builtin/replace", arguments=arguments, **{"profile": "manual", **body})
        return self.rested(made)

    def get(self, path: str, /, **query: Any) -> Any:
        answer = self.bench.viewer.get(f"/api{path}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, body: Mapping[str, Any] | None = None, status: int = 200) -> Any:
        answer = self.bench.operator.post(f"/api{path}", json=body or {})
        assert answer.status_code == status, answer.text
        return answer.json()

    def rested(self, plan: Mapping[str, Any]) -> Json:
        """Return the view of the plan once no worker runs it any more."""

        def rests() -> bool:
            # Read from the store, which needs no git; between its two phases the plan does not rest.
            now = self.parts.plans.get(plan["id"])
            parts_run = waits_for_sub_plans(now) and not asked_below(now)
            return not (now.state.running or should_run(now) or parts_run)

        wait_until(rests)
        return dict(self.get(f"/plans/{plan['id']}"))

    def done(self, job: Mapping[str, Any]) -> Json:
        """Return the view of a job, once it has ended."""
        wait_until(lambda: self.bench.container.jobs.get(job["id"]).state.ended)
        return dict(self.get(f"/jobs/{job['id']}"))


@contextmanager
def plan_server(directory: Path, *, works: bool = True, **settings: Any) -> Iterator[PlanServer]:
    """Run the server in this empty directory; unless `works`, no worker takes its jobs."""
    quick = {"worker__poll_seconds": 0.05, "worker__cancel_grace_seconds": 1.0, "models__retries": 0}
    with server_bench(directory, **{**quick, **settings}) as bench:
        repository = new_repository(directory / "repository")
        container = bench.container
        now = container.clock.now()
        bench.project("team")
        container.projects.add_resource("shop", "team", ResourceKind.DIRECTORY, str(repository), now=now)
        server = PlanServer(bench, repository, directory)
        if not works:
            yield server
            return
        with WorkerParts(container).start(name="bench", concurrency=4):
            yield server
