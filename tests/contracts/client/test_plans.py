"""Plans, through every client: the same calls, the same views, the same errors."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cleveragents.api.client import Client
from cleveragents.api.plans.request import Limits, PlanRequest
from cleveragents.api.views import as_json, every
from cleveragents.apply.lock import resource_lock
from cleveragents.changes.model.merge_conflict import Take
from cleveragents.core.errors import (
    ApplyConflict,
    CheckFailed,
    DeadlineExceeded,
    NeedsHuman,
    NotAllowed,
    PlanError,
    RequestRefused,
    ResultChanged,
    StaleFile,
    StalePlan,
    ToolRefused,
    UnknownCheckpoint,
    UnknownComment,
    UnknownDecision,
    UnknownFile,
    UnknownPlan,
    UnknownResource,
)
from cleveragents.plans.model.comment import CommentState
from cleveragents.plans.model.plan import Phase, PlanState
from cleveragents.plans.model.status import PlanStatus
from tests.actor_plan_bench import accept, answer, call, executes, reviews, says, steps, strategizes
from tests.cli_bench import git
from tests.contracts.client.conftest import ClientOf
from tests.remotes import new_remote
from tests.server_plan_bench import PlanServer


@pytest.fixture(autouse=True)
def as_committed(server: PlanServer) -> None:
    first = git(server.repository, "rev-list", "--max-parents=0", "HEAD").strip()
    git(server.repository, "reset", "-q", "--hard", first)
    git(server.repository, "clean", "-fdq")


def command(script: str, **more: Any) -> PlanRequest:
    arguments = {"argv": ["sh", "-c", script]}
    wanted = {"resource": "shop", "profile": "full-auto", "apply": "review", **more}
    return PlanRequest(action="builtin/command", arguments=arguments, **wanted)


def done(client: Client, script: str = "echo hello > new.txt; echo said", **more: Any) -> str:
    return client.plans.wait(client.plans.create(command(script, **more)).id, timeout=60).id


def test_a_plan_is_created_watched_and_shown(server: PlanServer, client: Client) -> None:
    made = client.plans.create(command("echo hello > new.txt; echo said", checks=["true"]))
    printed = [piece for piece in client.plans.watch(made.id) if piece.kind == "output"]
    plan = client.plans.get(made.id)
    assert "said" in "".join(piece.text for piece in printed)
    assert (plan.state, plan.needs, plan.at_rest) == (PlanState.COMPLETE, "review", True)
    assert [change.path for change in plan.changes] == ["new.txt"]
    assert [check.verdict for check in plan.checks] == ["passed"]
    assert as_json(plan) == server.get(f"/plans/{plan.id}")
    assert as_json(client.plans.summary(plan.id)) == server.get(f"/plans/{plan.id}/summary")
    assert client.plans.get(plan.id[-8:]) == plan


def test_lists_have_pages_and_conditions(client: Client) -> None:
    one, two = done(client), done(client, "true")
    found = [plan.id for plan in every(lambda after: client.plans.list(limit=1, after=after))]
    assert found.index(two) < found.index(one)
    reviews = [plan.id for plan in client.plans.list(needs=["review"], states=[PlanState.COMPLETE]).items]
    assert one in reviews
    assert two not in reviews
    assert client.plans.list(project="nothing").items == ()
    assert client.plans.list(resource="nothing").items == ()


def test_plans_are_counted_by_phase_and_state(client: Client) -> None:
    def counted() -> dict[tuple[str, str], int]:
        return {(one.phase.value, one.state.value): one.count for one in client.plans.counts()}

    before = counted().get(("execute", "complete"), 0)
    client.plans.discard(done(client))
    done(client)
    assert counted()["execute", "complete"] == before + 1
    assert sum(counted().values()) == len([*every(lambda after: client.plans.list(after=after))])


def test_a_result_is_applied_and_undone(server: PlanServer, client: Client) -> None:
    plan_id, file = done(client), server.repository / "new.txt"
    assert client.plans.apply(plan_id).state is PlanState.APPLIED
    assert file.read_text() == "hello\n"
    assert client.plans.undo(plan_id).state is PlanState.UNDONE
    assert not file.exists()


def test_a_conflict_names_the_files_and_changes_nothing(server: PlanServer, client: Client) -> None:
    plan_id, file = done(client), server.repository / "new.txt"
    file.write_text("mine\n")
    with pytest.raises(ApplyConflict) as caught:
        client.plans.apply(plan_id)
    assert (caught.value.plan_id, caught.value.paths) == (plan_id, ("new.txt",))
    assert file.read_text() == "mine\n"
    assert client.plans.get(plan_id).state is PlanState.CONSTRAINED


def test_a_conflict_is_rebased_resolved_and_applied(server: PlanServer, client: Client) -> None:
    plan_id, file = done(client, checks=["test -f new.txt"]), server.repository / "new.txt"
    version = client.plans.get(plan_id).version
    same = client.plans.rebase(plan_id)
    assert (same.version, same.state) == (version, PlanState.COMPLETE)
    file.write_text("mine\n")
    with pytest.raises(ApplyConflict):
        client.plans.apply(plan_id)
    blocked = client.plans.get(plan_id)
    assert "rebase" in blocked.can
    assert blocked.steps[1].action == "plan.rebase"

    client.plans.rebase(plan_id)
    waiting = client.plans.wait(plan_id, timeout=60)
    assert (waiting.status, waiting.needs, [one.sub_plan for one in waiting.conflicts]) == (
        "waiting",
        "conflict",
        [""],
    )
    (conflict,) = client.plans.conflicts(plan_id).items
    assert (conflict.ours.name, conflict.theirs.name) == ("this plan", "the repository")
    client.plans.resolve(plan_id, "new.txt", Take.OURS)
    client.plans.resume(plan_id)
    assert client.plans.wait(plan_id, timeout=60).status == "ready"
    assert file.read_text() == "mine\n"
    assert client.plans.apply(plan_id).state is PlanState.APPLIED
    assert file.read_text() == "hello\n"
    with pytest.raises(PlanError, match="not applied"):
        client.plans.rebase(plan_id)


def test_a_side_is_taken_right_after_a_conflict(server: PlanServer, client: Client) -> None:
    plan_id, file = done(client, "echo hello > new.txt; echo 2 > two.txt"), server.repository / "new.txt"
    file.write_text("mine\n")
    with pytest.raises(ApplyConflict):
        client.plans.apply(plan_id)
    calls = [made.tool for made in client.plans.get(plan_id).calls]
    with pytest.raises(ToolRefused, match=r"no open conflict at nosuch; open conflicts: new\.txt"):
        client.plans.resolve(plan_id, "nosuch", Take.OURS)
    assert [made.tool for made in client.plans.get(plan_id).calls] == calls
    resolved = client.plans.resolve(plan_id, "new.txt", Take.THEIRS)
    assert (resolved.conflicts, [row.path for row in resolved.changes]) == ((), ["two.txt"])
    assert client.plans.apply(plan_id).state is PlanState.APPLIED
    assert file.read_text() == "mine\n"


def test_only_a_conflict_that_was_seen_is_resolved(server: PlanServer, client: Client) -> None:
    plan_id, file = done(client, "echo hello > new.txt; echo 2 > two.txt"), server.repository / "new.txt"
    ready = client.plans.get(plan_id)
    file.write_text("mine\n")
    with pytest.raises(ApplyConflict):
        client.plans.apply(plan_id)
    with pytest.raises(StalePlan):
        client.plans.resolve(plan_id, "new.txt", Take.OURS, version=ready.version)
    seen = client.plans.get(plan_id)
    client.plans.review(plan_id, reject=["two.txt"])
    with pytest.raises(ResultChanged):
        client.plans.resolve(plan_id, "new.txt", Take.OURS, version=seen.version, tree=seen.tree)
    now = client.plans.get(plan_id)
    assert (now.conflicts, now.calls) == ((), seen.calls)
    resolved = client.plans.resolve(plan_id, "new.txt", Take.OURS, version=now.version, tree=now.tree)
    assert (resolved.conflicts, [row.path for row in resolved.changes]) == ((), ["new.txt"])


def test_an_apply_and_an_undo_say_what_they_did(server: PlanServer, client: Client) -> None:
    plan_id = done(client)
    applied = client.plans.apply(plan_id, commit="Say hello").last_apply
    assert applied is not None
    assert (applied.kind, applied.files) == ("apply", 1)
    assert applied.commit == git(server.repository, "rev-parse", "HEAD").strip()
    undone = client.plans.undo(plan_id).last_apply
    assert undone is not None
    assert (undone.kind, undone.files, undone.commit) == ("undo", 1, None)


def test_an_apply_reports_its_progress(server: PlanServer, client: Client) -> None:
    plan_id, lines = done(client), list[str]()
    with ExitStack() as another_apply:
        another_apply.enter_context(resource_lock(server.repository, timeout_seconds=30))

        def progress(line: str) -> None:
            lines.append(line)
            another_apply.close()

        assert client.plans.apply(plan_id, progress=progress).state is PlanState.APPLIED
    assert lines


def test_an_apply_without_changes_is_refused_with_the_reason(client: Client) -> None:
    with pytest.raises(PlanError, match="no file was changed"):
        client.plans.apply(done(client, "true"))
    plan_id = done(client)
    client.plans.review(plan_id, reject=["."])
    with pytest.raises(PlanError, match="rejected all changes") as caught:
        client.plans.apply(plan_id)
    assert [remedy.action for remedy in caught.value.remedies] == ["plan.review"]


def test_an_abandoned_apply_is_not_waited_for(server: PlanServer, client: Client) -> None:
    plan_id, store, now = done(client), server.parts.plans, server.bench.container.clock.now()
    store.move(store.get(plan_id), (Phase.APPLY, PlanState.QUEUED), now=now)
    plan = client.plans.wait(plan_id, timeout=60)
    assert (plan.state, "apply" in plan.can) == (PlanState.ERRORED, True)


def test_an_apply_is_queued_for_a_worker(server: PlanServer, client: Client) -> None:
    plan_id = done(client)
    job = client.plans.submit_apply(plan_id)
    assert server.done({"id": job.id})["state"] == "succeeded"
    undo = client.plans.submit_undo(plan_id)
    assert server.done({"id": undo.id})["state"] == "succeeded"
    assert client.plans.get(plan_id).state is PlanState.UNDONE


def test_an_unattended_apply_needs_a_profile_that_allows_it(server: PlanServer, client: Client) -> None:
    asks = done(client, profile="supervised", apply=None)
    with pytest.raises(NeedsHuman, match="the profile allows only a person to apply the result"):
        client.plans.submit_apply(asks, unattended=True)
    assert client.plans.get(asks).state is PlanState.COMPLETE
    unchecked = done(client, apply=None, checks=["test -e other.txt"])
    (server.repository / "other.txt").write_text("mine\n")  # so the check passes on the merged files
    job = client.plans.submit_apply(unchecked, unattended=True)
    assert server.done({"id": job.id})["state"] == "succeeded"
    assert (server.repository / "new.txt").read_text() == "hello\n"


def test_an_unattended_apply_of_a_plan_for_review_is_refused(client: Client) -> None:
    reserved = done(client, profile="full-auto", apply="review")
    with pytest.raises(NeedsHuman, match="the plan is for review: only a person applies the result"):
        client.plans.submit_apply(reserved, unattended=True)
    assert client.plans.get(reserved).state is PlanState.COMPLETE


ASKS = """\
name: tests/asks-twice
type: graph
state:
  colour: {type: string}
  size: {type: string}
