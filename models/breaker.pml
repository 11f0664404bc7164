/* The circuit breaker of one name: permits, generations, one trial at a time.
 *
 * Callers acquire a permit, call (for as long as they like, or for ever) and settle it once. The clock may
 * end a cool-down, or a trial's lease, at any moment.
 *
 * mutants: NO_GENERATION_CHECK NO_LOCK NO_TRIAL_LIMIT NO_LEASE
 */
#define CALLERS   3
#define CALLS     2
#define THRESHOLD 2

byte generation, failures;
bool disabled, half_open, cooled;      /* cooled: retry_at has come */

/* What the properties speak of; the breaker itself does not look at these. */
byte failed_in_a_row;                  /* what `failures` has to be */
byte valid_trials;                     /* trials out whose lease holds */
byte gone;                             /* callers that ended or hang */

inline open_circuit() {
    disabled = true; half_open = false; cooled = false; generation++; valid_trials = 0
}

inline close_circuit() {
    assert(trial);                     /* only a trial closes: never a call admitted before it opened */
    disabled = false; half_open = false; generation++; valid_trials = 0
}

inline acquire() {
    atomic {
        trial = false;
        refused = false;
        if
        :: !disabled -> skip
        :: disabled && !cooled -> refused = true
        :: disabled && cooled ->
            half_open = true;
            generation++;
            trial = true;
#ifndef MUTANT_NO_TRIAL_LIMIT
            cooled = false;            /* the lease of the trial begins */
#endif
            valid_trials++;
            assert(valid_trials <= 1)
        fi;
        permit = generation
    }
}

inline succeed() {
    atomic {
#ifdef MUTANT_NO_GENERATION_CHECK
        if
        :: true ->
#else
        if
        :: permit == generation ->
#endif
            failures = 0; failed_in_a_row = 0;
            if
            :: disabled -> close_circuit()
            :: else -> skip
            fi
        :: else -> skip
        fi
    }
}

inline fail() {
#ifdef MUTANT_NO_LOCK
    byte counted;
    counted = failures;                /* read … */
    atomic {
        failed_in_a_row++;
        failures = counted + 1;        /* … and write, with others in between */
        assert(failures == failed_in_a_row)
    }
#else
    atomic {
        if
        :: permit == generation ->
            failures++; failed_in_a_row++;
            assert(failures == failed_in_a_row);
            if
            :: !disabled && failures >= THRESHOLD -> open_circuit()
            :: disabled && (half_open || cooled) -> open_circuit()
            :: else -> skip
            fi
        :: else -> skip
        fi
    }
#endif
}

inline release() {
    atomic {
        if
        :: permit == generation && disabled -> cooled = true; valid_trials = 0
        :: else -> skip
        fi
    }
}

proctype Caller() {
    byte permit, calls;
    bool trial, refused;
    do
    :: calls < CALLS ->
        calls++;
        acquire();
        if
        :: refused -> skip
        :: !refused -> succeed()
        :: !refused -> fail()
        :: !refused -> release()
        :: !refused -> break           /* hangs, and never settles */
        fi
    :: calls == CALLS -> break
    od;
    gone++
}

proctype Clock() {
end:
    do
#ifdef MUTANT_NO_LEASE
    :: disabled && !cooled && !half_open -> cooled = true
#else
    :: atomic { disabled && !cooled -> cooled = true; valid_trials = 0 }
#endif
    od
}

/* Whatever became of the callers, the next one is admitted: nothing jams the breaker for good. */
proctype NextCaller() {
    gone == CALLERS && timeout -> assert(!disabled || cooled)
}

init {
    byte n;
    atomic {
        for (n : 1 .. CALLERS) { run Caller() }
        run Clock();
        run NextCaller()
    }
}
