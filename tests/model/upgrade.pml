/* TOP-UP, UPGRADE and RENEW of one lease beside a rival (docs/protocol.md) as a Promela model:
 * whether a renewal may be answered. checks.tsv says with which macros it is searched;
 * lease.pml has the tokens of grants, readmit.pml the times of FAST READMISSION.
 *
 * What is modelled. Three nodes, a majority is two. The lease X is complete with the token T on nodes 0 and 1;
 * GATEWAYS gateways renew it and send TOP-UPs. Every step is one script on one node,
 * or one decision of a gateway; so each is a d_step.
 *
 * What is abstracted.
 * - Time. A key expires at any moment. A validity rests on the nodes whose OK made it,
 *   and is over once the key on one of these has expired, or earlier.
 *   A round of which a node answered OK is over when the key expires there.
 * - Messages. A TOP-UP is executed at any later moment or never, once.
 *   A RENEW that nobody waits for changes nothing here. An answer is used at once: used later, it is the answer
 *   of a request that is executed later. A late ACQUIRE and CONFIRM of X may be executed at any moment.
 * - The rival. Every other holder is R: it takes free keys and releases them at any moment.
 *   Two of its keys at one moment, or one and a key that a node has just forgotten,
 *   count as a complete and valid rival.
 * - Nodes. A restart that keeps the data needs an epoch only. After one that loses data (FORGETS),
 *   or restores older data (ROLLBACK), the node votes when the validities that rest on it are over (the quarantine),
 *   or with FAST after INSTALL; reads, INSTALL and READMIT are then one step, because no time passes in it.
 *
 * What is checked. No rival is complete while a validity lasts;
 * and a renewal is never answered once a rival was complete.
 * Sizes (macros): GATEWAYS 1|2; FREE_AT_FIRST: keys that node 2 lacks; TAKES by the rival; SENDS of TOP-UP; RESTARTS;
 *   LOSSES; RAISES of a bucket by others; LATE: ACQUIRE of X arrives late on these nodes (bits).
 *   ONE_LIFE: a loss leaves the run id, so requests that were sent before are accepted after the readmission.
 * Weakened rules: every macro WITHOUT_* and those with a comment. REACH_* asserts that a state is never reached.
 */
#ifndef GATEWAYS
#define GATEWAYS 1
#endif
#ifndef TAKES
#define TAKES 3
#endif
#ifndef SENDS
#define SENDS 2
#endif
#ifndef RESTARTS
#define RESTARTS 0
#endif
#ifndef LOSSES
#define LOSSES 0
#endif
#ifndef RAISES
#define RAISES 0
#endif
#ifndef LATE
#define LATE 0
#endif
#define N 3
#define MAJORITY 2
#define T 2
#define BIG 16
#define BIT(n) (1 << (n))
#define COUNT(m) (((m) & 1) + (((m) >> 1) & 1) + (((m) >> 2) & 1))
#define MAX(x, y) ((x) > (y) -> (x) : (y))
#define AT(g, n) ((g) * N + (n))

/* ---- State: a node ---- */
#define FREE 0
#define X 1
#define R 2
#define BLOCK 3                 /* a key that nobody releases: INSTALL found different holders */
#define OLD 4                   /* another holder's key that came back with older data */
byte owner[N];
byte stamp[N];                  /* of X; 0 for another */
bit has_token[N];               /* the token of X's lease is T */
byte counter[N] = T;
byte base[N];
bit admitted[N] = 1;
bit forgot[N];                  /* it may have forgotten leases since it voted */
#ifdef DRAWN_BEFORE_READS
byte drawn[N];
#endif
#ifdef ROLLBACK
bit saved[N];
byte saved_owner[N], saved_stamp[N], saved_counter[N];
bit saved_token[N];
#endif
byte epoch, takes, sends, restarts, losses, raises, late_on;
byte rival_on;                  /* nodes whose OK the rival's attempt has */
bit rival_was_complete;
/* ---- State: a gateway ---- */
#define IDLE 0
#define ASKING 1                /* RENEW was sent */
#define RENEWED 2               /* and a majority answered OK */
byte phase[2];
bit valid[2];                   /* this gateway's own validity of the lease lasts */
byte rests_on[2];               /* nodes */
byte ok[2];                     /* nodes that answered OK to the present RENEW */
byte upgraded[2];               /* nodes that count by the TOP-UP after it */
byte seen[6];                   /* 0 no answer, MISSING, or KNOWN + S of `2 S` */
#define MISSING 1
#define KNOWN 2
byte message[6];                /* TOP-UP in transit, 0 or what it carries as `seen` */
bit present[6];                 /* its reply belongs to the present round */

