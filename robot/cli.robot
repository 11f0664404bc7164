*** Settings ***
Documentation       The `agents` executable, as a user meets it: real processes, a fresh home for each test.
Library             CliLibrary
Library             Collections
Test Setup          Open A Fresh Home
Test Teardown       Close The Home And Find Nothing Left


*** Test Cases ***
A Newcomer Finds The Way
    Run Agents    --help
    Exit Code Should Be    0
    Output Should Contain    Usage: agents    demo    doctor    Exit codes
    Run Agents    --version
    Output Should Contain    cleveragents
    Run Agents    doctor
    Exit Code Should Be    0
    Output Should Contain    python    git    database
    Home Should Hold Only

A Mistyped Word Is Answered With The Nearest
    Run Agents    evnts    tail
    Exit Code Should Be    2
    Complaint Should Contain    did you mean 'events'?
    Run Agents    config    set    worker.concurency    3
    Exit Code Should Be    2
    Complaint Should Contain    did you mean 'worker.concurrency'?
    Run Agents    events    tail    --type    job.don
    Exit Code Should Be    2
    Complaint Should Contain    job.
    Run Agents    --format    json    jobs    list
    Exit Code Should Be    2
    Complaint Should Contain    --format goes after the command: agents jobs list --format json
    Home Should Hold Only

A Setting Is Set And Shown With Its Origin
    Run Agents    config    set    worker.concurrency    8
    Exit Code Should Be    0
    Output Should Be    ${EMPTY}
    Run Agents    config    get    worker.concurrency
    Output Should Be    8
    Set Variable Of Environment    CLEVERAGENTS_WORKER_CONCURRENCY    2
    Run Agents    config    list
    Output Should Contain    CLEVERAGENTS_WORKER_CONCURRENCY
    Run Agents    --set    worker.concurrency\=5    config    get    worker.concurrency
    Output Should Be    5

Many Editors At Once Lose Nothing
    Run Agents At Once    config set worker.concurrency 7    config set log.level info
    Run Agents    config    get    worker.concurrency
    Output Should Be    7
    Run Agents    config    get    log.level
    Output Should Be    info
    Home Should Hold Only    .config/cleveragents/config.toml    .config/cleveragents/.config.lock

A Repository May Not Redirect
    Write File    .git/HEAD    ref: refs/heads/main
    Write File    .cleveragents.toml    [database]\nurl = "sqlite:////tmp/elsewhere.db"\n
    Run Agents    jobs    list
    Exit Code Should Be    2
    Complaint Should Contain    .cleveragents.toml:2: a repository may not set database.url
    Run Agents    doctor
    Exit Code Should Be    1

A Password Is Never Shown
    Run Agents    config    set    database.url    -    stdin=postgresql://me:s3cret@127.0.0.1:1/db
    Exit Code Should Be    0
    Run Agents    config    get    database.url
    Output Should Be    postgresql://me:***@127.0.0.1:1/db
    Run Agents    jobs    list
    Complaint Should Contain    error:
    Output Should Not Contain    s3cret
    Run Agents    doctor    --format    json
    Exit Code Should Be    1
    Output Should Not Contain    s3cret

Bad Input Ends In A Sentence
    Write File    .config/cleveragents/config.toml    \\xff\\xfe\\x00
    Run Agents    config    list
    Exit Code Should Be    2
    Complaint Should Contain    config.toml: is not UTF-8 text
    Run Agents    config    path
    Exit Code Should Be    0
    Output Should Contain    .config/cleveragents/config.toml
    Complaint Should Contain    config.toml: is not UTF-8 text
    Write File    .config/cleveragents/config.toml    ${EMPTY}
    Run Agents    --set    state.directory\=/proc/nowhere    jobs    list
    Exit Code Should Be    2
    Complaint Should Contain    cannot use /proc/nowhere/state.db as the database
    Run Agents    --set    state.directory\=/proc/nowhere    doctor
    Exit Code Should Be    1
    Output Should Contain    /proc is on proc, which allows no new files
    Write File    .local/share/cleveragents/state.db    this is not a database, it only bears the name of one
    Run Agents    jobs    list
    Exit Code Should Be    2
    Complaint Should Contain    state.db as the database
    Run Agents    --set    database.url\=sqlite:////nowhere    config    get    database.url
    Output Should Be    sqlite:////nowhere

