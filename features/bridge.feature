Feature: Graph runs on the bridge
  Messages become graph runs on a loop that the bridge owns.
  Concurrent creation and cleanup lose no task and leak none.

  @tdd_issue @tdd_issue_7105
  Scenario: Tasks created by many threads at once are all tracked and all end
    Given a graph bridge over an incrementing graph
    When 8 threads create 25 bridge tasks each at the same moment
    Then every bridge task has answered with its own result
    And the bridge tracks no task

  @tdd_issue @tdd_issue_7105
  Scenario: A task is tracked before its creation returns
    Given a graph bridge over a graph that waits
    When one bridge task is created
    Then the bridge tracks that task

  @tdd_issue @tdd_issue_7105
  Scenario: Clean-up while other threads create tasks
    Given a graph bridge over a graph that waits
    When 8 threads create 25 bridge tasks each while another thread cleans the bridge up
    And the bridge is cleaned up once more
    Then every bridge task was cancelled
    And the bridge tracks no task

  @tdd_issue @tdd_issue_7105
  Scenario: Clean-up from an event loop while other threads create tasks
    Given a graph bridge over a graph that waits
    When 8 threads create 25 bridge tasks each while an event loop cleans the bridge up
    And the bridge is cleaned up once more
    Then every bridge task was cancelled
    And the bridge tracks no task

  @tdd_issue @tdd_issue_7105
  Scenario: Closing while other threads create tasks
    Given a graph bridge over a graph that waits
    When 8 threads create 25 bridge tasks each while another thread closes the bridge
    Then every bridge task was cancelled or refused
    And the bridge tracks no task
    And the bridge has no thread

  Scenario: Failures are messages
    Given a graph bridge over a graph that fails
    When one bridge task is created
    Then the bridge task answers with an error that names the problem
