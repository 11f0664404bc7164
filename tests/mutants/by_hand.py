"""Guards that are no statement or condition of their own: how each is deleted.

The key is the module and words of its mark; the value is what stands there, at or below the mark, and what
takes its place.
"""

from __future__ import annotations

__all__ = ["BY_HAND"]

_ENVIRONMENT = "processes/environment.py"
_GUARD = "processes/guard.py"
_TOOL_DIRECTORIES = "processes/program_lookup.py"
_USER_GIT = "apply/user_git.py"
_SPAWNED = "self._command = self._spawn(argv, passed)\n            self._child = self._command.pid"

BY_HAND: dict[tuple[str, str], tuple[str, str]] = {
    ("jobs/worker/lease.py", "does not renew an earlier one"): (
        " if held[attempt.job.id] == attempt.job.fence else None",
        "",
    ),
    ("server/routes/session.py", "secret is returned once"): ("shown_once(request)", "None"),
    ("server/routes/users.py", "the token is returned once"): ("shown_once(request)", "None"),
    ("storage/sql_idempotency_store.py", "whatever the response was"): (
        ", _ROWS.made.is_(None))",
        ",)",
    ),
    ("storage/sql_idempotency_store.py", "whatever the clock says"): (
        "max(claim.stamp, found.created_at + 1)",
        "claim.stamp",
    ),
    ("app/remote_parts.py", "may still use are not deleted"): ("known - used", "known"),
    ("api/conversations/plans.py", "masked before the cut"): ("redact_content_text(", "("),
    ("api/plans/diffs.py", "come from one read"): ("found.read or ", ""),
    ("plans/conflicts/resolution.py", "edits decide no other conflict"): (" if one.marked", ""),
    ("api/plans/details.py", "remote or not"): (
        "except (RemoteUnreachable, SandboxRefused) as away:",
        "except ZeroDivisionError as away:",
    ),
    ("cli/admin/serve.py", "a log, which others read"): (" and sys.stderr.isatty()", ""),
    ("config/logging.py", "does not count as shown"): ("sys.stderr.isatty() and not", "not"),
    ("cli/run/interruption.py", "hears no Ctrl-C"): ("_begun(view.say, f", "_begun(str); view.say(f"),
    ("api/publish.py", "say nothing about the repository"): (
        "known = self._heads(remote.targets[0]) if len(remote.targets) == 1 else []",
        "known = known or []",
    ),
    ("cli/prompts.py", "a file name or a commit of others"): ("printable(question)", "question"),
    ("cli/prompts.py", "as above"): ("printable(question)", "question"),
    ("plans/checks.py", "would not be recognized after the cut"): (
        "redact_text(result.output)",
        "result.output",
    ),
    ("protocols/acp_agent.py", "an unknown option decides nothing"): (
        "chosen if chosen in known else None",
        "chosen",
    ),
    ("protocols/mcp_server.py", "misspelt is no limit"): ('"forbid"', '"ignore"'),
    ("plans/apply_policy.py", "it quotes files"): (
        "redact_text(error.details)",
        "error.details",
    ),
    ("plans/apply.py", "only its journal knows the outcome"): (
        "plan.id not in self.applier.undecided()",
        "True",
    ),
    ("jobs/store/sql_job_store.py", "must not cost the others"): (
        "key_share=True, skip_locked=True",
        "key_share=True",
    ),
    ("plans/jobs/shared_jobs.py", "`settle` would skip it"): (
        "return parts.apply.taken_up(plan, _fence(job), watched.of(plan), job.token)",
        "parts.apply.settle()\n        return parts.plans.get(plan_id)",
    ),
    ("server/routes/library.py", "would cost money again"): (
        "except Unavailable as error:",
        "except ZeroDivisionError as error:",
    ),
    ("jobs/model/job.py", "as many attempts left"): ("attempt=job.attempt - 1", "attempt=job.attempt"),
    ("api/plans/local.py", "needs no secret of them"): (
        "not all(self._access.user.may(Role.OPERATOR, plan.project) for plan in plans)",
        "False",
    ),
    ("api/client.py", "not plans of others"): (
        "queues = (client_queue(self.access.container.home),)",
        "queues = parts.queues",
    ),
    ("api/plans/local.py", "others leave ours"): (
        "home_queue if self._start_worker is None else client_queue",
        "home_queue",
    ),
    ("api/actors.py", "no path of a server's user is listed"): (
        "PurePath(source).name",
        "source",
    ),
    ("sandboxes/tree/visible_git.py", "access is denied"): (
        '_drop(directory, ".git")',
        "pass",
    ),
    ("api/actors.py", "the home directory of a server's user"): (
        "PurePath(error.source).name",
        "error.source",
    ),
    ("api/plans/local.py", "needs no secret of it"): (
        "not self._access.user.may(Role.OPERATOR, plan.project)",
        "False",
    ),
    ("server/routes/session.py", "never outlives its token"): (
        "min(lasting, token.expires_at - now)",
        "lasting",
    ),
    ("jobs/worker/attempt_run.py", "not visible to the next"): (
        "copy_context().run(self._run, under_way, claims_next)",
        "self._run(under_way, claims_next)",
    ),
    ("jobs/store/claimable.py", "comes too late"): ("held[job.id] = move.job", "pass"),
    ("jobs/store/claimable.py", "waits for no row"): ("skip_locked=True", ""),
    ("jobs/store/sql_job_store.py", "waits for no locked one"): (", by_id=_UNHELD_BY_ID", ""),
    ("contrib/temporal/worker.py", "that timed out cancels nothing"): (
        "details is not None and details.cancel_requested",
        "details is not None",
    ),
    ("access/store/sql_user_store.py", "all users read it"): (
        "redact_text(kept_text(label))[:_LABEL_CHARACTERS]",
        "kept_text(label)[:_LABEL_CHARACTERS]",
    ),
    ("models/script_document.py", "reads a bounded part"): (
        "opened.read(SIZE_LIMIT_BYTES + 1)",
        "opened.read()",
    ),
    ("protocols/a2a_handler.py", "internals stay hidden"): ("except Fault:", "except RecursionError:"),
    ("protocols/mcp_server.py", "internals stay hidden"): ("except Fault:", "except RecursionError:"),
    ("protocols/acp_agent.py", "internals stay hidden"): ("except Fault:", "except RecursionError:"),
    ("protocols/agent_requests.py", "never logged unmasked"): (
        "logger.propagate = False",
        "logger.propagate = True",
    ),
    ("cli/plan/follow.py", "looked at twice"): (
        "self._rests(plan_id) and self._rests(plan_id)",
        "self._rests(plan_id)",
    ),
    ("api/transport.py", "the same key for every retry"): (
        '{"Idempotency-Key": key}',
        "{}",
    ),
    ("plans/apply_policy.py", "may have taken us for dead"): ("return True", "return False"),
    ("sandboxes/mirror.py", "never overwrite another push"): (
        'f"--force-with-lease={ref}:{expected}"',
        '"--force"',
    ),
    ("sandboxes/rows.py", "a newer row of another machine"): (
        "sandboxes.c.home.is_not_distinct_from(row.home)",
        "sandboxes.c.plan_id == row.plan_id",
    ),
    ("actors/external/agent_tool.py", "files, not a model"): ("return ()", "return (AGENT_TOOL,)"),
    ("models/calls.py", "made after the cancel"): (
        "reservation, _ = await reserving",
        "raise",
    ),
    ("plans/calls/tool_execution.py", "a read-only tool changes no file"): (
        "self.files_in(self.sandbox.root, refuse)",
        "self.files_in(self.sandbox.root, _nothing)",
    ),
    ("plans/calls/tool_execution.py", "prints its secrets by name"): (
        "redact_content(result) if of_files else redact(result)",
        "redact_content(result)",
    ),
    ("actors/graph/run_context.py", "an ended subgraph is counted once"): (
        "not any(task == task_id and channel == ACCOUNT for task, channel, _ in above.pending_writes or ())",
        "True",
    ),
    ("models/model/budget.py", "storing input in a cache"): (
        "max(self.input, self.cached or 0, self.cache_write or 0)",
        "self.input",
    ),
    ("actors/graph/run_context.py", "the most expensive model may"): (
        "max(0 if facts.price is None else facts.price.worst(self.usage) for facts in self.models)",
        "self.models[0].price.worst(self.usage)",
    ),
    ("context/index/view.py", "files that may be ignored"): (
        "sorted({*paths} - {*doubtful})",
        "paths",
    ),
    ("context/index/sqlite_code_index.py", "the caller waits for the answer"): (
        "replace(self.file, busy_seconds=_REMEMBER_SECONDS)",
        "self.file",
    ),
    ("actors/library.py", "a prompt decides what its actor"): ("trusted=all(trusted)", "trusted=True"),
    ("apply/exchange.py", "no link is followed"): (
        "_DIRECTORY,",
        "_DIRECTORY & ~os.O_NOFOLLOW,",
    ),
    ("apply/lock.py", "the lock is on the right one"): (
        "os.path.samestat(os.fstat(descriptor), resource.stat())",
        "True",
    ),
    ("sandboxes/tree/merge.py", "git's own default"): (
        'directory_renames="conflict"',
        'directory_renames="true"',
    ),
    ("apply/merge.py", "a file stays where its own side puts it"): (
        'directory_renames="false"',
        'directory_renames="true"',
    ),
    (_USER_GIT, "a program named by the repository"): ('"--no-show-signature", ', ""),
    (_USER_GIT, "the ref moves only from its expected"): ("new or none, old or none", "new or none"),
    (_ENVIRONMENT, "no command gets our token"): (" and not name.startswith(OWN_PREFIX)", ""),
    (_ENVIRONMENT, "neither a sandbox without a repository"): (
        '"GIT_CEILING_DIRECTORIES": os.pathsep.join(ceilings),',
        "",
    ),
    (_GUARD, "an object that is dropped would reap"): (
        _SPAWNED,
        "self._child = self._spawn(argv, passed).pid",
    ),
    ("processes/guarded_runner.py", "bubblewrap runs outside"): (
        'program["environment"] = markers',
        "...",
    ),
    (_TOOL_DIRECTORIES, "what a link in the sandbox names"): (
        "is_inside_spelled(program.parent, own) or ",
        "",
    ),
    ("processes/bubblewrap.py", "only our own PATH decides"): (
        'os.environ.get("PATH", os.defpath)',
        'environment["PATH"]',
    ),
    ("plans/agents/client.py", "the record may be cut"): (
        "{**arguments, **whole}",
        "arguments",
    ),
    (_TOOL_DIRECTORIES, "it may be a pipe by now"): (" | os.O_NONBLOCK", ""),
    ("actors/guidance/instructions.py", "its own end mark"): (
        '.replace(end, f"< /{AGENTS_FILE}>")',
        "",
    ),
    ("actors/guidance/skill_tool.py", "only files inside the skill's"): (
        "read_inside(Path(skill.folder), name)",
        "(Path(skill.folder) / name).read_bytes()",
    ),
    ("tools/mcp/tools.py", "an untrusted expression"): (
        '("pattern", "patternProperties")',
        '("patternProperties",)',
    ),
    ("tools/mcp/tool_list.py", "a stored refusal must not contain"): ("redact_text(text)", "text"),
    ("tools/mcp/connection.py", "include the token of our own server"): (
        "None if name.startswith(OWN_PREFIX) else variables.get(name)",
        "variables.get(name)",
    ),
    ("actors/external/acp/updates.py", "an agent may send text for ever"): ("[-_MOST_TEXT:]", ""),
    ("tools/mcp/tools.py", "a repository's server may claim"): (" and self.server.own", ""),
    ("git/plumbing.py", "adding a submodule runs git inside it"): (
        "self._gitlinks(index)",
        "()",
    ),
    ("git/git_directory.py", "one more than it should have"): ("size + 1", "1 << 62"),
    ("git/user_repository.py", "any directory may be named there"): (
        " and is_object_store(store) and not is_inside(store, secret)",
        "",
    ),
    ("models/model_wrappers.py", "decided here, even if"): ("waiter.granted = True", "..."),
    ("models/tokens.py", "it only grows"): (
        "max(self._factor, counted / estimate_request(request))",
        "counted / estimate_request(request)",
    ),
    ("api/plans/hints.py", "agents write the commands of other plans"): (
        "access.is_owner and plan.parent_id is None",
        "access.is_owner",
    ),
    ("cli/init.py", "another server does not get the key"): ('place["key_variable"] = ""', "pass"),
    ("models/catalogue.py", "the key and the address belong"): (
        "opened if self._settings is settings else self._open(name)",
        "opened",
    ),
    ("plans/comments.py", "a replayed run undoes no"): (
        "any(each.created_at >= since and each.made.by_actor for each in one.answers)",
        "False",
    ),
    ("plans/comments.py", "a file that is gone may have been renamed"): (
        "before == 1 and now == 0 and versions[1].get(anchor.path) is not None",
        "now == 0",
    ),
    ("plans/cleanup.py", "the threads of a session"): (" if parts[1:2] not in _OF_SESSIONS", ""),
    ("sandboxes/private_clone.py", "a link could expose files outside"): (
        'read_file(repository.common_dir, path) or b""',
        "file.read_bytes() if (file := repository.common_dir / path).exists() else b''",
    ),
    ("actors/graph/llm_node.py", "a truncated answer is not"): (
        '(None, "the answer was cut off; be brief") if reply.cut_off else (text, "")',
        '(text, "")',
    ),
    ("actors/external/acp/session.py", "secrets passed to the agent are masked"): (
        "mask_for(request.environment, os.environ, place.secrets)",
        "mask_for((), os.environ, place.secrets)",
    ),
    ("core/text/redaction.py", "cut in two is still a value"): (
        "value_begins(text, values, self._told)",
        "len(text)",
    ),
    ("processes/guarded_runner.py", "passed secrets stay secret"): (
        "on_output, mask)",
        "on_output)",
    ),
    ("plans/apply_policy.py", "a person decides about a partial result"): (
        "wanted and not objections",
        "wanted",
    ),
    ("sandboxes/resources.py", "no link leads out"): (
        "open_directory(here, part)",
        "os.open(part, os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)",
    ),
    ("core/text/control_characters.py", "no two names have the same spelling"): (
        """path if spelt == path else f'"{spelt}"'""",
        "spelt",
    ),
    ("core/cancellation.py", "foreign text is not mistaken for ours"): (
        """f'"{reason}"' if is_resumable_stop(reason) else reason""",
        "reason",
    ),
}