entry: colour
nodes:
  colour: {type: human, question: "Which colour?", output: colour, next: size}
  size: {type: human, question: "Which size?", output: size, next: write}
  write: {type: tool, tool: write, with: {path: told.txt, content: "${colour} ${size}"}, next: end}
"""


def test_an_answer_without_a_name_is_taken_as_the_first_or_to_what_is_pending(client: Client) -> None:
    running = client.plans.create(command("sleep 99"))
    with pytest.raises(PlanError, match="no question is pending"):
        client.plans.answer(running.id, "red", first=True)
    client.plans.cancel(running.id)
    request = PlanRequest(goal="ask", actor_yaml=ASKS, resource="shop", profile="full-auto", apply="review")
    plan = client.plans.wait(client.plans.create(request).id, timeout=60)
    assert plan.needs == "question"
    client.plans.answer(plan.id, "red", first=True)
    client.plans.wait(plan.id, timeout=60)
    with pytest.raises(PlanError, match="name the `question` that you answer"):
        client.plans.answer(plan.id, "blue", first=True)
    client.plans.answer(plan.id, "large")
    plan = client.plans.wait(plan.id, timeout=60)
    assert client.plans.file(plan.id, "told.txt").content == "red large"


def test_a_result_that_changed_since_it_was_seen_is_not_applied_discarded_or_rolled_back(
    server: PlanServer, client: Client
) -> None:
    seen = client.plans.get(done(client))
    client.plans.rollback(seen.id, 1)
    client.plans.resume(seen.id)
    now = client.plans.wait(seen.id, timeout=60)
    assert (now.state, now.version) != (seen.state, seen.version)
    plans = client.plans
    for act in (plans.apply, plans.submit_apply, plans.discard, partial(plans.rollback, checkpoint=1)):
        with pytest.raises(StalePlan):
            act(seen.id, version=seen.version)
    assert len(plans.get(seen.id).calls) == len(now.calls)
    assert not (server.repository / "new.txt").exists()
    assert client.plans.apply(seen.id, version=now.version).state is PlanState.APPLIED


@pytest.mark.parametrize("change", ["review", "rollback", "capture"])
def test_a_result_that_changed_within_a_version_is_not_applied(
    server: PlanServer, client: Client, change: str
) -> None:
    seen = client.plans.get(done(client, "echo one > one.txt; echo two > two.txt"))
    if change == "review":
        client.plans.review(seen.id, reject=["one.txt"])
    elif change == "rollback":
        client.plans.rollback(seen.id, 1)
        (Path(str(seen.sandbox)) / "one.txt").write_text("another\n")
        client.plans.capture(seen.id)
    else:
        (Path(str(seen.sandbox)) / "one.txt").write_text("another\n")
        client.plans.capture(seen.id)
    now = client.plans.get(seen.id)
    assert now.version == seen.version
    assert now.tree != seen.tree
    for act in (client.plans.apply, client.plans.submit_apply):
        with pytest.raises(ResultChanged):
            act(seen.id, version=seen.version, tree=seen.tree)
    assert not (server.repository / "two.txt").exists()
    assert not (server.repository / "one.txt").exists()
    assert client.plans.apply(seen.id, tree=now.tree).state is PlanState.APPLIED


def test_a_diff_names_the_result_that_it_shows(server: PlanServer, client: Client) -> None:
    plan_id = done(client, "echo one > one.txt; echo two > two.txt")
    seen = client.plans.diff(plan_id)
    assert seen.tree == client.plans.get(plan_id).tree
    client.plans.review(plan_id, reject=["one.txt"])
    with pytest.raises(ResultChanged):
        client.plans.apply(plan_id, tree=seen.tree)
    now = client.plans.diff(plan_id)
    assert (now.tree, [file.accepted for file in now.files]) != (seen.tree, [True, True])
    assert client.plans.apply(plan_id, tree=now.tree).state is PlanState.APPLIED
    assert not (server.repository / "one.txt").exists()


def test_a_result_is_published_on_a_branch_of_a_git_remote_only(
    client_of: ClientOf, client: Client, tmp_path: Path
) -> None:
    with pytest.raises(RequestRefused, match="does not push from its own directories"):
        client.plans.publish(done(client))
    remote, admin = new_remote(tmp_path, {"README.md": "colour\n"}), client_of("admin")
    tip = remote.tip()
    admin.resources.add("published", "team", remote=remote.address.url)
    try:
        plan_id = done(client, resource="published")
        with pytest.raises(RequestRefused, match="choose another name"):
            client.plans.publish(plan_id, branch="main")
        with pytest.raises(NotAllowed):
            client_of("viewer").plans.publish(plan_id)
        made = client.plans.publish(plan_id)
        assert (made.plan, made.base, made.branch) == (plan_id, "main", f"agents/{plan_id}")
        assert (made.commit, made.url) == (remote.tip(made.branch), None)
        assert (remote.text("new.txt", made.branch), remote.tip()) == ("hello", tip)
    finally:
        admin.resources.remove("published")


def test_a_result_is_discarded_once(client: Client) -> None:
    plan_id = done(client)
    assert client.plans.discard(plan_id).state is PlanState.REJECTED
    with pytest.raises(PlanError):
        client.plans.apply(plan_id)
    with pytest.raises(PlanError):
        client.plans.undo(plan_id)


def test_a_pending_request_is_approved_or_denied(client: Client) -> None:
    for allowed in (True, False):
        asked = {"pattern": "one", "replacement": "ONE"}
        request = PlanRequest(action="builtin/replace", arguments=asked, resource="shop", profile="manual")
        plan = client.plans.wait(client.plans.create(request).id, timeout=60)
        assert (plan.state, plan.needs) == (PlanState.WAITING, "approval")
        answered = (client.plans.approve if allowed else client.plans.deny)(plan.id, call=1)
        assert answered.id == plan.id
        state = client.plans.wait(plan.id, timeout=60).state
        assert state is (PlanState.COMPLETE if allowed else PlanState.ERRORED)
        with pytest.raises(PlanError):
            client.plans.approve(plan.id)


def test_a_plan_that_takes_too_long_is_cancelled(client: Client) -> None:
    plan = client.plans.create(command("sleep 99"))
    with pytest.raises(DeadlineExceeded):
        client.plans.wait(plan.id, timeout=0.2)
    client.plans.cancel(plan.id, reason="enough")
    plan = client.plans.wait(plan.id, timeout=60)
    assert plan.state is PlanState.CANCELLED
    assert plan.error is not None
    assert "enough" in plan.error
    client.plans.remove_sandbox(plan.id)
    assert client.plans.get(plan.id).sandbox is None


def test_a_paused_plan_is_resumed_and_repeats_the_call_in_progress(client: Client) -> None:
    script = "echo x >> made; echo begun; test -e .git/begun || { touch .git/begun; sleep 99; }"
    plan = client.plans.create(command(script))
    assert any("begun" in piece.text for piece in client.plans.watch(plan.id))
    assert "pause" in client.plans.get(plan.id).can
    client.plans.pause(plan.id)
    paused = client.plans.wait(plan.id, timeout=60)
    assert (paused.status, paused.needs) == (PlanStatus.PAUSED, None)
    assert "paused it; can be resumed" in paused.meaning
    assert [step.action for step in paused.steps] == ["plan.resume", "plan.cancel"]
    assert client.plans.pause(plan.id) == paused
    client.plans.resume(plan.id)
    assert client.plans.wait(plan.id, timeout=60).status is PlanStatus.READY
    assert "+x" in str(client.plans.diff(plan.id))
    with pytest.raises(PlanError, match=r"not running \(ready\)"):
        client.plans.pause(plan.id)


def test_a_cancel_drops_a_result_only_with_discard(client: Client) -> None:
    plan_id = done(client)
    with pytest.raises(PlanError, match="there is nothing to cancel") as caught:
        client.plans.cancel(plan_id)
    assert [remedy.action for remedy in caught.value.remedies] == ["plan.reject"]
    assert client.plans.cancel(plan_id, discard=True).state is PlanState.CANCELLED


def test_a_failed_plan_is_resumed(client: Client, server: PlanServer) -> None:
    plan_id = done(client, f"test -e {server.home}/there")
    assert client.plans.get(plan_id).state is PlanState.ERRORED
    assert client.plans.wait(client.plans.resume(plan_id).id, timeout=60).state is PlanState.ERRORED


def test_files_are_left_out_and_taken_in(client: Client) -> None:
    plan_id = done(client, "echo 1 > one; echo 2 > two")
    assert client.plans.review(plan_id, reject=["one"]).left_out == ("one",)
    assert [file.path for file in client.plans.diff(plan_id).files if file.accepted] == ["two"]
    assert b"one" not in client.plans.patch(plan_id)
    assert client.plans.review(plan_id, accept=["."]).left_out == ()
    with pytest.raises(RequestRefused):
        client.plans.review(plan_id)


def test_hunks_are_left_out_and_taken_in(client: Client, server: PlanServer) -> None:
    (server.repository / "many.txt").write_text("".join(f"{n}\n" for n in range(1, 31)))
    git(server.repository, "add", "many.txt")
    git(server.repository, "commit", "-qm", "many lines")
    changes = "sed -i -e s/^2$/two/ -e s/^28$/twenty-eight/ many.txt; echo 1 > made.txt"
    plan_id = done(client, changes, checks=["! grep -q twenty-eight many.txt"])
    made, many = client.plans.diff(plan_id).files
    assert [hunk.id for hunk in made.hunks] == [None]
    assert [(hunk.number, hunk.accepted) for hunk in many.hunks] == [(1, True), (2, True)]
    second = str(many.hunks[1].id)
    plan = client.plans.review(plan_id, reject_hunks=[second])
    assert plan.left_out == ("many.txt, the hunk at lines 25-30",)
    assert [hunk.accepted for hunk in client.plans.diff(plan_id).files[1].hunks] == [True, False]
    patch = client.plans.patch(plan_id)
    assert (b"+two" in patch, b"+twenty-eight" in patch) == (True, False)
    after, accepted = (client.plans.file(plan_id, "many.txt", side=side) for side in ("after", "accepted"))
    assert after.content.replace("twenty-eight", "28") == accepted.content != after.content
    assert client.plans.review(plan_id, reject=["made.txt"]).left_out[0] == "made.txt"
    assert client.plans.file(plan_id, "made.txt", side="accepted").exists is False
    client.plans.review(plan_id, accept=["made.txt"])
    with pytest.raises(CheckFailed):
        client.plans.apply(client.plans.review(plan_id, accept_hunks=[second]).id)
    client.plans.review(plan_id, reject_hunks=[second])
    applied = client.plans.apply(plan_id)  # the check passes on the accepted tree
    assert applied.state is PlanState.APPLIED
    text = (server.repository / "many.txt").read_text()
    assert ("two\n" in text, "\n28\n" in text) == (True, True)

    plan_id = done(client, "sed -i s/^5$/five/ many.txt")
    (only,) = client.plans.diff(plan_id).files[0].hunks
    assert client.plans.review(plan_id, reject_hunks=[str(only.id)]).changes == ()
    assert [file.accepted for file in client.plans.diff(plan_id).files] == [False]
    assert client.plans.review(plan_id, accept_hunks=[str(only.id)]).left_out == ()
    client.plans.review(plan_id, reject_hunks=[str(only.id)])
    assert client.plans.review(plan_id, accept=["."]).left_out == ()
    with pytest.raises(PlanError, match="no hunk"):
        client.plans.review(plan_id, reject_hunks=[second])


def test_the_verdict_on_a_hunk_lapses_when_its_file_changes(client: Client, server: PlanServer) -> None:
    (server.repository / "few.txt").write_text("1\n2\n")
    git(server.repository, "add", "few.txt")
    git(server.repository, "commit", "-qm", "few lines")
    plan_id = done(client, "echo one > few.txt")
    (hunk,) = client.plans.diff(plan_id).files[0].hunks
    plan = client.plans.review(plan_id, reject_hunks=[str(hunk.id)])
    assert plan.changes == ()
    (Path(str(plan.sandbox)) / "few.txt").write_text("uno\n")
    edited = client.plans.capture(plan_id)
    again = "few.txt, the hunk at lines 1-1: decide again, the file changed"
    assert ([change.path for change in edited.changes], edited.left_out) == (["few.txt"], (again,))
    with pytest.raises(PlanError, match="no hunk"):
        client.plans.review(plan_id, reject_hunks=[str(hunk.id)])
    with pytest.raises(NeedsHuman, match=r"accept or reject these hunks again: few\.txt") as caught:
        client.plans.apply(plan_id)
    assert [remedy.action for remedy in caught.value.remedies] == ["plan.diff", "plan.review", "plan.review"]
    assert (server.repository / "few.txt").read_text() == "1\n2\n"
    assert client.plans.review(plan_id, accept=["few.txt"]).left_out == ()
    assert client.plans.apply(plan_id).state is PlanState.APPLIED


def test_a_hunk_that_was_left_out_is_not_applied_after_another_verdict_on_its_file(
    client: Client, server: PlanServer
) -> None:
    lines = [f"{n}\n" for n in range(1, 61)]
    (server.repository / "many.txt").write_text("".join(lines))
    git(server.repository, "add", "many.txt")
    git(server.repository, "commit", "-qm", "many lines")
    plan_id = done(client, "sed -i -e s/^2$/two/ -e s/^30$/EVIL/ -e s/^58$/last/ many.txt")
    unwanted = client.plans.diff(plan_id).files[0].hunks[1]
    plan = client.plans.review(plan_id, reject_hunks=[str(unwanted.id)])
    file = Path(str(plan.sandbox)) / "many.txt"
    file.write_text(file.read_text().replace("last", "end"))
    client.plans.capture(plan_id)
    # A verdict on other lines does not decide about this hunk.
    first, second, _ = client.plans.diff(plan_id).files[0].hunks
    assert len(client.plans.review(plan_id, reject_hunks=[str(first.id)]).left_out) == 2
    with pytest.raises(NeedsHuman, match="accept or reject these hunks again"):
        client.plans.apply(plan_id)
    plan = client.plans.review(plan_id, reject_hunks=[str(second.id)])
    assert plan.left_out == ("many.txt, the hunk at lines 1-5", "many.txt, the hunk at lines 27-33")
    assert client.plans.apply(plan_id).state is PlanState.APPLIED
    wanted = [*lines[:57], "end\n", *lines[58:]]
    assert (server.repository / "many.txt").read_text() == "".join(wanted)


def test_comments_are_added_listed_and_answered(client: Client) -> None:
    plan_id = done(client, "printf 'one\\ntwo\\n' > new.txt")
    whole = client.plans.comment(plan_id, "and a changelog")
    lines = client.plans.comment(plan_id, "digits", path="new.txt", line=1, end_line=2)
    assert (whole.number, whole.path, whole.place, whole.outdated) == (1, None, "", False)
    assert (lines.place, lines.lines, lines.state.value) == ("new.txt:1-2", ("one", "two"), "open")
    assert client.plans.get(plan_id).open_comments == 2
    declined = client.plans.answer_comment(plan_id, 1, CommentState.DECLINED, reason="later")
    assert [(one.state.value, one.reason, one.call) for one in declined.answers] == [
        ("declined", "later", None)
    ]
    assert [*every(lambda after: client.plans.comments(plan_id, limit=1, after=after))] == [declined, lines]
    assert client.plans.get(plan_id).open_comments == 1
    with pytest.raises(UnknownComment):
        client.plans.answer_comment(plan_id, 9, CommentState.RESOLVED)
    with pytest.raises(UnknownFile):
        client.plans.comment(plan_id, "x", path="other.txt", line=1)
    for wrong in (
        {"path": "new.txt"},
        {"line": 1},
        {"path": "new.txt", "line": 2, "end_line": 3},
        {"path": "new.txt", "line": 1, "side": "before"},  # there was no such file
        {"blob": "0" * 40},
    ):
        with pytest.raises(RequestRefused):
            client.plans.comment(plan_id, "x", **wrong)
    with pytest.raises(PlanError, match="plan of fixed steps has no decisions"):
        client.plans.revise(plan_id, "again")


def test_a_comment_on_a_file_that_changed_after_its_diff_was_shown_is_refused(
    client: Client, server: PlanServer
) -> None:
    (server.repository / "many.txt").write_text("".join(f"{n}\n" for n in range(1, 31)))
    git(server.repository, "add", "many.txt")
    git(server.repository, "commit", "-qm", "many lines")
    plan_id = done(client, "sed -i -e 2d -e s/^28$/last/ many.txt")
    hunk = client.plans.diff(plan_id).files[0].hunks[0]
    plan = client.plans.review(plan_id, reject_hunks=[str(hunk.id)])
    (seen,) = client.plans.diff(plan_id).files  # its line numbers count the hunk that is left out
    new = client.plans.comment(plan_id, "why", path="many.txt", line=27, blob=seen.blob_after)
    removed = {"path": "many.txt", "line": 2, "side": "before", "blob": seen.blob_before}
    old = client.plans.comment(plan_id, "why", **removed)
    assert (new.lines, new.blob) == (("last",), seen.blob_after)
    assert (old.lines, old.blob) == (("2",), seen.blob_before)
    file = Path(str(plan.sandbox)) / "many.txt"
    file.write_text(file.read_text().replace("last", "end"))
    client.plans.capture(plan_id)
    with pytest.raises(StaleFile, match=r"many\.txt has changed since you saw it"):
        client.plans.comment(plan_id, "x", path="many.txt", line=27, blob=seen.blob_after)
    assert client.plans.comment(plan_id, "why", **removed).lines == ("2",)
    (now,) = client.plans.diff(plan_id).files
    assert client.plans.comment(plan_id, "x", path="many.txt", line=27, blob=now.blob_after).lines == ("end",)


def test_a_file_that_was_left_out_after_a_rebase_is_commented_on_as_the_diff_shows_it(
    client: Client, server: PlanServer
) -> None:
    (server.repository / "many.txt").write_text("".join(f"{n}\n" for n in range(1, 31)))
    git(server.repository, "add", "many.txt")
    git(server.repository, "commit", "-qm", "many lines")
    plan_id = done(client, "sed -i s/^28$/last/ many.txt")
    (server.repository / "many.txt").write_text("".join(f"{n}\n" for n in range(31)))
    client.plans.wait(client.plans.rebase(plan_id).id, timeout=60)
    client.plans.review(plan_id, reject=["many.txt"])
    (seen,) = client.plans.diff(plan_id).files
    assert (seen.accepted, seen.hunks[0].lines[3].old) == (False, 29)
    made = client.plans.comment(plan_id, "why", path="many.txt", line=29, blob=seen.blob_after)
    assert (made.lines, made.outdated) == (("last",), False)


def test_open_comments_are_sent_to_the_executor(server: PlanServer, client: Client) -> None:
    model = server.script(
        executes(
            answer(call("edit", path="told.txt", old="one", new="1")),
            answer(call("answer_comment", comment=1, resolution="resolved", reason="a digit")),
            says("done"),
            when={"first_user": "Changes to your result are requested"},
        ),
        executes(answer(call("write", path="told.txt", content="one\n")), says("done")),
        strategizes(steps({"title": "tell", "instructions": "tell"})),
        reviews(accept()),
    )
    request = PlanRequest(goal="tell", model=model, resource="shop", profile="full-auto", apply="review")
    plan = client.plans.wait(client.plans.create(request).id, timeout=60)
    assert "revise" in plan.can, plan.error
    client.plans.comment(plan.id, "a digit", path="told.txt", line=1)
    plan = client.plans.wait(client.plans.revise(plan.id, "shortly").id, timeout=60)
    assert (plan.state, plan.open_comments) == (PlanState.COMPLETE, 0)
    (comment,) = client.plans.comments(plan.id).items
    assert (comment.outdated, comment.revision, comment.answers[0].reason) == (True, 1, "a digit")
    assert client.plans.call(plan.id, comment.answers[0].call or 0).tool == "edit"
    with pytest.raises(PlanError, match="no open comment"):
        client.plans.revise(plan.id)


def test_a_failed_revision_is_withdrawn(server: PlanServer, client: Client) -> None:
    model = server.script(
        executes(
            answer(call("edit", path="told.txt", old="one", new="1")),
            answer(fault={"status": 400}),
            when={"first_user": "Changes to your result are requested"},
        ),
        executes(answer(call("write", path="told.txt", content="one\n")), says("done")),
        strategizes(steps({"title": "tell", "instructions": "tell"})),
        reviews(accept()),
    )
    request = PlanRequest(goal="tell", model=model, resource="shop", profile="full-auto", apply="review")
    plan = client.plans.wait(client.plans.create(request).id, timeout=60)
    with pytest.raises(PlanError, match="no unfinished revision"):
        client.plans.rollback(plan.id)
    patch = client.plans.patch(plan.id)
    plan = client.plans.wait(client.plans.revise(plan.id, "a digit").id, timeout=60)
    assert (plan.status.value, client.plans.patch(plan.id) != patch) == ("failed", True)
    assert [step.options for step in plan.steps if step.action == "plan.rollback"] == [{}]
    plan = client.plans.rollback(plan.id)
    assert (plan.status.value, client.plans.patch(plan.id)) == ("ready", patch)
    assert "apply" in plan.can
    assert "resume" not in plan.can
    assert (plan.answer, plan.open_comments) == ("done", 0)
    assert "a revision was withdrawn" in "".join(plan.held_back)


def test_a_patch_has_the_files_that_are_named(client: Client) -> None:
    plan_id = done(client, "mkdir -p in/it; echo 1 > in/it/one; echo 2 > two; mv a.txt z.txt")
    whole = client.plans.patch(plan_id)
    assert all(name in whole for name in (b"b/in/it/one", b"b/two", b"b/z.txt", b"a/a.txt"))
    many = [f"no/{number}" for number in range(30)]
    for names in (["in"], ["./in/it/"], ["in/it/one", "nothing", "../two"], ["in", *many]):
        assert b"in/it/one" in client.plans.patch(plan_id, paths=names)
        assert b"two" not in client.plans.patch(plan_id, paths=names)
    assert client.plans.patch(plan_id, paths=["nothing"]) == b""
    assert client.plans.patch(plan_id, paths=["."]) == whole
    assert b"rename from a.txt" in client.plans.patch(plan_id, renames=True)
    other = done(client, "echo 3 > two; echo 4 > three")
    compared = client.plans.compare_patch(plan_id, other, paths=["two"])
    assert (b"-2\n+3" in compared, b"three" in compared, b"z.txt" in compared) == (True, False, False)
    assert b"rename from z.txt" in client.plans.compare_patch(plan_id, other, renames=True)
    assert client.plans.compare_patch(plan_id, other, paths=["elsewhere"]) == b""


def test_the_calls_and_decisions_of_a_plan_are_shown(client: Client) -> None:
    plan_id = done(client)
    (call,) = client.plans.calls(plan_id).items
    assert client.plans.call(plan_id, call.number) == call
    assert str(client.plans.diff(plan_id)).endswith("+hello")
    assert client.plans.patch(plan_id).startswith(b"diff --git a/new.txt b/new.txt")
    assert client.plans.file(plan_id, "new.txt").content == "hello\n"
    assert client.plans.file(plan_id, "new.txt", side="before").exists is False
    assert client.plans.budget(plan_id).plan == plan_id
    assert client.plans.decisions(plan_id).next is None
    assert client.plans.compare(plan_id, plan_id).files == ()
    assert client.plans.compare_patch(plan_id, done(client, "true")) != b""
    with pytest.raises(UnknownCheckpoint):
        client.plans.call(plan_id, 99)
    with pytest.raises(UnknownDecision):
        client.plans.decision(plan_id, 99)
    with pytest.raises(UnknownFile) as caught:
        client.plans.file(plan_id, "other")
    assert caught.value.path == "other"


def test_a_sandbox_is_rolled_back_and_captured(client: Client) -> None:
    plan_id = done(client)
    assert client.plans.rollback(plan_id, 1).changes == ()
    assert client.plans.capture(plan_id).changes == ()
    assert client.plans.conflicts(plan_id).items == ()
    with pytest.raises(UnknownCheckpoint):
        client.plans.rollback(plan_id, 99)


@pytest.mark.parametrize("name", ["NOSUCH", "X/budget", "../users", "", "\udcff"])
def test_a_name_of_no_plan_leads_nowhere(client: Client, name: str) -> None:
    with pytest.raises(UnknownPlan) as caught:
        client.plans.get(name)
    assert caught.value.plan_id == name


def test_a_plan_with_changes_is_deleted_by_force_only(client: Client) -> None:
    plan_id = done(client)
    with pytest.raises(NeedsHuman):
        client.plans.delete(plan_id)
    client.plans.delete(plan_id, force=True)
    with pytest.raises(UnknownPlan) as caught:
        client.plans.get(plan_id)
    assert caught.value.plan_id == plan_id


def test_a_wrong_request_creates_nothing(client: Client) -> None:
    before = client.plans.list().items
    with pytest.raises(UnknownResource):
        client.plans.create(command("true", resource="nothing"))
    with pytest.raises(RequestRefused):
        client.plans.create(command("true", limits=Limits(tokens=5)))
    assert client.plans.list().items == before


def test_a_viewer_reads_and_changes_nothing(client: Client, client_of: ClientOf) -> None:
    plan_id, viewer = done(client), client_of("viewer")
    assert viewer.plans.get(plan_id).id == plan_id
    acts = (viewer.plans.discard, viewer.plans.apply, viewer.plans.delete, viewer.plans.cancel)
    for act in (*acts, viewer.plans.rebase):
        with pytest.raises(NotAllowed):
            act(plan_id)
    with pytest.raises(NotAllowed):
        viewer.plans.create(command("true"))


def test_plans_are_found_by_their_goal_output_and_changes(server: PlanServer, client: Client) -> None:
    spoken = done(client, "echo a-Quince-tree; echo changed > x", goal="Plant 100% trees_in a row")
    edited = server.parts.plans.get(spoken)
    assert client.plans.search("QUINCE-tree", limit=1)[0].plan.id == spoken
    (found,) = client.plans.search("100% trees_in", limit=1)
    assert [(match.place, match.text) for match in found.matches] == [("goal", edited.goal)]
    assert as_json(found) == server.get("/search", text="100% trees_in")["items"][0]
    assert client.plans.search("100_ trees") == ()  # wildcards are text
    assert client.plans.search("quince", project="nothing") == ()
    assert "changes" in {match.place for one in client.plans.search("> x") for match in one.matches}


def test_a_search_tells_nothing_about_masked_texts(server: PlanServer, client: Client) -> None:
    secret = "sk-proj-" + "Zq9T" * 10
    done(client, f"echo the key {secret}; echo {secret} > x")
    assert client.plans.search("Zq9TZq9T") == ()
    assert all(secret not in match.text for one in client.plans.search("the key") for match in one.matches)


def test_a_search_stays_in_the_projects_of_the_user(
    server: PlanServer, client_of: ClientOf, foreign: str
) -> None:
    made = client_of("admin").plans.create(command("true", resource=foreign, goal="A faraway persimmon"))
    assert made.id in {one.plan.id for one in client_of("admin").plans.search("persimmon")}
    assert client_of("viewer").plans.search("persimmon") == ()


@pytest.mark.parametrize("text", ["", " x ", "x" * 201])
def test_a_search_that_is_too_short_or_too_long_is_refused(client: Client, text: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        client.plans.search(text)
    assert refused.value.where == "text"
