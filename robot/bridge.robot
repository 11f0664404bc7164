*** Settings ***
Documentation    Concurrent graph execution leaks no task.
Library          BridgeLibrary

*** Test Cases ***
Concurrent Graph Execution Leaks No Task
    Open A Bridge    max_in_flight=${32}
    Submit From Threads    ${8}    ${20}    async    sync    branches    failing
    ${kinds} =    Answers Should Add Up To    ${160}
    Should Be Equal As Integers    ${kinds}[result]    120
    Should Be Equal As Integers    ${kinds}[error]    40
    No Task Should Be Left
    Close The Bridge
    Nothing Should Be Left Behind

Clean Up Beside Concurrent Submits Leaks No Task
    Open A Bridge    max_in_flight=${1000}
    Clean Up While Submitting    ${8}    ${20}    waiting
    ${unfinished} =    Clean Up
    Should Be Equal As Integers    ${unfinished}    0
    ${kinds} =    Answers Should Add Up To    ${160}
    Should Be Equal As Integers    ${kinds}[cancelled]    160
    No Task Should Be Left
    Close The Bridge
    Nothing Should Be Left Behind

Closing Ends Everything That Is In Flight
    Open A Bridge    max_in_flight=${1000}
    Submit From Threads    ${4}    ${25}    waiting
    Close The Bridge
    ${kinds} =    Answers Should Add Up To    ${100}
    Should Be Equal As Integers    ${kinds}[cancelled]    100
    No Task Should Be Left
    Nothing Should Be Left Behind
