*** Settings ***
Documentation       One strategy executor and its circuit breaker, shared by concurrent pipeline invocations.
Library             AcmsLibrary
Test Teardown       Close The Executor

*** Test Cases ***
Concurrent Invocations Each Get Their Own Full Account
    Open An Executor    max_workers=4    failure_threshold=1000000
    Invoke Concurrently    invocations=8    times=25    strategies=good,empty,failing
    Every Invocation Reported    used,empty,failed
    Breaker Counts    good    successes=200    failures=0
    Breaker Counts    failing    successes=0    failures=200
    At Most Threads Were Started    4

Concurrent Invocations Agree That A Failing Strategy Is Refused
    Open An Executor    max_workers=4    failure_threshold=3
    Invoke Concurrently    invocations=8    times=25    strategies=good,failing
    Every Invocation Used    good
    Breaker Is Open For    failing
    Breaker Opened Once For    failing
    Calls Equal Admissions    failing

Hung Strategies Stop Nobody And Are Left Behind
    Open An Executor    max_workers=2    failure_threshold=1000000
    Leave A Hung Strategy Behind
    Leave A Hung Strategy Behind
    Invoke Concurrently    invocations=4    times=10    strategies=good
    Every Invocation Reported    used
    Executor Has Stragglers    2
    Release The Hung Strategies
    Executor Has No Thread After Close
