/* The lease and token protocol (docs/protocol.md, rules R1 to R10) as a Promela model.
 * checks.tsv says with which macros it is searched.
 *
 * What is modelled. Three nodes, a majority is two. ATTEMPTS attempts (A, B, C) want the same resource `a`;
 * an attempt may want `b` too, under one token. Every request has a process of its own per attempt
 * and node (`connection`): it may be executed by the node at any later moment, in any order, once, or never.
 * Every step is one script on one node, or one decision of a gateway; so each is a d_step.
 *
 * What is abstracted, and why no violation is lost by it.
 * - Time. A lease may expire (or be released, R7) at any moment.
 *   Without CLOCKS the expiry is not a step of its own: R1 finds the lease absent whenever it is executed,
 *   which also covers HAND-OVER (`prev`) and an attempt repeated after HELD. With CLOCKS the expiry is a step,
 *   possible only after the attempt's validity has ended; exclusion is then checked as well.
 * - Replies. The caller may use a reply as soon as the node has sent it, and any set of two or three of them for R2.
 *   A reply that is late, lost or overtaken is a reply that is used later or never.
 *   A grant counts as complete when its last stamp is made,
 *   which is the earliest possible moment and therefore the strictest reading of P2.
 * - Connections (R9). A request is built for the live run id and fails with it, or is built again for the next:
 *   so a request passes ADM exactly when the node is admitted under its live run id.
 * - BIG represents 2^32. Crashes, epochs, raises by others, top-ups and initial counters are limited by macros.
 *
 * Sizes (macros): ATTEMPTS 2|3; INIT, the highest initial counter; CRASHES; DRAWS of an epoch;
 *   RAISES of a bucket by other resources (of
 *   RAISED: 0 is the bucket of `a`, 1 of `b`); TOPUPS; UPGRADES; BIG; RES 1|2 resources (A wants both, the others `a`;
 *   with SET_B they want both too).
 *   FORGETS, how often a node's data are replaced while it runs (REPLICAOF, DEBUG RELOAD, eviction, …).
 * Further steps: ROLLBACK (a crash restores what the AOF had),
 *   PARTLY (a crash keeps the leases and loses the counters), FLUSH (FLUSHALL), SYNC (nodes sync every write,
 *   and CONFIG SET may end that; a crash then restores what the disk had at that moment),
 *   RESTARTED (node 2 was restarted before the beginning and is not admitted), OLD_FILE (nodes sync every write;
 *   a restart with other settings loads an older file, and CONFIG SET then restores the settings),
 *   CALLS (RENEW, RE-ENTRANT, INSPECT), HINT (R1's hint), TWICE (R1 is executed twice),
 *   OLD_CONFIRM (CONFIRMs of an older T arrive late), SLACK (R5: T := v + 1),
 *   RAISE_TO_REPLY (T is raised to a late reply), CLOCKS (exclusion), HANDOVER.
 * What is checked: P1 and P2 always; P3 with CLOCKS; INVARIANTS: the proof's I1, I2, I3 and S.
 *   REACH_* asserts that a state is never reached:
 *   the result "violated" shows that the search reaches it.
 * Weakened rules: every macro WITHOUT_*, and SLACK_UNBOUNDED. A comment explains each where it is used.
 */
#ifndef ATTEMPTS
#define ATTEMPTS 2
#endif
#ifndef INIT
#define INIT 0
#endif
#ifndef CRASHES
#define CRASHES 0
#endif
#ifndef DRAWS
#define DRAWS CRASHES
#endif
#ifndef FORGETS
#define FORGETS 0
#endif
#ifndef RAISES
#define RAISES 0
#endif
#ifndef TOPUPS
#define TOPUPS 0
#endif
#ifndef UPGRADES
#define UPGRADES 0
#endif
#ifndef RES
#define RES 1
#endif
#ifndef BIG
#define BIG 20
#endif
#define N 3
#ifdef WITHOUT_MAJORITY         /* R4: complete with one node */
#define MAJORITY 1
#else
#define MAJORITY 2
#endif
#define NOBODY 7
#define BIT(i) (1 << (i))
#define COUNT(m) (((m) & 1) + (((m) >> 1) & 1) + (((m) >> 2) & 1))
#define MAX(x, y) ((x) > (y) -> (x) : (y))

/* ---- State: a node ---- */
byte live[N] = 1;                /* the live run id */
byte admitted[N] = 1;           /* fg:node.run */
byte base[N];                   /* fg:node.base = epoch * BIG */
byte lease[N * RES] = NOBODY;   /* fg:lease: the nonce */
byte counter[N * RES];          /* fg:token: one bucket a resource */
#ifdef CALLS
byte token[N * RES];            /* fg:lease: the token */
#if UPGRADES > 0
byte stamp[N * RES];            /* fg:lease: the stamp, which only UPGRADE separates from the token */
#endif
#endif
/* ---- State: PostgreSQL ---- */
byte epoch;
byte draws;
/* ---- State: an attempt ---- */
#define IDLE 0
#define ASKING 1                /* R1 was sent */
#define CONFIRMING 2            /* T is chosen (R2) */
#define COMPLETE 3              /* R4 */
byte phase[ATTEMPTS];
byte T[ATTEMPTS];
byte asked[ATTEMPTS];           /* nodes that executed R1 */
byte reply[ATTEMPTS * N];       /* what they replied */
byte stamped[ATTEMPTS];
byte before[ATTEMPTS];          /* attempts that were complete when this one began */
#ifdef OLD_CONFIRM
byte old[ATTEMPTS];             /* T before the last raise: its CONFIRMs may still be in transit */
#endif
#ifdef HINT
byte hint[ATTEMPTS];
#endif
#ifdef CALLS
/* 8: a call that began after a newer grant was complete; low bits: nodes that replied OK since */
byte call[ATTEMPTS];
#endif
#if TOPUPS > 0
byte topups;
byte topped[ATTEMPTS];
#endif
#if UPGRADES > 0
byte upgrades;
#endif
#if RAISES > 0
byte raises;
#endif
#if CRASHES > 0
byte crashes;
#endif
#ifdef ROLLBACK
bool saved[N];                  /* what the disk will have at the coming crash */
byte saved_admitted[N];
byte saved_base[N];
byte saved_lease[N * RES];
byte saved_counter[N * RES];
#ifdef CALLS
byte saved_token[N * RES];
#endif
#endif
#ifdef FLUSH
byte claim[N];                  /* R10: the random claim written at R8 (a); FLUSHALL removes it */
#endif
#if FORGETS > 0
byte forgets;
byte lost[N];                   /* the live count of commands that lose data */
byte marks[N];                  /* fg:node.marks: that count at the admission */
byte claim[N];
/* The register: for which life it drew last, and the epoch. */
byte drew_run[N];
byte drew_claim[N];
byte drew_lost[N];
byte drew_epoch[N];
#endif
#ifdef SYNC
bool changed[N];                /* CONFIG SET ran, and no gateway has inspected the settings since */
bool unsynced[N];               /* the register: this life did not sync every write */
#endif
#ifdef CLOCKS
bool over[ATTEMPTS];            /* R6: the validity is over */
byte quarantined_for[N];                   /* R8: attempts whose leases the node may have forgotten */
#endif
byte wrong;                     /* what is violated; `report_violation` stops the search by it */
#define P1 1
#define P2 2
#define P2_AGAIN 3
#define P3 4
#define I1 5
#define REACHED 6
#define S_RISES 7
#define I2 8
#define CHECK(holds, name) if :: !(holds) -> wrong = name :: else fi

