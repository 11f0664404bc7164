"""Plans of a server."""

from __future__ import annotations

import pytest

from cleveragents.core.errors import PlanError
from tests.scripted_server import Reply, client_of, job_row, plan_account


@pytest.mark.parametrize("ended", ["apply", "undo"])
def test_a_cancelled_job_is_no_success(ended: str) -> None:
    def answer(method: str, path: str, _: dict[str, list[str]]) -> Reply:
        if method == "POST" or path.startswith("/jobs/"):
            return 200, job_row("cancelled", cancel_reason="changed my mind")
        return 200, plan_account()

    with client_of(answer) as client, pytest.raises(PlanError) as caught:
        getattr(client.plans, ended)("01A")
    assert caught.value.reason == "cancelled: changed my mind"
