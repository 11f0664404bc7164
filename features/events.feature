Feature: Events reach every subscriber in one order
  Handlers subscribe and unsubscribe while others emit. No handler misses an event, and none runs after its end.

  @tdd_issue @tdd_issue_7052
  Scenario: Concurrent emits and subscriptions corrupt and miss nothing
    Given an event bus with one inline and one ordered handler
    When 8 threads emit 200 events each on the event bus and subscribe in between
    Then the event bus's handlers each got every event exactly once
    And the event bus's audit log is gapless and in the order of its numbers
    And the event bus's ordered handler saw that very order

  @tdd_issue @tdd_issue_7052
  Scenario: A handler does not run after its unsubscribe has returned
    Given an event bus that 4 threads keep emitting on
    When the event bus's handler is unsubscribed in the middle
    Then the event bus never calls that handler again

  @tdd_issue @tdd_issue_7052
  Scenario: Reading the audit log during emits always gives a prefix of it
    Given an event bus that 4 threads keep emitting on
    When the event bus's audit log is read 200 times
    Then every reading of the event bus's audit log was gapless

  @tdd_issue @tdd_issue_7052
  Scenario: A slow handler or a lock of the application blocks no emitter
    Given an event bus whose handler takes a lock of the application
    When one thread emits while another emits under that lock
    Then both threads of the event bus come to their end

  Scenario: A failing handler does not affect others
    Given an event bus with a handler that raises and one that does not
    When 10 events go over the event bus
    Then the event bus's good handler got 10 events
    And the event bus counted 10 failures

  Scenario: An unknown type of event is refused with a hint
    Given an event bus with one inline and one ordered handler
    When somebody subscribes on the event bus to "job.claimd"
    Then the event bus refuses it and suggests "job.claimed"

  Scenario: The durable audit log names tampered events
    Given an event bus whose audit log is kept in a database
    And 5 events were emitted durably on the event bus
    When row 3 of the event bus's kept log is altered in the database
    Then verifying the event bus's kept log names row 3