#ifdef INVARIANTS               /* variables of the proof only; one resource */
byte g[N];                      /* the highest T ever stamped on the node */
byte o[N] = NOBODY;             /* whose it was */
#define STAMP(c, n, value) CHECK(o[n] == NONCE(c) || value > g[n], S_RISES); CHECK(value >= g[n], S_RISES); \
  g[n] = value; o[n] = c
#define BAD_I2(n) (ADM(n) && EFF1(n, 0) < g[n])
#define BAD_I3(n) (ADM(n) && lease[n] != NOBODY && o[n] != NOBODY && lease[n] != o[n] && EFF1(n, 0) <= g[n])
#else
#define STAMP(c, n, value) skip
#endif

hidden byte v;                  /* scratch within one d_step; holds nothing between two */
hidden byte i;
hidden byte r;

/* ---- Conditions that the rules test ---- */
#ifdef WITHOUT_NONCE            /* R1: the nonce is not new for every attempt */
#define NONCE(c) 0
#else
#define NONCE(c) (c)
#endif
#define AT(n, r) ((n) * RES + (r))
#define LINK(c, n) ((c) * N + (n))
#define EFF1(n, r) MAX(counter[AT(n, r)], base[n])
#if RES == 1
#define BOTH(c) false
#define EFF(c, n) EFF1(n, 0)
#define MINE(c, n) (lease[n] == NONCE(c))
#define ALL(c) 0 .. 0
#else
#ifdef SET_B
#define BOTH(c) true
#else
#define BOTH(c) ((c) == 0)
#endif
#define EFF_ALL(c, n) (BOTH(c) && EFF1(n, 1) > EFF1(n, 0) -> EFF1(n, 1) : EFF1(n, 0))
#define MINE_ALL(c, n) (lease[AT(n, 0)] == (c) && (!BOTH(c) || lease[AT(n, 1)] == (c)))
#define ALL(c) 0 .. (BOTH(c) -> 1 : 0)
#ifdef WITHOUT_SEVERAL_EFF      /* SEVERAL RESOURCES: CONFIRM tests the counter of one bucket only */
#define EFF(c, n) (BOTH(c) -> EFF1(n, 1) : EFF1(n, 0))
#else
#define EFF(c, n) EFF_ALL(c, n)
#endif
#ifdef WITHOUT_SEVERAL_MINE     /* SEVERAL RESOURCES: CONFIRM tests the lease of one resource only */
#define MINE(c, n) (lease[AT(n, (BOTH(c) -> 1 : 0))] == (c))
#else
#define MINE(c, n) MINE_ALL(c, n)
#endif
#endif
/* ADM: what every script tests first. */
#if defined(WITHOUT_EPOCHS) || defined(WITHOUT_COUNTER_MAJORITY) /* a node that forgot votes at once */
#define ADM(n) true
/* R9: a library replays what was built for an older run id, and a restored fg:node still has that one */
#elif defined(WITHOUT_R9)
#define ADM(n) (admitted[n] != 0)
#elif FORGETS > 0 && !defined(WITHOUT_MARKS)    /* FORGETTING IN ONE LIFE: the scripts do not compare the marks */
#define ADM(n) (admitted[n] == live[n] && marks[n] == lost[n])
#elif defined(SYNC) && !defined(WITHOUT_MARKS)
#define ADM(n) (admitted[n] == live[n] && !changed[n])
#else
#define ADM(n) (admitted[n] == live[n])
#endif
#ifdef CLOCKS
#ifdef WITHOUT_LEASE_TEST       /* R1: takes the lease of another */
#define FREE(c, n) true
#elif defined(HANDOVER)
#define FREE(c, n) (lease[n] == NOBODY || lease[n] == (c) || lease[n] == 0)
#else
#define FREE(c, n) (lease[n] == NOBODY || lease[n] == (c))
#endif
#define OVER(c) over[c]
#else
#define FREE(c, n) true
#define OVER(c) false
#endif
#if defined(CALLS) && UPGRADES > 0
#define SET_TOKEN(n, r, value) token[AT(n, r)] = value; stamp[AT(n, r)] = value
#elif defined(CALLS)
#define SET_TOKEN(n, r, value) token[AT(n, r)] = value
#else
#define SET_TOKEN(n, r, value) skip
#endif
#define LETTER(c) ('A' + (c))
#define IS_NEWER(c, d) (phase[d] == COMPLETE && T[d] > T[c])
#if ATTEMPTS == 2
#define NEWER(c) (IS_NEWER(c, 0) || IS_NEWER(c, 1))
#else
#define NEWER(c) (IS_NEWER(c, 0) || IS_NEWER(c, 1) || IS_NEWER(c, 2))
#endif

