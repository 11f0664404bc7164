/* Recording changes: two nodes and a stranger share one context; somebody closes a node's changeset.
 *
 * Each step between the semicolons of a process is one atomic step of the real thing: a critical section
 * of the context, or a transaction of the store. The store is called outside the context's lock.
 *
 * mutants: LATEST_IS_THE_ADDRESS GUESS STALE_FALLS_THROUGH NO_SEAL_CHECK NUMBER_APART
 */
#define NODES   2
#define RECORDS 2
#define NONE    255

/* The store: changesets are numbered as they start. */
byte started;
bool sealed[NODES];
byte length[NODES];
byte sealed_length[NODES];

/* The context: active changesets, oldest first. */
byte opened[NODES] = NONE;
byte actives;

inline forget(which) {
    atomic {
        if
        :: actives == 2 && opened[0] == which -> opened[0] = opened[1]; opened[1] = NONE; actives--
        :: actives == 2 && opened[1] == which -> opened[1] = NONE; actives--
        :: actives == 1 && opened[0] == which -> opened[0] = NONE; actives--
        :: else -> skip
        fi
    }
}

/* The store's record: refuses what is sealed, numbers and appends in one transaction. */
inline record(which) {
#ifdef MUTANT_NUMBER_APART
    number = length[which] + 1;
#endif
    atomic {
#ifdef MUTANT_NO_SEAL_CHECK
        if
        :: true ->
#else
        if
        :: !sealed[which] ->
#endif
#ifndef MUTANT_NUMBER_APART
            number = length[which] + 1;
#endif
            length[which]++;
            assert(number == length[which]);                 /* gapless, none twice */
            assert(!sealed[which])                           /* sealed is immutable */
        :: else -> refused = true
        fi
    }
    if
    :: refused -> forget(which)
    :: else -> skip
    fi
}

/* The address of a record without a handle, decided under the lock. */
inline address(mine) {
    atomic {
        refused = false;
        meant = NONE;
#ifdef MUTANT_LATEST_IS_THE_ADDRESS
        if
        :: actives > 0 -> meant = opened[actives - 1]
        :: else -> refused = true
        fi
#else
#ifdef MUTANT_STALE_FALLS_THROUGH
        if
        :: mine != NONE && !sealed[mine] -> meant = mine
#else
        if
        :: mine != NONE -> meant = mine                      /* current here, sealed or not */
#endif
        :: else ->
            if
            :: actives == 1 -> meant = opened[0]
#ifdef MUTANT_GUESS
            :: actives > 1 -> meant = opened[0]
#endif
            :: else -> refused = true                        /* none, or a guess */
            fi
        fi
#endif
        /* Somebody with a changeset of its own is never filed elsewhere; a stranger never by a guess. */
        assert(refused || mine == NONE || meant == mine);
        assert(refused || mine != NONE || actives == 1)
    }
}

proctype Node() {
    byte mine = NONE, meant, number, n;
    bool refused;
    atomic { mine = started; started++ }                     /* persisted … */
    atomic { opened[actives] = mine; actives++ }             /* … then active, then current */
    for (n : 1 .. RECORDS) {
        address(mine);
        if
        :: !refused -> record(meant)
        :: else -> skip
        fi
    }
}

proctype Stranger() {
    byte meant, number;
    bool refused;
    address(NONE);
    if
    :: !refused -> record(meant)
    :: else -> skip
    fi
}

/* Closes any changeset that is there, at any time: the node's own end, or somebody else. */
proctype Closer() {
    byte which;
    select(which : 0 .. NODES - 1);
    which < started;
    atomic { sealed[which] = true; sealed_length[which] = length[which] }
    forget(which)
}

/* In the end a sealed changeset is what it was when it was sealed. */
proctype Auditor() {
    byte which;
    timeout;
    for (which : 0 .. NODES - 1) {
        assert(!sealed[which] || length[which] == sealed_length[which])
    }
}

init {
    atomic { run Node(); run Node(); run Stranger(); run Closer(); run Auditor() }
}
