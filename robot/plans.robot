*** Settings ***
Documentation       Plans, as a user meets them: a repository, the `agents` executable, and a terminal.
Library             PlansLibrary
Test Setup          Open A Repository
Test Teardown       Close The Repository And Find Nothing Left


*** Test Cases ***
A Command Becomes Reviewable And Undoable
    Run Agents    run    --action    builtin/command    --    sed    -i    s/two/TWO/    poem.txt
    Exit Code Should Be    3
    Complaint Should Contain    making a sandbox    changed    poem.txt    1 file changed    agents plan apply
    File Should Say    poem.txt    one\ntwo\nthree\n
    Run Agents On The Plan    diff
    Output Should Contain    -two    +TWO
    Diff Should Be A Patch That Git Takes
    Run Agents On The Plan    apply
    Exit Code Should Be    0
    File Should Say    poem.txt    one\nTWO\nthree\n
    Status Should Be    ${SPACE}M poem.txt
    Run Agents On The Plan    undo
    Exit Code Should Be    0
    Status Should Be    ${EMPTY}

A Search And Replace Is Applied And Committed
    ${arguments}=    Replacing    colour    color
    Run Agents    @{arguments}    --yes    --commit    Spell it
    Exit Code Should Be    0
    Complaint Should Contain    2 files changed    applied to 2 files    committed as
    File Should Say    paint.py    color = 1\n
    Status Should Be    ${EMPTY}
    Last Commit Should Say    Spell it    CleverAgents-Plan:
    Run Agents On The Plan    undo    --commit    Spell it as before
    Exit Code Should Be    0
    File Should Say    paint.py    colour = 1\n
    Status Should Be    ${EMPTY}

My Own Edit Is Not Overwritten
    ${arguments}=    Replacing    colour    color
    Run Agents    @{arguments}
    Exit Code Should Be    3
    Edit    paint.py    colour = 2\n
    Run Agents On The Plan    apply
    Exit Code Should Be    3
    Complaint Should Contain    paint.py    is by you    | colour = 2    | color = 1    nothing was changed
    File Should Say    paint.py    colour = 2\n
    File Should Say    README.md    The colour of it.\n
    Run Agents On The Plan    review    paint.py
    Run Agents On The Plan    apply
    Exit Code Should Be    0
    File Should Say    paint.py    colour = 2\n
    File Should Say    README.md    The color of it.\n

Two Plans On One File
    Run Agents    run    --action    builtin/command    --review    --    sed    -i    s/one/ONE/    long.txt
    ${first}=    The Plan
    Run Agents    run    --action    builtin/command    --review    --    sed    -i    s/nine/NINE/    long.txt
    ${second}=    The Plan
    Run Agents    run    --action    builtin/command    --review    --    sed    -i    s/one/Uno/    long.txt
    ${third}=    The Plan
    Run Agents    plan    apply    ${first}
    Exit Code Should Be    0
    Run Agents    plan    apply    ${second}
    Exit Code Should Be    0
    File Should Contain    long.txt    ONE\n    NINE\n
    Run Agents    plan    apply    ${third}
    Exit Code Should Be    3
    Complaint Should Contain    is by plan    | ONE    | Uno
    File Should Contain    long.txt    ONE\n    NINE\n

A Plan Is Cancelled From Another Terminal
    Start Agents Until It Says    RUNNING    run    --action    builtin/command    --    sh    -c
    ...    trap '' TERM; (setsid sleep 1000 &); echo RUNNING; sleep 1000
    Run Agents On The Plan    cancel    --reason    wrong branch
    Exit Code Should Be    0
    Started Agents Should End With    130    wrong branch
    No Process Of It Should Be Left
    Run Agents On The Plan    cancel
    Exit Code Should Be    0
    Complaint Should Contain    is already cancelled (wrong branch)

Ctrl-C Pauses The Plan And All Of It
    Start Agents Until It Says    RUNNING    run    --action    builtin/command    --    sh    -c
    ...    trap '' TERM; touch made.txt; echo RUNNING; sleep 1000
    Interrupt Started Agents    SIGINT
    Started Agents Should End With    130    interrupted: pausing the plan
    No Process Of It Should Be Left
    Plan Should Stand At    execute/errored
    Status Should Be    ${EMPTY}

SIGTERM Leaves A Plan That Goes On
    Start Agents Until It Says    RUNNING    run    --action    builtin/command    --    sh    -c
    ...    echo x >> made.txt; echo RUNNING; test -e .git/begun || { touch .git/begun; exec sleep 1000; }
    Interrupt Started Agents    SIGTERM
    Started Agents Should End With    143    agents plan resume
    No Process Of It Should Be Left
    Run Agents On The Plan    resume
    Exit Code Should Be    3
    Run Agents On The Plan    apply
    File Should Say    made.txt    x\n

Files Are Reviewed One By One
    ${arguments}=    Replacing    colour    color
    Run Agents    @{arguments}    --review
    Exit Code Should Be    0
    Run Agents On The Plan    review    paint.py    nowhere.txt
    Exit Code Should Be    2
    Complaint Should Contain    no file 'nowhere.txt' among the changes of the plan
    Run Agents On The Plan    review    paint.py
    Complaint Should Contain    to be applied: 1 file changed
    Run Agents On The Plan    show
    Output Should Contain    left out    paint.py    next steps
    Run Agents On The Plan    apply
    Exit Code Should Be    0
    Status Should Be    ${SPACE}M README.md

Leave Is Asked For And Given
    ${arguments}=    Replacing    colour    color
    Run Agents    @{arguments}    --profile    manual
    Exit Code Should Be    3
    Complaint Should Contain    needs approval for edit    agents plan approve    agents plan deny
    Run Agents On The Plan    approve
    Exit Code Should Be    3
    Run Agents On The Plan    apply
    Exit Code Should Be    0
    File Should Say    paint.py    color = 1\n

A Terminal Is Asked
    ${arguments}=    Replacing    colour    color
    Type Into Agents    Approve?    y    Apply?    y    @{arguments}    --profile    manual
    Exit Code Should Be    0
    File Should Say    paint.py    color = 1\n

An Action Of One's Own Runs Several Steps And Checks
    Edit    action.yaml    name: team/both\nexecute:\n${SPACE} steps:\n${SPACE} - {tool: write, with: {path: new.txt, content: "new"}}\n${SPACE} - {tool: command, with: {argv: [rm, poem.txt]}}\nchecks:\n- {name: made, command: "test -f new.txt"}\n
    Run Agents    action    create    action.yaml
    Exit Code Should Be    0
    Run Agents    run    --action    team/both    --yes
    Exit Code Should Be    0
    Complaint Should Contain    step 2 of 2    check made
    Status Should Be    ${SPACE}D poem.txt\n?? action.yaml\n?? new.txt