/* ---- What a script writes: counters, leases and the tokens in them, of every resource of the attempt ---- */
inline write(c, n, value) {
    for (r : ALL(c)) {
#ifdef INVARIANTS
        CHECK(value < (epoch + 1) * BIG, I1);
#endif
        counter[AT(n, r)] = value;
        lease[AT(n, r)] = NONCE(c);
        SET_TOKEN(n, r, value)
    }
}

#if defined(CLOCKS) && !defined(WITHOUT_R6)
#define GRANT_REFUSED(c) over[c]                /* R6: none left is no grant */
#else
#define GRANT_REFUSED(c) false
#endif
inline reached(c) {
#ifdef REACH_OVERLAP
    CHECK(!NEWER(c), REACHED)                   /* complete after a newer grant: they overlap */
#elif defined(REACH_BOTH)
    CHECK(!(crashes == CRASHES && draws == DRAWS && phase[0] == COMPLETE && phase[1] == COMPLETE &&
      T[1] > DRAWS * BIG), REACHED)
#else
    skip
#endif
}

/* ---- R4: complete when a majority of different nodes is stamped with the same (nonce, T).
 * P1 and P2 are checked here. ---- */
inline check_complete(c) {
    if
    :: COUNT(stamped[c]) >= MAJORITY && !GRANT_REFUSED(c) ->
        phase[c] = COMPLETE;
        printf("=> %c is complete with the token %d\n", LETTER(c), T[c]);
        for (i : 0 .. ATTEMPTS - 1) {
            if
            :: i != c && phase[i] == COMPLETE ->
                CHECK(T[i] != T[c], P1);                                /* unique */
                CHECK(!(before[c] & BIT(i)) || T[c] > T[i], P2)         /* asked for later, higher */
#ifdef CLOCKS
                ; CHECK(over[i], P3)                                    /* at most one valid grant */
#endif
            :: else
            fi
        }
        stamped[c] = 0;
        before[c] = 0;
        for (i : 0 .. N - 1) { reply[LINK(c, i)] = 0 }
        reached(c)
    :: else
    fi
}
#ifdef WITHOUT_HIGHEST          /* R2: the lowest of the replies */
#define BETTER(x, y) (y == 0 || x < y)
#else
#define BETTER(x, y) (x > y)
#endif
#ifdef WITHOUT_EXACT_REPLY          /* R4: a late reply higher than T counts */
#define STAMPS_BY_REPLY(x, t) (x >= t)
#elif defined(WITHOUT_CONFIRMING_ROUND) /* a majority of replies is enough */
#define STAMPS_BY_REPLY(x, t) (x <= t)
#elif defined(WITHOUT_SAME_T)   /* R4: stamps of different T count together */
#define STAMPS_BY_REPLY(x, t) true
#else
#define STAMPS_BY_REPLY(x, t) (x == t)
#endif

/* ---- A gateway's decisions about one attempt ---- */
#define R2(c, nodes) \
    :: d_step { phase[c] == ASKING && (asked[c] & nodes) == nodes -> \
        phase[c] = CONFIRMING; \
        choose(c, nodes); \
        printf("%c takes T = %d from the replies of the nodes in %d (bits)\n", LETTER(c), T[c], nodes); \
        for (i : 0 .. N - 1) { \
            if \
            :: (asked[c] & BIT(i)) && STAMPS_BY_REPLY(reply[LINK(c, i)], T[c]) -> stamped[c] = stamped[c] | BIT(i) \
            :: else \
            fi \
        } \
        check_complete(c) }
/* T := the highest of the replies. */
inline choose(c, nodes) {
    for (i : 0 .. N - 1) {
        if
        :: (nodes & BIT(i)) && BETTER(reply[LINK(c, i)], T[c]) -> T[c] = reply[LINK(c, i)]
        :: else
        fi
    }
}
/* RENEW, RE-ENTRANT: answers to what was asked before the call began count */
#if defined(REACH_CALL) || defined(WITHOUT_CALL_FIRST)
#define NEWER_OR_ANY(c) true
#else
#define NEWER_OR_ANY(c) NEWER(c)
#endif

/* R5: T := v, at least what STALE said; every stamp is dropped.
 * A node that has replied exactly the new T to R1 is stamped by that (R4, late replies). */
inline raise(c, n) {
#ifdef OLD_CONFIRM
    old[c] = T[c];
#endif
    T[c] = v;
#ifndef WITHOUT_DISCARDED_STAMPS        /* R5: the stamps of the older T are kept */
    stamped[c] = 0;
#endif
#ifdef WITHOUT_STALE_IS_NO_STAMP         /* R5: STALE(v) counts as a stamp of v */
    stamped[c] = stamped[c] | BIT(n);
#endif
    for (i : 0 .. N - 1) {
        if
        :: (asked[c] & BIT(i)) && STAMPS_BY_REPLY(reply[LINK(c, i)], T[c]) -> stamped[c] = stamped[c] | BIT(i)
        :: else
        fi
    }
    printf("%c learns that node %d has a counter above T and continues with T = %d\n", LETTER(c), n, T[c]);
    check_complete(c)
}
#define LATE_RAISE(c, n) \
    :: d_step { phase[c] == CONFIRMING && reply[LINK(c, n)] > T[c] -> v = reply[LINK(c, n)]; raise(c, n) }