hidden byte c, i;

#define EFF(n) MAX(counter[n], base[n])
#define ADM(n) admitted[n]
/* a lease counts where it has the token T, also if it was written before the last admission */
#ifdef WITHOUT_BASE_TEST
#define COUNTS(n) (owner[n] == X && has_token[n])
#else
#define COUNTS(n) (owner[n] == X && has_token[n] && stamp[n] >= base[n])
#endif
/* What a node answers as S, and compares with `seen`. */
#ifdef STAMP_ALONE              /* the stamp, instead of max(stamp, base) */
#define NUMBER(n) stamp[n]
#else
#define NUMBER(n) MAX(stamp[n], base[n])
#endif
#ifdef WITHOUT_SEEN             /* UPGRADE does not compare */
#define SAME(m, n) true
#else
#define SAME(m, n) ((m) == KNOWN + NUMBER(n))
#endif

#ifdef WITHOUT_TIME_OF_TOP_UP   /* TOP-UP is sent, or sent again, when the validity is over */
#define MAY_TOP_UP(g) true
#else
#define MAY_TOP_UP(g) valid[g]
#endif
inline end_round(g) {
    phase[g] = IDLE; ok[g] = 0; upgraded[g] = 0;
    for (i : 0 .. N - 1) { seen[AT(g, i)] = 0; present[AT(g, i)] = 0 }
}
inline end_validity(g) {
    valid[g] = 0; rests_on[g] = 0;
    printf("   the validity at gateway %d is over\n", g);
    if
    :: phase[g] == RENEWED && !MAY_TOP_UP(g) -> end_round(g)
    :: else
    fi
}
/* X's key on node n has expired, or a node that lost it votes again. */
#define LOSE_AT(g, n) \
    if :: rests_on[g] & BIT(n) -> end_validity(g) :: else fi; \
    if :: (ok[g] | upgraded[g]) & BIT(n) -> end_round(g) :: else fi
#define LOSE(n) LOSE_AT(0, n); LOSE_AT(1, n)
/* where the lease counts already, TOP-UP does not set PX: the key may expire before the new validity ends */
#ifdef TOP_UP_WITHOUT_PX
byte shorter[2];
#define KEEPS_TIME(g, n) shorter[g] = shorter[g] | BIT(n)
#define DROP_SHORTER(g) rests_on[g] = rests_on[g] & (7 - shorter[g]); shorter[g] = 0
#else
#define KEEPS_TIME(g, n) skip
#define DROP_SHORTER(g) skip
#endif
inline renewed(g) {
    printf("=> gateway %d: the lease is renewed on the nodes %d (bits)\n", g, ok[g] | upgraded[g]);
    assert(!rival_was_complete);
#ifdef REACH_RENEWAL            /* by UPGRADE, after every restart */
    assert(!(restarts == RESTARTS && losses == LOSSES && upgraded[g]));
#endif
    valid[g] = 1; rests_on[g] = ok[g] | upgraded[g];
    DROP_SHORTER(g);
    ok[g] = 0; upgraded[g] = 0; phase[g] = RENEWED
}
#ifdef WITHOUT_OLD_VALIDITY     /* UPGRADE of a minority, whether or not the old validity lasts */
#define MAY_UPGRADE(g) true
#define STILL_VALID(g) true
#elif defined(OLD_VALIDITY_TESTED_FIRST)    /* it is tested before RENEW is sent, and not again */
#define MAY_UPGRADE(g) was_valid[g]
#define STILL_VALID(g) true
#elif defined(OLD_VALIDITY_TESTED_BY_SEND)  /* it is tested when TOP-UP is sent, and not again */
#define MAY_UPGRADE(g) valid[g]
#define STILL_VALID(g) true
#else
#define MAY_UPGRADE(g) valid[g]
#define STILL_VALID(g) valid[g]
#endif
inline evaluate(g) {
    if
    :: phase[g] == ASKING && COUNT(ok[g]) >= MAJORITY -> upgraded[g] = 0; renewed(g)
    :: phase[g] == ASKING && COUNT(ok[g]) < MAJORITY && COUNT(ok[g] | upgraded[g]) >= MAJORITY &&
       STILL_VALID(g) -> renewed(g)
    :: else
    fi
}

