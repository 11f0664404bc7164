Feature: Every change is recorded in the changeset of its call
  Several nodes of a plan share one execution context. A change is recorded in
  the changeset of its own node, or refused, whatever runs concurrently.

  @tdd_issue @tdd_issue_7120
  Scenario: Nodes that start and record at the same time keep their changes apart
    Given a plan execution context shared by 8 nodes
    When at a barrier every node starts a changeset and records 25 changes without naming it
    Then every changeset holds exactly the 25 changes of its own node, numbered without a gap

  @tdd_issue @tdd_issue_7120
  Scenario: A change recorded during another node's start never goes to the new changeset
    Given a plan execution context with one active changeset
    When 50 times at a barrier one thread starts a changeset while another records without a handle
    Then each of those changes is in the changeset that was there before, or was refused as ambiguous

  @tdd_issue @tdd_issue_7120
  Scenario: Without an active changeset recording is refused
    Given a plan execution context shared by 1 nodes
    When a change is recorded without a changeset
    Then recording a change is refused with a plan error that says to call start_changeset

  Scenario: A changeset that is sealed while changes are recorded counts what it holds
    Given a plan execution context with one active changeset
    When at a barrier one thread closes the changeset while 4 threads record changes into it
    Then the sealed changeset holds exactly the changes that were acknowledged