/* Attempts are alike, so they begin in order. HAND-OVER begins when the holder's grant is complete. */
#ifdef HANDOVER
#define MAY_FOLLOW(c) (phase[0] == COMPLETE)
#else
#define MAY_FOLLOW(c) (phase[c - (c > 0)] != IDLE)
#endif
proctype attempt(byte c) {
    do
#ifdef RAISE_TO_REPLY
    /* Late replies above T: the caller may also raise T to the highest of them. */
    LATE_RAISE(c, 0)
    LATE_RAISE(c, 1)
    LATE_RAISE(c, 2)
#endif
    :: d_step { phase[c] == IDLE && (c == 0 || MAY_FOLLOW(c)) ->
        phase[c] = ASKING;
        for (i : 0 .. ATTEMPTS - 1) {
            if
            :: phase[i] == COMPLETE -> before[c] = before[c] | BIT(i)
            :: else
            fi
        }
/* HAND-OVER: the old nonce is no longer renewed, the old grant is over */
#if defined(HANDOVER) && !defined(WITHOUT_HANDOVER_END)
        if
        :: c > 0 -> over[0] = true
        :: else
        fi;
#endif
        printf("%c begins (complete before: %d, bits)\n", LETTER(c), before[c]) }
#ifdef HINT
    /* 1 + the highest token observed: at most 1 + the highest that exists. */
    :: d_step { phase[c] == ASKING && asked[c] == 0 && hint[c] == 0 ->
        for (i : 0 .. N - 1) { hint[c] = MAX(hint[c], EFF1(i, 0)) }
        for (i : 0 .. ATTEMPTS - 1) { hint[c] = MAX(hint[c], T[i]) }
        hint[c] = hint[c] + 1;
        printf("%c gives the hint %d\n", LETTER(c), hint[c]) }
#endif
#ifdef WITHOUT_COUNTER_MAJORITY /* the token is an INCR on one node, after leases on a majority */
    :: d_step { phase[c] == ASKING && COUNT(asked[c]) >= MAJORITY ->
        counter[0] = counter[0] + 1;
        T[c] = counter[0];
        stamped[c] = 7;
        check_complete(c) }
#elif defined(WITHOUT_MAJORITY)
    R2(c, 1)
    R2(c, 2)
#else
    R2(c, 3)
    R2(c, 5)
    R2(c, 6)
    R2(c, 7)
#endif
#ifdef CALLS
    /* RENEW, RE-ENTRANT, INSPECT. Only a call that begins when a newer grant is complete can go wrong:
     * so only those are made. */
    :: d_step { phase[c] == COMPLETE && NEWER_OR_ANY(c) && call[c] == 0 ->
        call[c] = 8;
        printf("%c asks again for its lease under T = %d\n", LETTER(c), T[c]) }
#endif
#ifdef CLOCKS
    :: d_step { phase[c] != IDLE && !over[c] -> over[c] = true; printf("the validity of %c is over\n", LETTER(c)) }
#endif
    od
}
#ifdef WITHOUT_R3_EFF           /* R3 without `eff <= T` */
#define NOT_PAST(c, n, t) true
#else
#define NOT_PAST(c, n, t) (EFF(c, n) <= t)
#endif
#ifdef WITHOUT_R3_OWNER         /* R3 does not test the owner */
#define CONFIRMABLE(c, n) (asked[c] & BIT(n))
#else
#define CONFIRMABLE(c, n) MINE(c, n)
#endif
/* The test of RENEW, RE-ENTRANT and INSPECT. */
#ifdef WITHOUT_CALL_MAJORITY    /* RENEW, RE-ENTRANT: one node is enough */
#define CALL_MAJORITY 1
#else
#define CALL_MAJORITY 2
#endif
#ifdef WITHOUT_TOKEN_TEST       /* the nonce alone, and T >= base */
#define TOKEN_TEST(c, n) true
#else
#define TOKEN_TEST(c, n) (token[AT(n, 0)] == T[c] && (!BOTH(c) || token[AT(n, RES - 1)] == T[c]))
#endif
#ifdef WITHOUT_BASE_TEST        /* without T >= base */
#define BASE_TEST(c, n) true
#elif defined(CALLS) && UPGRADES > 0
#define BASE_TEST(c, n) (stamp[n] >= base[n])
#else
#define BASE_TEST(c, n) (T[c] >= base[n])
#endif
#ifdef WITHOUT_OVERFLOW         /* R1 continues when the epoch has no numbers left */
#define OVERFLOW(x) false
#else
#define OVERFLOW(x) ((x) % BIG == 0)
#endif
#ifdef WITHOUT_TOPUP_OVERFLOW   /* TOP-UP continues when the epoch has no numbers left */
#define TOPUP_OVERFLOW(x) false
#else
#define TOPUP_OVERFLOW(x) OVERFLOW(x)
#endif
#ifdef SLACK_UNBOUNDED           /* R5: T may be raised into the next epoch's numbers */
#define OVERFLOW_OF_T(x) false
#else
#define OVERFLOW_OF_T(x) ((x) % BIG == 0)
#endif
#ifdef HINT
#ifdef WITHOUT_HINT_MAX         /* R1: counter := hint, even below eff + 1 */
#define NEXT(c, n) (hint[c] != 0 -> hint[c] : EFF_NOW(c, n) + 1)
#else
#define NEXT(c, n) MAX(EFF_NOW(c, n) + 1, hint[c])
#endif
#else
#define NEXT(c, n) (EFF_NOW(c, n) + 1)
#endif
#if RES == 1
#define EFF_NOW(c, n) EFF1(n, 0)
#else
#define EFF_NOW(c, n) EFF_ALL(c, n)
#endif

#ifdef TWICE
byte twice[ATTEMPTS];
#define SECOND_R1(c, n) (asked[c] & BIT(n)) && !(twice[c] & BIT(n)) && ADM(n) && FREE(c, n) && !OVERFLOW(NEXT(c, n))
#define STAMP_BY_SECOND(c, n) \
    if \
    :: phase[c] == CONFIRMING && v == T[c] -> stamped[c] = stamped[c] | BIT(n); check_complete(c) \
    :: else \
    fi
inline execute_again(c, n) {
    twice[c] = twice[c] | BIT(n);
    v = NEXT(c, n);
    write(c, n, v);
    STAMP(c, n, v);
    printf("node %d: ACQUIRE of %c once more, replies %d\n", n, LETTER(c), v)
}
#endif