/* ---- RENEW ---- */
#ifdef OLD_VALIDITY_TESTED_FIRST
bit was_valid[2];
#define REMEMBER_VALIDITY(g) was_valid[g] = valid[g]
#else
#define REMEMBER_VALIDITY(g) skip
#endif
#define BEGIN(g) :: d_step { phase[g] != ASKING -> end_round(g); phase[g] = ASKING; REMEMBER_VALIDITY(g); \
  printf("gateway %d sends RENEW\n", g) } \
  :: d_step { phase[g] == ASKING -> end_round(g); printf("gateway %d: the renewal fails\n", g) }
#define ANSWER(g, n) \
  :: d_step { (phase[g] == ASKING || (phase[g] == RENEWED && !(rests_on[g] & BIT(n)))) && ADM(n) && \
     !((ok[g] | upgraded[g]) & BIT(n)) && seen[AT(g, n)] == 0 -> \
     if \
     :: COUNTS(n) && phase[g] == ASKING -> ok[g] = ok[g] | BIT(n); \
        printf("node %d: RENEW of gateway %d, OK\n", n, g); evaluate(g) \
     :: !COUNTS(n) && owner[n] == X -> seen[AT(g, n)] = KNOWN + NUMBER(n); \
        printf("node %d: RENEW of gateway %d, lost, %d\n", n, g, NUMBER(n)) \
     :: !COUNTS(n) && owner[n] != X -> seen[AT(g, n)] = MISSING \
     :: else \
     fi }

/* ---- TOP-UP and UPGRADE ---- */
#define HAS_NONCE(g, n) (seen[AT(g, n)] >= KNOWN -> BIT(n) : 0)
#define HAVE_NONCE(g) (ok[g] | upgraded[g] | HAS_NONCE(g, 0) | HAS_NONCE(g, 1) | HAS_NONCE(g, 2))
#define SEND(g, n) \
  :: d_step { message[AT(g, n)] == 0 && seen[AT(g, n)] != 0 && sends < SENDS && \
              ((phase[g] == RENEWED && MAY_TOP_UP(g)) || (phase[g] == ASKING && MAY_UPGRADE(g) && \
                seen[AT(g, n)] >= KNOWN && COUNT(HAVE_NONCE(g)) >= MAJORITY)) -> \
     sends++; message[AT(g, n)] = seen[AT(g, n)]; seen[AT(g, n)] = 0; present[AT(g, n)] = 1; \
     printf("gateway %d sends TOP-UP to node %d, seen = %d (-1: '')\n", g, n, message[AT(g, n)] - KNOWN) }
#ifdef TOP_UP_COUNTS            /* TOP-UP writes the token T although c is another number */
#define IS_T(x) 1
#else
#define IS_T(x) ((x) == T)
#endif
#if defined(UPGRADE_KEEPS_COUNTER)
#define UPGRADE(n) stamp[n] = EFF(n)
#else
#define UPGRADE(n) counter[n] = EFF(n); stamp[n] = counter[n]
#endif
inline reply(g, n, counting) {
    if
    :: present[AT(g, n)] && counting && phase[g] == ASKING -> upgraded[g] = upgraded[g] | BIT(n); evaluate(g)
    :: present[AT(g, n)] && !counting -> seen[AT(g, n)] = KNOWN + NUMBER(n)
    :: else
    fi;
    present[AT(g, n)] = 0
}
#define TOP_UP(g, n) \
  :: d_step { message[AT(g, n)] != 0 && ADM(n) -> \
     i = message[AT(g, n)]; message[AT(g, n)] = 0; \
     if \
     :: owner[n] == FREE -> \
        c = MAX(EFF(n) + 1, T); counter[n] = c; stamp[n] = c; owner[n] = X; has_token[n] = IS_T(c); \
        printf("node %d: TOP-UP of gateway %d, replies %d\n", n, g, c); \
        if :: COUNTS(n) -> reply(g, n, 1) :: else -> reply(g, n, 0) fi \
     :: COUNTS(n) -> KEEPS_TIME(g, n); reply(g, n, 1) \
     :: owner[n] == X && !COUNTS(n) && SAME(i, n) -> \
        UPGRADE(n); has_token[n] = 1; \
        printf("node %d: UPGRADE of gateway %d, the stamp is %d\n", n, g, stamp[n]); \
        reply(g, n, 1) \
     :: owner[n] == X && !COUNTS(n) && !SAME(i, n) -> \
        printf("node %d: TOP-UP of gateway %d, not counting, %d\n", n, g, NUMBER(n)); reply(g, n, 0) \
     :: else -> present[AT(g, n)] = 0 \
     fi }