An Unknown Job Is A Sentence
    Run Agents    jobs    show    01ARZ3NDEKTSV4RRFFQ69G5FAV
    Exit Code Should Be    2
    Complaint Should Contain    there is no job

Jobs Are Listed, Shown And Cancelled Once
    ${job}=    Submit A Job
    Run Agents    jobs    list    --state    queued    --format    json
    Exit Code Should Be    0
    ${listed}=    Json Of Output
    Should Be Equal    ${listed}[0][id]    ${job}
    Run Agents    jobs    cancel    ${job}    --reason    changed my mind
    Exit Code Should Be    0
    Complaint Should Contain    cancelled job
    Run Agents    jobs    cancel    ${job}
    Exit Code Should Be    0
    Complaint Should Contain    is already cancelled (changed my mind); nothing changed
    Run Agents    jobs    show    ${job}
    Output Should Contain    changed my mind

The Audit Log Is Followed And Verified
    ${first}=    Submit A Job
    ${second}=    Submit A Job
    ${third}=    Submit A Job
    Run Agents    events    tail    --after    1    --limit    1    --format    stream-json
    ${event}=    Json Of Output
    Should Be Equal As Integers    ${event}[position]    2
    Should Be Equal    ${event}[subject]    ${second}
    Run Agents    events    verify
    Exit Code Should Be    0
    Output Should Be    3 events, verified
    Tamper With The Log    DELETE FROM events WHERE position = 2
    Run Agents    events    verify
    Exit Code Should Be    1
    Output Should Contain    the row was removed
    Complaint Should Contain    the audit log is broken

Colours Only Where They Are Wanted
    ${job}=    Submit A Job
    Run Agents    jobs    cancel    ${job}
    Run Agents On A Terminal    doctor
    Output Should Have Colours
    Run Agents    doctor    --format    plain
    Output Should Have No Colours
    Set Variable Of Environment    NO_COLOR    1
    Run Agents On A Terminal    doctor
    Output Should Have No Colours
    Run Agents On A Terminal    jobs    show    ${job}
    Output Should Have No Colours

A Reader That Stops Ends It Quietly
    Run Agents Into A Reader That Stops    config    list
    Exit Code Should Be    141
    Complaint Should Be Empty

The Demo Keeps Its Promises And Touches Nothing
    Make The Home Unwritable
    Run Agents    demo    --format    json
    Exit Code Should Be    0
    ${told}=    Json Of Output
    Should Be True    ${told}[kept]
    Should Be True    ${told}[most_plans_at_once] > 1
    ${plans}=    Evaluate    {plan["plan"]: plan for plan in $told["plans"]}
    Should Be Equal    ${plans}[discount][state]    applied
    Should Be Equal    ${plans}[tax][state]    constrained
    Should Contain    ${plans}[tax][error]    conflicts with the current state of prices.sh
    Should Be Equal    ${plans}[receipt][state]    applied
    Should Be Equal    ${plans}[receipt][checks][0]    sh test.sh: failed
    Should Be Equal    ${plans}[catalogue][state]    applied
    Should Be Equal    ${plans}[catalogue][workers]    ${{["worker-2", "worker-1"]}}
    Should Be Equal    ${plans}[simulation][state]    cancelled
    Should Be Equal    ${plans}[welcome][state]    undone
    ${types}=    Evaluate    {event["event"] for event in $told["events"]}
    Should Contain    ${types}    decision.made
    Should Contain    ${types}    graph.run_succeeded
    Should Contain    ${types}    apply.ended
    Should Contain    ${types}    job.reclaimed
    Home Should Hold Only

An Interrupted Demo Leaves Nothing
    Interrupt Agents When It Says    decisions, based on reading    SIGINT    demo
    Exit Code Should Be    130
    Complaint Should Contain    interrupted
    Home Should Hold Only
    Interrupt Agents When It Says    a repository of    SIGTERM    demo
    Exit Code Should Be    143
    Home Should Hold Only