/* ---- The requests of one attempt to one node ---- */
proctype connection(byte c; byte n) {
    do
    /* R1 ACQUIRE. HELD, UNINIT and OVERFLOW change nothing. */
    :: d_step { phase[c] != IDLE && !(asked[c] & BIT(n)) && ADM(n) && FREE(c, n) && !OVERFLOW(NEXT(c, n)) ->
        asked[c] = asked[c] | BIT(n);
        v = NEXT(c, n);
#ifdef WITHOUT_COUNTER_MAJORITY
        lease[n] = c;
#elif defined(WITHOUT_ONE_TOKEN) /* SEVERAL RESOURCES: one more for each bucket, instead of the same for all */
        for (r : ALL(c)) {
            counter[AT(n, r)] = EFF1(n, r) + 1;
            lease[AT(n, r)] = c
        }
#elif defined(WITHOUT_ALL_OR_NOTHING) /* SEVERAL RESOURCES: takes what is free, and says OK */
        for (r : ALL(c)) {
            counter[AT(n, r)] = v;
            if
            :: BOTH(c) && r == 0 && lease[AT(n, r)] != NOBODY ->
               printf("node %d: the lease on `a` stays with its holder\n", n)
            :: else -> lease[AT(n, r)] = c
            fi
        }
#else
        write(c, n, v);
        STAMP(c, n, v);
#endif
        printf("node %d: ACQUIRE of %c, replies %d\n", n, LETTER(c), v);
        if
        :: phase[c] == ASKING -> reply[LINK(c, n)] = v
        :: phase[c] == CONFIRMING ->
            reply[LINK(c, n)] = v;
            if
            :: STAMPS_BY_REPLY(v, T[c]) -> stamped[c] = stamped[c] | BIT(n); check_complete(c)
            :: else
            fi
        :: else
        fi }
#ifdef TWICE
    /* R1 is executed again (it accepts the caller's own nonce): either its reply arrives instead
     * of the first one, or it is lost. */
    :: d_step { SECOND_R1(c, n) -> execute_again(c, n); reply[LINK(c, n)] = (phase[c] == COMPLETE ->
       0 : v); STAMP_BY_SECOND(c, n) }
    :: d_step { SECOND_R1(c, n) -> execute_again(c, n) }
#endif
    /* R3 CONFIRM. Also after the grant is complete: late nodes get T. */
    :: d_step { phase[c] >= CONFIRMING && ADM(n) && CONFIRMABLE(c, n) && NOT_PAST(c, n, T[c]) ->
#ifdef WITHOUT_R3_COUNTER       /* R3 does not bring the counter to T */
        skip;
#elif defined(WITHOUT_R3_OWNER)
        for (r : ALL(c)) { counter[AT(n, r)] = T[c] };
#else
        STAMP(c, n, T[c]);
        for (r : ALL(c)) {
#ifdef INVARIANTS
            CHECK(T[c] >= counter[AT(n, r)], I2);       /* a counter never decreases, for any user of it */
#endif
            counter[AT(n, r)] = T[c];
            SET_TOKEN(n, r, T[c])
        };
#endif
        printf("node %d: CONFIRM of %c with T = %d, OK\n", n, LETTER(c), T[c]);
        if
        :: phase[c] == CONFIRMING -> stamped[c] = stamped[c] | BIT(n); check_complete(c)
        :: else
        fi }
#ifdef OLD_CONFIRM
    /* A CONFIRM that carries an older T is executed late: it changes the node; its OK is no stamp of the present T. */
    :: d_step { old[c] != 0 && ADM(n) && MINE(c, n) && EFF(c, n) <= old[c] ->
        STAMP(c, n, old[c]);
        for (r : ALL(c)) { counter[AT(n, r)] = old[c]; SET_TOKEN(n, r, old[c]) };
        printf("node %d: CONFIRM of %c with its older T = %d, OK\n", n, LETTER(c), old[c]);
#ifdef WITHOUT_SENT_T           /* R4, R5: the OK to an older T counts for the present T */
        if
        :: phase[c] == CONFIRMING -> stamped[c] = stamped[c] | BIT(n); check_complete(c)
        :: else
        fi
#else
        skip
#endif
        }
#endif
    /* R5 STALE(v): no effect on the node. */
    :: d_step { phase[c] == CONFIRMING && ADM(n) && MINE(c, n) && EFF(c, n) > T[c] -> v = EFF(c, n); raise(c, n) }
#ifdef SLACK
    :: d_step { phase[c] == CONFIRMING && ADM(n) && MINE(c, n) && EFF(c, n) > T[c] && !OVERFLOW_OF_T(EFF(c, n) + 1) ->
        v = EFF(c, n) + 1;
        raise(c, n) }
#endif
#ifdef CALLS
    :: d_step { call[c] >= 8 && !(call[c] & BIT(n)) && ADM(n) && MINE(c, n) && TOKEN_TEST(c, n) && BASE_TEST(c, n) ->
        call[c] = call[c] | BIT(n);
        printf("node %d: the lease is still %c's\n", n, LETTER(c));
        if
        :: COUNT(call[c] & 7) >= CALL_MAJORITY ->
            printf("=> %c is given %d again\n", LETTER(c), T[c]);
#ifdef REACH_CALL
            CHECK(!(crashes == CRASHES && draws == DRAWS && phase[0] == COMPLETE && phase[1] == COMPLETE), REACHED);
            call[c] = 0
#else
            CHECK(!NEWER(c), P2_AGAIN)
#endif
        :: else
        fi }
#endif
#if TOPUPS > 0
    /* TOP-UP: never (nonce, T) without the counter. */
    :: d_step { phase[c] == COMPLETE && topups < TOPUPS && !(topped[c] & BIT(n)) && ADM(n) && !MINE(c, n) &&
       FREE(c, n) && !TOPUP_OVERFLOW(EFF(c, n) + 1) ->
        topups++;
        topped[c] = topped[c] | BIT(n);
#ifdef WITHOUT_TOPUP_COUNTER    /* TOP-UP writes (nonce, T) and leaves the counter */
        lease[n] = c;
        token[n] = T[c];
#else
        v = MAX(EFF(c, n) + 1, T[c]);
        write(c, n, v);
        STAMP(c, n, v);
#endif
        printf("node %d: TOP-UP of %c, replies %d\n", n, LETTER(c), EFF(c, n)) }
#endif
#if UPGRADES > 0
    /* UPGRADE at any moment and whatever it has seen: the tokens of grants do not depend on that,
     * only exclusion does (upgrade.pml). */
    :: d_step { phase[c] == COMPLETE && upgrades < UPGRADES && ADM(n) && MINE(c, n) ->
        upgrades++;
#ifdef UPGRADE_PAST_COUNTER     /* UPGRADE: the stamp is a new number, which the counter does not get */
        v = EFF(c, n) + 1;
#else
        v = EFF(c, n);
        for (r : ALL(c)) { counter[AT(n, r)] = v };
#endif
#ifdef CALLS
        for (r : ALL(c)) { token[AT(n, r)] = T[c]; stamp[AT(n, r)] = v };
#endif
        STAMP(c, n, v);
        printf("node %d: UPGRADE of %c, the stamp is %d\n", n, LETTER(c), v) }
#endif
#ifdef WITHOUT_RENEW_ONLY       /* RENEW creates the lease where it is missing */
    :: d_step { phase[c] == COMPLETE && ADM(n) && !MINE(c, n) ->
        lease[n] = c;
        token[n] = T[c];
        printf("node %d: RENEW of %c creates the lease\n", n, LETTER(c)) }
#endif
#ifdef WITHOUT_RELEASE_OWNER    /* R7: RELEASE deletes the lease of any holder */
    :: d_step { phase[c] != IDLE && over[c] && lease[n] != NOBODY && ADM(n) ->
        lease[n] = NOBODY;
        printf("node %d: RELEASE of %c\n", n, LETTER(c)) }
#endif
#ifdef WITHOUT_RELEASE_KEEPING  /* R7: RELEASE deletes the counter too */
    :: d_step { phase[c] >= ASKING && MINE(c, n) && ADM(n) ->
        lease[n] = NOBODY;
        counter[n] = 0;
        printf("node %d: RELEASE of %c, and deletion of the counter\n", n, LETTER(c)) }
#endif
    od
}

