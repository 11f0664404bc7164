Feature: Relevant code is found within a deadline and a budget, whatever fails
  The context pipeline runs strategies in parallel and trusts none of them.
  It always answers, and reports the outcome of each strategy.

  Scenario: The answer shows the best file within its budget and names its strategy
    Given a repository for the context pipeline
    And a strategy of the context pipeline "words" that finds "src/basket.py"
    When the context pipeline is asked with a budget of 400 tokens
    Then the context answer shows "def add(self, thing):"
    And the context answer takes at most 400 tokens
    And the context answer says that "words" was used
    And the context answer says that "words" found "src/basket.py"

  Scenario: There is an answer even if every strategy fails
    Given a repository for the context pipeline
    And a strategy of the context pipeline "broken" that raises
    And a strategy of the context pipeline "hung" that hangs
    And a strategy of the context pipeline "liar" that gives garbage
    When the context pipeline is asked with a budget of 400 tokens
    Then the context answer came while what hangs still hangs
    And the context answer says that "broken" was failed
    And the context answer says that "hung" was late
    And the context answer takes at most 400 tokens

  Scenario: A strategy that keeps failing is skipped for a while
    Given a repository for the context pipeline
    And a strategy of the context pipeline "broken" that raises
    When the context pipeline is asked 4 times
    Then the context answer says that "broken" was breaker_open
    When the context pipeline is asked again after the breaker has cooled down
    Then the context answer says that "broken" was failed

  Scenario: A replaced component misbehaves, and the built-in one is used
    Given a repository for the context pipeline
    And a strategy of the context pipeline "words" that finds "src/basket.py"
    And the packer of the context pipeline is replaced by one that raises
    When the context pipeline is asked with a budget of 400 tokens
    Then the context answer shows "def add(self, thing):"
    And the context answer notes "the configured packer failed"

  Scenario: There is an answer, with a note, if the index cannot be opened
    Given a repository for the context pipeline whose index cannot be opened
    And a strategy of the context pipeline "words" that finds "src/basket.py" in the code
    When the context pipeline is asked 4 times
    Then the context answer notes "the code could not be opened"
    And the context answer says that "words" was cancelled
    When the context pipeline is asked about another repository
    Then the context answer says that "words" found "src/basket.py"

  Scenario: No secret of a file is shown
    Given a repository for the context pipeline with a secret in "src/pay.py"
    And a strategy of the context pipeline "words" that finds "src/pay.py"
    When the context pipeline is asked with a budget of 400 tokens
    Then the context answer shows "TOKEN = "
    And the context answer does not show the secret

  Scenario: A missing directory is an error, and so is an empty question
    Given a repository for the context pipeline that is not there
    Then asking the context pipeline is refused
    And asking the context pipeline nothing is refused
