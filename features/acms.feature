@tdd_issue @tdd_issue_7088
Feature: Context strategies run in parallel, and a failing one is refused for a while
  Many plans share one executor and its circuit breaker.
  The breaker counts exactly, and the executor accounts for every strategy.

  Scenario: Concurrent failures are all counted
    Given a circuit breaker that opens after 3 failures
    When 8 threads released by a breaker barrier each record 250 failures of "keyword"
    Then the circuit breaker counts 2000 failures in a row of "keyword"
    And the circuit breaker is open for "keyword"

  Scenario: Concurrent successes and failures leave the breaker in one of two states
    Given a circuit breaker that opens after 1 failure
    When a success and a failure of "keyword" are recorded from behind a breaker barrier 200 times
    Then each time the circuit breaker was open exactly if the failure came last

  Scenario: A slow success that was admitted before the breaker opened does not close it
    Given a circuit breaker that opens after 1 failure
    And a breaker permit for "keyword" is out
    When a failure of "keyword" is recorded by the circuit breaker
    And the breaker permit reports a success
    Then the circuit breaker is open for "keyword"

  Scenario: After the cool-down exactly one of many callers gets the trial
    Given a circuit breaker that opens after 1 failure
    And a failure of "keyword" is recorded by the circuit breaker
    And the circuit breaker has cooled down
    When 8 threads released by a breaker barrier ask for "keyword"
    Then exactly 1 of them gets a breaker permit

  Scenario: A hung strategy is abandoned and reported
    Given a strategy executor with 1 thread
    And a context strategy "good" that finds something
    And a context strategy "hung" that lets the time run out and never answers
    When the strategy executor runs them
    Then the strategy executor reports "good" as used
    And the strategy executor reports "hung" as late
    And closing the strategy executor names "hung" as still running