/* ---- What happens to a node ---- */
/* R8: a node that may have forgotten does not vote until the leases given before have expired */
#if (CRASHES > 0 || FORGETS > 0) && defined(CLOCKS) && !defined(WITHOUT_QUARANTINE)
#define START_QUARANTINE(n) \
    for (i : 0 .. ATTEMPTS - 1) { \
        if \
        :: phase[i] != IDLE -> quarantined_for[n] = quarantined_for[n] | BIT(i) \
        :: else \
        fi \
    }
#define IN_QUARANTINE_FOR(n, c) ((quarantined_for[n] & BIT(c)) && !over[c])
#if ATTEMPTS == 2
#define IN_QUARANTINE(n) (IN_QUARANTINE_FOR(n, 0) || IN_QUARANTINE_FOR(n, 1))
#else
#define IN_QUARANTINE(n) (IN_QUARANTINE_FOR(n, 0) || IN_QUARANTINE_FOR(n, 1) || IN_QUARANTINE_FOR(n, 2))
#endif
#else
#define START_QUARANTINE(n) skip
#define IN_QUARANTINE(n) false
#endif
#define FORGET(n) \
    for (r : 0 .. RES - 1) { lease[AT(n, r)] = NOBODY; counter[AT(n, r)] = 0; SET_TOKEN(n, r, 0) }; \
    base[n] = 0; \
    admitted[n] = 0
#ifdef ROLLBACK
#define NOT_SAVED(n) !saved[n]
#else
#define NOT_SAVED(n) true
#endif
#ifndef RAISED                  /* whose bucket others raise: 0 of `a`, 1 of `b` */
#define RAISED (RES - 1)
#endif
proctype node(byte n) {
    do
    :: false
#if RAISES > 0
    /* Another resource of the bucket: R1 or R3 of its own, any higher number of the epoch. */
    :: d_step { raises < RAISES && ADM(n) && !OVERFLOW(EFF1(n, RAISED) + 1) ->
        raises++;
        counter[AT(n, RAISED)] = EFF1(n, RAISED) + 1;
        printf("node %d: another resource raises the bucket to %d\n", n, counter[AT(n, RAISED)]) }
    :: d_step { raises < RAISES && ADM(n) && EFF1(n, RAISED) + 2 < (epoch + 1) * BIG &&
       !OVERFLOW(EFF1(n, RAISED) + 2) ->
        raises++;
        counter[AT(n, RAISED)] = EFF1(n, RAISED) + 2;
        printf("node %d: another resource raises the bucket to %d\n", n, counter[AT(n, RAISED)]) }
#if DRAWS > 0
    :: d_step { raises < RAISES && ADM(n) && EFF1(n, RAISED) + 2 < epoch * BIG ->
        raises++;
        counter[AT(n, RAISED)] = epoch * BIG + 1;
        printf("node %d: another resource raises the bucket to %d\n", n, counter[AT(n, RAISED)]) }
#endif
#endif
#ifdef CLOCKS
    :: d_step { lease[n] != NOBODY && over[lease[n] % N] ->
       lease[n] = NOBODY; printf("node %d: the lease expires\n", n) }
#endif
#if CRASHES > 0
    /* A crash that loses everything. The run id is new. */
    :: d_step { NOT_SAVED(n) && crashes < CRASHES ->
        crashes++;
        live[n]++;
        START_QUARANTINE(n);
        FORGET(n);
        printf("node %d: CRASH, restarts empty (run id %d)\n", n, live[n]) }
    /* A crash that keeps everything (`appendfsync` is `always`: no quarantine is needed). */
    :: d_step { NOT_SAVED(n) && crashes < CRASHES ->
        crashes++;
        live[n]++;
/* R8: the register does not record that a node may have forgotten, so a restart ends the quarantine */
#ifdef WITHOUT_LOSS_RECORDED
        quarantined_for[n] = 0;
#endif
        printf("node %d: CRASH, restarts with all of its data (run id %d)\n", n, live[n]) }
#ifdef PARTLY
    /* The proof covers any older data; here the leases are kept and the counters are not. */
    :: d_step { NOT_SAVED(n) && crashes < CRASHES ->
        crashes++;
        live[n]++;
        for (r : 0 .. RES - 1) { counter[AT(n, r)] = 0 };
        printf("node %d: CRASH, restarts with its leases and without its counters (run id %d)\n", n, live[n]) }
#endif
#ifdef ROLLBACK
    /* The AOF: the node will restart with what is on the disk now. */
    :: d_step { !saved[n] && crashes < CRASHES ->
        crashes++;
        saved[n] = true;
        saved_admitted[n] = admitted[n];
        saved_base[n] = base[n];
        for (r : 0 .. RES - 1) {
            saved_lease[AT(n, r)] = lease[AT(n, r)];
            saved_counter[AT(n, r)] = counter[AT(n, r)];
#ifdef CALLS
            saved_token[AT(n, r)] = token[AT(n, r)];
#endif
        }
#ifdef SYNC
        changed[n] = true;
        printf("node %d: CONFIG SET appendonly no\n", n) }
#elif defined(OLD_FILE)
        printf("node %d: BGSAVE\n", n) }
