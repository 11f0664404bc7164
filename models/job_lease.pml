/* One job, two workers: a lease that others judge by watching the beat, and a fencing token.
 *
 * Ann may be stopped for as long as it pleases somebody (SIGSTOP), go on, or be killed. Bob stays alive. Each
 * of them works when it has the job, and watches when the other has it. A watcher that sees the same fence
 * and the same beat for a whole lease takes the job back, provided both still stand. No clock is shared: a
 * tick only says that no live owner is later with its beat than it promised.
 *
 * mutants: NO_FENCE NO_BEAT_CHECK NO_PATIENCE NO_HEARTBEAT NO_RECLAIM
 */
#define LEASE        2          /* ticks without a beat after which a job may be taken */
#define BEAT_EVERY   1          /* ticks within which a live owner beats */
#define MAX_ATTEMPTS 3
#define WORK         2          /* beats after which an attempt has done its work */
#define STOPS        2
#define ANN          0
#define BOB          1

mtype = { QUEUED, RUNNING, SUCCEEDED, FAILED };

/* The row. */
mtype state = QUEUED;
byte fence, attempt;

/* The workers. `late` counts ticks since the last beat; a stopped or killed one does nothing. */
bool stopped, killed;
bool owns[2];
byte held[2], late[2], beats[2];

/* What each watcher saw, and for how many ticks it has stood so. The beat is a counter without bound; all that
 * anybody does with it is to see whether it moved since, so that is what is kept of it. */
bool watches[2], beaten[2];
byte saw_fence[2], stood[2];

/* What the properties speak of. */
byte successes;
bool stopped_since[2];          /* was Ann stopped since that watcher began to watch? */

#define ended       (state == SUCCEEDED || state == FAILED)
#define lives(w)    (w == BOB || (!stopped && !killed))
#define punctual(w) (!owns[w] || !lives(w) || late[w] < BEAT_EVERY)

inline claim(w) {
    atomic {
        state == QUEUED && lives(w) && !owns[w] ->
        state = RUNNING; fence++; attempt++;
        owns[w] = true; held[w] = fence; late[w] = 0; beats[w] = 0; watches[w] = false
    }
}

inline heartbeat(w) {
    atomic {
        owns[w] && lives(w) && late[w] > 0 && beats[w] < WORK ->
        late[w] = 0; beats[w]++;
        if
        :: state == RUNNING && fence == held[w] -> beaten[ANN] = true; beaten[BOB] = true
        :: else -> owns[w] = false                      /* told that it lost the job: it stops */
        fi
    }
}

inline finish(w) {
    atomic {
        owns[w] && lives(w) ->
        owns[w] = false;
        if
#ifdef MUTANT_NO_FENCE
        :: true ->
#else
        :: state == RUNNING && fence == held[w] ->
#endif
            assert(held[w] == fence);                   /* only the newest owner's write is kept */
            state = SUCCEEDED;
            successes++;
            assert(successes == 1)                      /* two owners never both succeed */
        :: else -> skip                                 /* refused: another worker owns the job */
        fi
    }
}

inline watch(w) {
    atomic {
        state == RUNNING && lives(w) && !owns[w] &&
            (!watches[w] || saw_fence[w] != fence || beaten[w]) ->
        watches[w] = true; saw_fence[w] = fence; beaten[w] = false; stood[w] = 0;
        stopped_since[w] = stopped || killed
    }
}

inline take_back(w) {
    atomic {
#ifdef MUTANT_NO_PATIENCE
        watches[w] && lives(w) && !owns[w] ->
#else
        watches[w] && lives(w) && !owns[w] && stood[w] >= LEASE ->
#endif
        watches[w] = false;
        if
#ifdef MUTANT_NO_BEAT_CHECK
        :: state == RUNNING && fence == saw_fence[w] ->
#else
        :: state == RUNNING && fence == saw_fence[w] && !beaten[w] ->
#endif
            /* Whoever is robbed was stopped or killed while it was watched: a live owner never is. */
            assert(stopped_since[w] && w == BOB);
            if
            :: attempt < MAX_ATTEMPTS -> state = QUEUED
            :: else -> state = FAILED
            fi
        :: else -> skip
        fi
    }
}

proctype Worker(byte w) {
end:
    do
    :: claim(w)
#ifndef MUTANT_NO_HEARTBEAT
    :: heartbeat(w)
#endif
    :: finish(w)
    :: watch(w)
#ifndef MUTANT_NO_RECLAIM
    :: take_back(w)
#endif
    :: ended && (!owns[w] || !lives(w)) -> break
    od
}

inline tick_of(w) {
    if
    :: late[w] < LEASE -> late[w]++
    :: else -> skip
    fi;
    if
    :: watches[w] && stood[w] < LEASE -> stood[w]++
    :: else -> skip
    fi
}

/* Time passes only while every live owner is punctual; that is what a heartbeat timer of its own gives. */
proctype Time() {
end:
    do
    :: atomic {
#ifdef MUTANT_NO_HEARTBEAT
        !ended ->
#else
        !ended && punctual(ANN) && punctual(BOB) ->
#endif
        tick_of(ANN); tick_of(BOB) }
    :: ended -> break
    od
}

/* Stops Ann, lets her go on, or kills her, each at any moment. */
proctype Fate() {
    byte stops;
end:
    do
    :: atomic { !stopped && !killed && stops < STOPS -> stops++; stopped = true; stopped_since[BOB] = true }
    :: atomic { stopped && !killed -> stopped = false }
    :: atomic { !killed -> killed = true; stopped_since[BOB] = true; break }
    :: ended -> break
    od
}

init {
    atomic { run Worker(ANN); run Worker(BOB); run Time(); run Fate() }
}

/* A job is not lost: in the end it succeeded, or failed with its attempts used up. */
ltl not_lost { <> ended }
