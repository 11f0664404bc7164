*** Settings ***
Documentation       The event bus under many threads, and its durable log under many processes.
Library             EventBusLibrary.py
Test Teardown       Close The Event Bus

*** Test Cases ***
Many Threads Share One Bus
    [Documentation]    Emitters and subscribers at once: every total is exact, every order kept.
    Open An Event Bus
    Emit From Threads    8    250
    Every Handler Should Have Got    2000
    Audit Log Should Be Gapless Up To    2000
    Ordered Handler Should Have Seen The Audit Order

Streams Are Serialised
    [Documentation]    A reactivex observer is never called by two threads at once.
    Open An Event Bus
    Observe The Stream
    Emit From Threads    8    250
    Stream Should Have Seen In Order    2000

What Was Acknowledged Is In The Durable Log
    [Documentation]    Threads emit durably; the log verifies, and a reader resumes by cursor.
    Open An Event Bus With A Durable Log
    Emit Durably From Threads    4    50
    Durable Log Should Verify With    200
    Reading By Cursor Should Give Each Position Once    200    7