#else
        printf("node %d: the last write that reaches the disk\n", n) }
#endif
    :: d_step { saved[n] ->
        live[n]++;
#ifdef OLD_FILE
/* R8: what is stored in the register suffices, although CONFIG SET was counted since the start */
#ifndef WITHOUT_START_SETTINGS
        START_QUARANTINE(n);
#endif
#elif !defined(SYNC)
        START_QUARANTINE(n);
#elif !defined(WITHOUT_REGISTER)        /* whether it syncs is stored on the node, and is rolled back with its data */
        if
        :: unsynced[n] -> START_QUARANTINE(n)
        :: else
        fi;
#endif
#ifdef SYNC
        changed[n] = false;
        unsynced[n] = false;
#endif
        saved[n] = false;
        admitted[n] = saved_admitted[n];
        base[n] = saved_base[n];
        saved_admitted[n] = 0;
        saved_base[n] = 0;
        for (r : 0 .. RES - 1) {
            lease[AT(n, r)] = saved_lease[AT(n, r)];
            counter[AT(n, r)] = saved_counter[AT(n, r)];
            saved_lease[AT(n, r)] = 0;
            saved_counter[AT(n, r)] = 0;
#ifdef CALLS
            token[AT(n, r)] = saved_token[AT(n, r)];
            saved_token[AT(n, r)] = 0;
#endif
        }
        printf("node %d: CRASH, restarts from its disk: lease %d (7 is nobody), counter %d, admitted %d (run id %d)\n",
            n, lease[n * RES], counter[n * RES], admitted[n], live[n]) }
#endif
#ifdef FLUSH
    /* R10: FLUSHALL. The run id stays, fg:node and the claim are gone. */
    :: d_step { crashes < CRASHES ->
        crashes++;
        claim[n]++;
        FORGET(n);
        printf("node %d: FLUSHALL\n", n) }
#endif
#endif
#if FORGETS > 0
    /* The data are replaced, or lost in part: the record of the admission is of this life, the rest is gone.
     * The command was counted. */
    :: d_step { forgets < FORGETS && admitted[n] == live[n] ->
        forgets++;
        lost[n]++;
        START_QUARANTINE(n);
        for (r : 0 .. RES - 1) { lease[AT(n, r)] = NOBODY; counter[AT(n, r)] = 0; SET_TOKEN(n, r, 0) };
        printf("node %d: FORGETS while it runs; its record says that it is admitted\n", n) }
    /* The same by a copy from before the admission, with the claim for which the epoch was drawn. */
    :: d_step { forgets < FORGETS && admitted[n] == live[n] && drew_run[n] == live[n] ->
        forgets++;
        lost[n]++;
        START_QUARANTINE(n);
        FORGET(n);
        claim[n] = drew_claim[n];
        printf("node %d: FORGETS while it runs; its record is from before the admission\n", n) }
    /* A gateway inspects the node: the admission and the claim are deleted. */
    :: d_step { admitted[n] == live[n] && marks[n] != lost[n] ->
        admitted[n] = 0;
        base[n] = 0;
#ifndef WITHOUT_CLAIM_DELETED
        claim[n]++;
#endif
        printf("node %d: a gateway sees that it has forgotten\n", n) }
#endif
#ifdef SYNC
    /* A gateway inspects the settings; the register records the result before the node votes again. */
    :: d_step { changed[n] -> changed[n] = false; unsynced[n] = true;
       printf("node %d: the register records that it does not sync\n", n) }
#endif
#ifdef WITHOUT_R10              /* R10: a counter is evicted */
    :: d_step { counter[n] != 0 -> counter[n] = 0; printf("node %d: the counter is evicted\n", n) }
#endif
#ifdef WITHOUT_EPOCH_COPIES     /* instead of an epoch, the highest counter of the other two */
    :: d_step { admitted[n] != live[n] && admitted[(n + 1) % N] == live[(n + 1) % N] &&
       admitted[(n + 2) % N] == live[(n + 2) % N] ->
        admitted[n] = live[n];
        counter[n] = MAX(counter[(n + 1) % N], counter[(n + 2) % N]);
        printf("node %d: readmitted with the counter %d of the others\n", n, counter[n]) }
#endif
    od
}