/* ---- Late requests of X's attempt ---- */
#define LATE_REQUESTS(n) \
  :: d_step { (LATE & BIT(n)) && !(late_on & BIT(n)) && ADM(n) && (owner[n] == FREE || owner[n] == X) -> \
     late_on = late_on | BIT(n); counter[n] = EFF(n) + 1; owner[n] = X; stamp[n] = counter[n]; \
       has_token[n] = (stamp[n] == T); \
     printf("node %d: a late ACQUIRE, replies %d\n", n, stamp[n]) } \
  :: d_step { LATE && ADM(n) && owner[n] == X && !COUNTS(n) && EFF(n) <= T -> counter[n] = T; stamp[n] = T; \
     has_token[n] = 1; printf("node %d: a late CONFIRM\n", n) }

/* ---- Time, the rival and other resources ---- */
#define OVER(g) :: d_step { valid[g] -> end_validity(g) }
#define EMPTY(n) owner[n] = FREE; stamp[n] = 0; has_token[n] = 0
#define EXPIRE(n) \
  :: d_step { owner[n] == X -> EMPTY(n); printf("node %d: the key expires\n", n); LOSE(n) } \
  :: d_step { owner[n] == R || owner[n] == OLD -> EMPTY(n); rival_on = rival_on & (7 - BIT(n)); \
     printf("node %d: the key of another ends\n", n) } \
  :: d_step { owner[n] == BLOCK -> \
     EMPTY(n); printf("node %d: the block expires, not before the leases for which it was made\n", n); LOSE(n) }
#define TAKE(n) \
  :: d_step { owner[n] == FREE && ADM(n) && takes < TAKES -> \
     takes++; counter[n] = EFF(n) + 1; owner[n] = R; rival_on = rival_on | BIT(n); \
       printf("node %d: the rival takes it, %d\n", n, counter[n]); \
     if \
     :: COUNT(rival_on) >= MAJORITY -> rival_was_complete = 1; printf("=> the rival is complete\n"); \
        assert(!valid[0] && !valid[1]) \
     :: else \
     fi }
#define RAISE(n) :: d_step { raises < RAISES && ADM(n) -> raises++; counter[n] = EFF(n) + 1; \
  printf("node %d: another resource raises the bucket\n", n) }

/* ---- Restarts ---- */
#ifdef ONE_LIFE
#define DROP_REQUESTS(n)
#else
#define DROP_REQUESTS(n) message[AT(0, n)] = 0; present[AT(0, n)] = 0; message[AT(1, n)] = 0; present[AT(1, n)] = 0;
#endif
#define RESTART(n) \
  :: d_step { restarts < RESTARTS -> restarts++; admitted[n] = 0; message[AT(0, n)] = 0; present[AT(0, n)] = 0; \
     message[AT(1, n)] = 0; present[AT(1, n)] = 0; \
     NOTE_EPOCH(n) printf("node %d: restarts with its data\n", n) }
#ifdef ROLLBACK
#define NOT_SAVED(n) !saved[n]
#define ROLL_BACK(n) \
  :: d_step { !saved[n] && losses < LOSSES -> losses++; saved[n] = 1; \
     saved_owner[n] = owner[n]; saved_stamp[n] = stamp[n]; saved_counter[n] = counter[n]; \
       saved_token[n] = has_token[n]; printf("node %d: the last write that is kept\n", n) } \
  :: d_step { saved[n] -> saved[n] = 0; admitted[n] = 0; forgot[n] = 1; DROP_REQUESTS(n) NOTE_EPOCH(n) \
     owner[n] = (saved_owner[n] == R -> OLD : saved_owner[n]); stamp[n] = saved_stamp[n]; \
       counter[n] = saved_counter[n]; has_token[n] = saved_token[n]; base[n] = 0; \
     saved_owner[n] = 0; saved_stamp[n] = 0; saved_counter[n] = 0; saved_token[n] = 0; \
     printf("node %d: its older data are back: owner %d, stamp %d\n", n, owner[n], stamp[n]) }
