*** Settings ***
Documentation       A server and its users, as they meet it: the `agents` executable on both sides.
Library             ServerLibrary
Test Setup          Open A Repository
Test Teardown       Stop The Server And Find Nothing Left


*** Test Cases ***
A User Logs In And Has A Plan Run, Approved And Applied
    Start A Server
    Run On The Server    project    add    paint
    Run On The Server    resource    add    shop    --project    paint
    Run On The Server    user    add    ada    --role    operator    --project    paint
    Run On The Server    user    token    ada
    Log In With The Token
    Exit Code Should Be    0
    Output Should Contain    ada    operator
    Run Through The Server    resource    list
    Output Should Contain    shop    directory
    Run Through The Server    run    --action    builtin/replace    --arg    pattern=colour
    ...    --arg    replacement=color    --profile    manual
    Exit Code Should Be    3
    Complaint Should Contain    step 1 of 1: replace    needs approval    plan approve
    ${plan}=    The Plan
    Run Through The Server    plan    approve    ${plan}
    Exit Code Should Be    3
    Complaint Should Contain    2 files changed
    File Should Say    README.md    The colour of it.
    Run Through The Server    plan    apply    ${plan}
    Exit Code Should Be    0
    File Should Say    README.md    The color of it.
    Run Through The Server    user    list
    Exit Code Should Be    1
    Complaint Should Contain    the role admin is required
