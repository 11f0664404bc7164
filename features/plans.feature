Feature: Plans change real repositories, and lose nothing
  A plan works in its own sandbox. Its changes are recorded, reviewed, and applied all or nothing.
  Each scenario shows one promise of the specification, in a real repository with real processes.

  Background:
    Given a repository with uncommitted work, a stash and a hook

  Scenario: G1: before it is applied, a plan writes nothing outside its sandbox
    When a plan's command edits files, stashes, commits, forces a branch and sets hooks and configuration
    Then the plan is "execute/complete"
    And nothing of the user's repository has changed

  Scenario: G2: every change is recorded once, under the call that made it
    When a plan writes a file, runs a command that edits two others, and deletes one
    Then its calls have recorded 1, 2 and 1 changes, each in a changeset of its own
    And what they recorded is what the difference shows

  Scenario: G3: the user's edits elsewhere in the same file stay
    Given a plan that replaced "colour" by "color"
    When the user edits another line of the same file
    And the plan is applied
    Then the file has both changes
    And the index, the stash, the branches, the hooks and the configuration are as they were

  Scenario: G3: a conflict with the user's edit refuses the whole apply
    Given a plan that replaced "colour" by "color"
    When the user edits the same line
    And the plan is applied
    Then a human is needed, and "paint.py" is named with both sides
    And no file was touched by it
    And the plan is "apply/constrained"

  Scenario: G3: an applied plan is undone, and later work stays
    Given a plan that replaced "colour" by "color"
    When the plan is applied
    And the user edits another line of the same file
    And the plan is undone
    Then only the user's edit is left

  Scenario: G4: a cancelled plan leaves no process behind
    Given a plan whose command starts processes that ignore SIGTERM, detach and fork twice
    When it is cancelled from elsewhere
    Then the plan is "execute/cancelled"
    And none of its processes is alive
    And a second cancel says that it was already cancelled

  Scenario: G5: ended plans leave nothing in the repository
    Given 3 plans that were applied, rejected and cancelled
    When they are deleted
    Then the repository has the references and worktrees that it had before
    And no sandbox is left

  Scenario: G6: a killed plan continues and repeats nothing
    Given a plan whose process is killed in the middle of its command
    When it is resumed
    Then its result is there once
    And the plan is "execute/complete"

  Scenario: G11, G12: many plans at once on one repository
    When 5 processes run a plan each at the same time
    Then every one is "execute/complete", and nobody was told that something is locked
    When what can be cleaned up is cleaned up
    Then every one still has its result

  Scenario Outline: G13: a check that did not pass is never a success
    When a plan with the check "<check>" is to be applied without asking
    Then a human is needed, and the check is told as "<verdict>"
    And no file was touched by it

    Examples:
      | check           | verdict |
      | exit 1          | failed  |
      | no-such-program | not run |

  Scenario: G14: secrets of the environment reach no command, and printed secrets reach no record
    When a plan's command prints its environment and a key of known shape
    Then neither is shown, and neither is in the database
