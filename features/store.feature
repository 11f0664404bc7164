Feature: Acknowledged writes are durable
  Many processes write to one database at once. No user sees a lock, nothing is lost, and a file
  that is not a database is refused with a remedy.

  Scenario: Concurrent writes of several processes are all stored
    Given the store is a fresh database
    When 3 store processes write 50 rows each at once
    Then the store holds all 150 rows

  Scenario: An acknowledged write survives its process
    Given the store is a fresh database
    When a store process is killed right after it was told that its row is kept
    Then the store holds that row

  Scenario: A job goes to one worker, and a stale one is refused
    Given the store is a fresh database
    And the store has a job that worker "ann" has claimed
    When the store takes the job back because "ann" is silent
    And worker "bob" claims the store's job
    Then the store refuses what "ann" writes under her old fence
    And the store accepts the end of the job from "bob"

  Scenario Outline: A file that is not a database is refused with a remedy
    Given the store's path is <what>
    When the store is opened
    Then the store says "<words>"

    Examples:
      | what                       | words              |
      | a text file                | not a database     |
      | a directory                | is a directory     |
      | a database of a newer kind | upgrade            |
      | another program's database | another program    |
