Feature: Background jobs
  A job has one owner at a time, is never lost, and is reported with its real outcome.

  Background:
    Given a job worker on an empty job store

  Scenario: A job runs and keeps its result
    When a job that returns 42 is submitted
    Then the job is succeeded with the result 42

  Scenario: A failing job is retried and then has its error
    When a job that always fails is submitted with 2 attempts
    Then the job is failed after attempt 2
    And the error of the job names "it never works"

  Scenario: A result that is not JSON is a failure
    When a job that returns an object is submitted
    Then the job is failed after attempt 1
    And the error of the job names "not a JSON value"

  Scenario: Cancel means cancelled, for the whole tree of processes
    When a job that grows a tree of deaf processes is running
    And the job is cancelled
    Then the job is cancelled
    And no process of the job is alive
    And a second cancel of the job says that it has ended, and changes nothing

  Scenario: A peer takes a dead worker's job at once
    Given a job that a worker claimed before it died
    Then the job is succeeded with the result 42
    And the job needed 2 attempts

  Scenario: A worker that lost its lease is refused
    Given a job that a peer has taken from its silent owner
    When the job's old owner wants to finish the job
    Then the old owner of the job is refused, and the job is still the peer's

  Scenario: A drained worker returns unfinished jobs
    When a job that waits for its cancel is running
    And the job worker is closed
    Then the job is queued again
