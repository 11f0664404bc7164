Feature: The command line
  Results go to stdout, everything else to stderr, and the exit code is meaningful.
  An error comes with a remedy, never with a traceback.

  Background:
    Given the command line has a fresh home

  Scenario: Settings come from layers, and the stronger one wins
    When the command line runs "config set log.level info"
    Then the command line ends with 0
    And the command line shows "log.level" as "info" from "file"
    When the command line finds "debug" in the environment variable "CLEVERAGENTS_LOG_LEVEL"
    Then the command line shows "log.level" as "debug" from "environment"

  Scenario: A repository may tighten but not loosen
    Given the command line is in a repository whose file says "[worker] concurrency = 2"
    Then the command line shows "worker.concurrency" as "2" from "repository"
    Given the command line is in a repository whose file says "[worker] concurrency = 200"
    Then the command line shows "worker.concurrency" as "4" from "default"

  Scenario: A repository may not redirect
    Given the command line is in a repository whose file says "[state] directory = '/tmp/elsewhere'"
    When the command line runs "config list"
    Then the command line ends with 2
    And the command line complains "a repository may not set state.directory"
    When the command line runs "config path"
    Then the command line ends with 0
    And the command line complains "invalid: "

  Scenario Outline: An unknown name is answered with the nearest known one
    When the command line runs "<command>"
    Then the command line ends with 2
    And the command line complains "<hint>"

    Examples:
      | command                            | hint                          |
      | dotcor                             | did you mean 'doctor'?        |
      | config get databse.url             | did you mean 'database.url'?  |
      | --set log.levle=info config list   | did you mean 'log.level'?     |
      | events tail --type job.canceled    | did you mean 'job.cancelled'? |

  Scenario: A password is always masked
    When the command line runs "--set database.url=postgresql://me:s3cret@h/db config get database.url"
    Then the command line ends with 0
    And the command line prints "postgresql://me:***@h/db"

  Scenario: Every exit code means something
    When the command line runs "events verify"
    Then the command line ends with 0
    When the command line runs "jobs show 01ARZ3NDEKTSV4RRFFQ69G5FAV"
    Then the command line ends with 2
    Given the command line has a database that is none
    When the command line runs "doctor"
    Then the command line ends with 1

  Scenario: Programs get JSON, on stdout and alone
    When the command line runs "doctor --format json"
    Then the command line ends with 0
    And the command line prints a JSON list

  Scenario: The doctor reports problems, and fixes them on request
    When the command line runs "events verify"
    And the command line runs "doctor"
    Then the command line ends with 0
    When the command line runs "doctor --fix --format json"
    Then the command line ends with 0
    And the command line prints a JSON list