/* ---- R8 READMIT: one process for each epoch; the script may arrive at any later moment ---- */
#ifdef WITHOUT_DRAW_AFTER_READ       /* R8: the epoch is drawn before (a), and the run id read after */
#define SEEN(n) true
#define LIVES(n) true
#elif defined(WITHOUT_RUN_IN_SCRIPT)    /* R8: the script does not test the live run id */
#define SEEN(n) (admitted[n] != live[n])
#define LIVES(n) true
#else
#define SEEN(n) (admitted[n] != live[n])
#define LIVES(n) (seen == live[n])
#endif
/* A life consists of the process, the claim and the counts of commands that lose data. */
#if FORGETS > 0
#ifdef WITHOUT_LOST_IN_LIFE     /* the count is not part of the life */
#define LOST(n) 0
#else
#define LOST(n) lost[n]
#endif
#ifdef WITHOUT_LIFE             /* the register gives one epoch for each process instead of one for each life */
#define DREW(n) (drew_run[n] == live[n])
#else
#define DREW(n) (drew_run[n] == live[n] && drew_claim[n] == claim[n] && drew_lost[n] == LOST(n))
#endif
#endif
#if FORGETS > 0
#ifdef WITHOUT_MARKS_IN_READMIT /* READMIT compares only the claim */
#define SAME_CLAIM(n) (seen_claim == claim[n])
#else
#define SAME_CLAIM(n) (seen_claim == claim[n] && seen_lost == lost[n])
#endif
#elif defined(FLUSH) && !defined(WITHOUT_CLAIM)   /* R10: R8 is bound to the run id alone */
#define SAME_CLAIM(n) (seen_claim == claim[n])
#else
#define SAME_CLAIM(n) true
#endif
#ifdef WITHOUT_ALREADY          /* R8: the script does not test whether the node is admitted already */
#define NOT_ALREADY(n) true
#else
#define NOT_ALREADY(n) (admitted[n] != live[n])
#endif
#ifdef WITHOUT_COMMIT           /* R8: the register forgets the draw */
#define COMMIT(e) skip
#else
#define COMMIT(e) epoch = e
#endif
#define DRAW(n) \
    :: d_step { drawn == 0 && draws == me && SEEN(n) -> \
        DRAW_FOR(n); \
        draws++; \
        target = n; \
        seen = live[n]; \
        REMEMBER_CLAIM(n); \
        printf("epoch %d is drawn for node %d (run id %d)\n", drawn, n, seen) }
#if FORGETS > 0
#define DRAW_FOR(n) \
    if \
    :: DREW(n) -> drawn = drew_epoch[n] \
    :: else -> \
        drawn = epoch + 1; \
        COMMIT(drawn); \
        drew_run[n] = live[n]; \
        drew_claim[n] = claim[n]; \
        drew_lost[n] = LOST(n); \
        drew_epoch[n] = drawn \
    fi
#else
#define DRAW_FOR(n) drawn = epoch + 1; COMMIT(drawn)
#endif
#if FORGETS > 0
#define REMEMBER_CLAIM(n) seen_claim = claim[n]; seen_lost = lost[n]
#elif defined(FLUSH)
#define REMEMBER_CLAIM(n) seen_claim = claim[n]
#else
#define REMEMBER_CLAIM(n) skip
#endif
proctype readmission(byte me) {
    byte drawn;
    byte target;
    byte seen;
#if FORGETS > 0
    byte seen_claim;
    byte seen_lost;
#elif defined(FLUSH)
    byte seen_claim;
#endif
    do
    DRAW(0)
    DRAW(1)
    DRAW(2)
    :: d_step { drawn != 0 && target < N && LIVES(target) && SAME_CLAIM(target) && NOT_ALREADY(target) &&
       !IN_QUARANTINE(target) ->
        admitted[target] = live[target];
        base[target] = drawn * BIG;
#if FORGETS > 0
        marks[target] = lost[target];
#endif
#ifdef CLOCKS
        quarantined_for[target] = 0;
#endif
#ifdef WITHOUT_SYNC_AT_DRAW     /* R8: the epoch was drawn before CONFIG SET, and the register is not asked again */
        changed[target] = false;
#endif
        printf("node %d: READMIT with epoch %d\n", target, drawn);
        target = N;
        seen = 0 }
    /* GONE: it will never be executed. */
    :: d_step { drawn != 0 && target < N && (!LIVES(target) || !SAME_CLAIM(target)) -> target = N; seen = 0 }
    od
}

/* ---- Prints what is violated and ends the search. Started last, because spin runs the newest process first. ---- */
proctype report_violation() {
    do
    :: d_step { wrong == P1 -> printf("P1 is violated: two complete grants have the same token\n") }; assert(false)
    :: d_step { wrong == P2 ->
       printf("P2 is violated: a grant asked for after another was complete has the lower token\n") }; assert(false)
    :: d_step { wrong == P2_AGAIN ->
       printf("P2 is violated: the older token is given again after a newer grant was complete\n") }; assert(false)
    :: d_step { wrong == P3 -> printf("P3 is violated: two valid grants\n") }; assert(false)
    :: d_step { wrong == I1 -> printf("I1 is violated: a token above the range of the newest epoch\n") }; assert(false)
    :: d_step { wrong == I2 -> printf("I2 is violated: a counter decreases\n") }; assert(false)
    :: d_step { wrong == S_RISES -> printf("S is violated: the stamps on a node do not increase\n") }; assert(false)
#if defined(INVARIANTS) && RES == 1
    :: d_step { BAD_I2(0) || BAD_I2(1) || BAD_I2(2) ->
       printf("I2 is violated: an admitted node below its highest stamp\n") }; assert(false)
    :: d_step { BAD_I3(0) || BAD_I3(1) || BAD_I3(2) ->
       printf("I3 is violated: another's lease without a higher counter\n") }; assert(false)
#endif
    :: d_step { wrong == REACHED -> printf("reached\n") }; assert(false)
    od
}

/* ---- Any initial counters, left by attempts that failed before.
 * The nodes are alike, so only non-decreasing ones. ---- */
init {
    byte k;                     /* not `hidden`: the search returns to the choices here */
    atomic {
#if INIT > 0
        select (k : 0 .. INIT);
        counter[AT(2, 0)] = k;
        do
        :: k == 0 -> break
        :: k > 0 -> k--
        :: break
        od;
        counter[AT(1, 0)] = k;
        do
        :: k == 0 -> break
        :: k > 0 -> k--
        :: break
        od;
        counter[AT(0, 0)] = k;
        printf("the counters are %d %d %d\n", counter[AT(0, 0)], counter[AT(1, 0)], counter[AT(2, 0)]);
#endif
#ifdef RESTARTED
        live[2] = 2;
#endif
        run node(0);
        run node(1);
        run node(2);
        for (k : 0 .. ATTEMPTS - 1) {
            run attempt(k);
            run connection(k, 0);
            run connection(k, 1);
            run connection(k, 2)
        };
#if DRAWS > 0 && !defined(WITHOUT_EPOCHS) && !defined(WITHOUT_EPOCH_COPIES) && !defined(WITHOUT_COUNTER_MAJORITY)
        for (k : 0 .. DRAWS - 1) { run readmission(k) };
#endif
        run report_violation();
        k = 0
    }
}