#else
#define NOT_SAVED(n) true
#define ROLL_BACK(n)
#endif
#define FORGET(n) \
  :: d_step { NOT_SAVED(n) && losses < LOSSES -> losses++; admitted[n] = 0; forgot[n] = 1; \
     DROP_REQUESTS(n) NOTE_EPOCH(n) \
     EMPTY(n); counter[n] = 0; base[n] = 0; printf("node %d: forgets everything\n", n) }
#ifdef DRAWN_BEFORE_READS       /* the epoch is as old as the loss; another node's may be newer */
#define NOTE_EPOCH(n) drawn[n] = epoch + 1;
#define DRAW(n) if :: epoch < drawn[n] -> epoch = drawn[n] :: else fi; base[n] = drawn[n] * BIG; drawn[n] = 0
#else
#define NOTE_EPOCH(n)
#define DRAW(n) epoch++; base[n] = epoch * BIG
#endif
#ifdef WITHOUT_QUARANTINE
#define WAIT(n) skip
#else
#define WAIT(n) LOSE(n); if :: owner[n] != R -> rival_on = rival_on & (7 - BIT(n)) :: else fi
#endif
#define READMIT(n) \
  :: d_step { !admitted[n] -> DRAW(n); if :: forgot[n] -> WAIT(n) :: else fi; forgot[n] = 0; admitted[n] = 1; \
     printf("node %d: READMIT, base %d\n", n, base[n]) }
#ifdef FAST
/* A reply that is read after D is none, and D is over before the reads: no round continues. */
#ifdef WITHOUT_D
#define END_ROUNDS(n) skip
#else
#define END_ROUNDS(n) if :: phase[0] == ASKING -> end_round(0) :: else fi; if :: phase[1] == ASKING -> \
  end_round(1) :: else fi; rival_on = rival_on & (7 - BIT(n))
#endif
#ifdef COPIED_STAMP             /* the installed lease has the stamp of the copies instead of 0 */
#define INSTALLED_STAMP(a, b) MAX(stamp[a], stamp[b])
#else
#define INSTALLED_STAMP(a, b) 0
#endif
#define INSTALL(n, a, b) \
  :: d_step { !admitted[n] && forgot[n] && ADM(a) && ADM(b) -> \
     END_ROUNDS(n); \
     if \
     :: owner[a] == FREE && owner[b] == FREE -> skip \
     :: (owner[a] == X && (owner[b] == X || owner[b] == FREE)) || (owner[b] == X && owner[a] == FREE) -> \
        owner[n] = X; stamp[n] = INSTALLED_STAMP(a, b); has_token[n] = has_token[a] || has_token[b] \
     :: (owner[a] == R && (owner[b] == FREE || owner[b] == R)) || (owner[b] == R && owner[a] == FREE) -> \
        EMPTY(n); owner[n] = R \
     :: else -> EMPTY(n); owner[n] = BLOCK \
     fi; \
     DRAW(n); forgot[n] = 0; admitted[n] = 1; \
       printf("node %d: INSTALL of owner %d and READMIT, base %d\n", n, owner[n], base[n]) }
#else
#define INSTALL(n, a, b)
#endif

#define GATEWAY(g, n) ANSWER(g, n) SEND(g, n) TOP_UP(g, n)
#define NODE(n) LATE_REQUESTS(n) EXPIRE(n) TAKE(n) RAISE(n) RESTART(n) FORGET(n) ROLL_BACK(n) READMIT(n)
active proctype cluster() {
    d_step {
        owner[0] = X; stamp[0] = T; has_token[0] = 1;
        owner[1] = X; stamp[1] = T; has_token[1] = 1;
        valid[0] = 1; rests_on[0] = 3
    }
    if
    :: counter[2] = T - 1
    :: counter[2] = T
    :: counter[2] = T + 1
    fi;
    printf("X is complete with the token %d on the nodes 0 and 1; the counter of node 2 is %d\n", T, counter[2]);
    do
    BEGIN(0) OVER(0) GATEWAY(0, 0) GATEWAY(0, 1) GATEWAY(0, 2)
#if GATEWAYS >= 2
    BEGIN(1) OVER(1) GATEWAY(1, 0) GATEWAY(1, 1) GATEWAY(1, 2)
#endif
    NODE(0) NODE(1) NODE(2)
    INSTALL(0, 1, 2) INSTALL(1, 0, 2) INSTALL(2, 0, 1)
    od
}
