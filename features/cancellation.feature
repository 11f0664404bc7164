Feature: Cancellation
  Work is asked to stop through a cancellation token.
  A cancel is never lost, whichever resets, registrations or closes happen at the same moment.

  @tdd_issue @tdd_issue_7166
  Scenario: A concurrent reset does not remove a run's cancel
    Given a cancellation token that 4 runs hold a view of
    When 2 threads cancel the token and 2 threads reset it at once, 200 times over
    Then every run has seen the token's first cancel
    And as many cancels of the token have won as generations of it have ended

  @tdd_issue @tdd_issue_7166
  Scenario: A waiter wakes by its cancel, however soon the reset follows
    Given a cancellation token that 4 runs hold a view of
    When each run waits for the token while it is cancelled and at once reset
    Then every run's wait for the token has returned True
    And the cancellation token itself is ready for the next run

  Scenario: The first reason stays
    Given a cancellation token
    When the token is cancelled because of "the user"
    And the token is cancelled because of "a timeout"
    Then the first cancel of the token has won and the second has not
    And the cancellation token's reason is "the user"

  Scenario: A child is cancelled with its parent, never the other way
    Given a cancellation token with two children
    When the token's first child is cancelled
    Then the cancellation token and its second child are not cancelled
    When the token is cancelled because of "shutdown"
    Then the token's second child is cancelled because of "shutdown"

  Scenario: A child created during its parent's cancel is cancelled
    Given a cancellation token
    When children of the token are made at the moment of its cancel, 200 times over
    Then every such child of the token is cancelled

  Scenario: A callback runs once, or closing its registration prevented it
    Given a cancellation token
    When the token's callbacks are closed at the moment of its cancel, 200 times over
    Then each callback of the token ran once or was prevented, never both

  Scenario: A task on an event loop is woken from another thread
    Given a cancellation token
    When a task awaits the token and another thread cancels and resets it
    Then the task awaiting the token has gone on
