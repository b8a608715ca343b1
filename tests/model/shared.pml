/* Shared leases on the nodes (docs/protocol.md, SHARED LEASES) as a Promela model.
 * checks.tsv says with which macros it is searched.
 *
 * What is modelled. Three nodes, a majority is two. Three attempts want the resources `a` and `b`, each of them
 * exclusive, shared or not at all. A shared one and another shared one may be on a node together.
 * Every step is one script on one node, or one decision of a gateway; so each is a d_step.
 *
 * What is abstracted.
 * - Messages. A request is executed by the node at any later moment, once, or never. The reply is used at once, or
 *   the request is executed later, but not when the attempt is over. CONFIRM is sent with the newest T;
 *   lease.pml has the older ones.
 * - A lease of several resources is on a node with all of them or not at all: one bit for each attempt.
 * - `over`: the validity has ended, or the attempt has failed and is undone. Then its leases may end, each on its own.
 * - LOSSES: a node forgets and gets what the others have at the same moment, as in close.pml: replies of attempts that
 *   are not complete do not count there any more. A copy that was installed does not count, so it is no stamp.
 *   RENEW, TOP-UP and UPGRADE test a lease of their own on each node, as they do now: upgrade.pml.
 * - The mark of an exclusive waiter is kept until it is over: where it has the lease that is enough.
 *
 * What is checked. Exclusion: no exclusive lease is valid beside another one on the same resource.
 * Tokens: of two grants that exclude each other no two are equal, and one that was asked for when another was complete
 * has the higher one. Waiting: no shared grant that was asked for after an exclusive waiter was refused by a majority
 * is complete before it, and before it is over.
 * Weakened rules: the macros with a comment. REACH_SHARED: two shared leases are valid together. REACH_AFTER: an
 * exclusive one is complete after a shared one.
 */
#define N 3
#define ALL 7
#define BIT(i) (1 << (i))
#define COUNT(m) (((m) & 1) + (((m) >> 1) & 1) + (((m) >> 2) & 1))
#define MAX(x, y) ((x) > (y) -> (x) : (y))
#define LETTER(c) ('A' + (c))
#ifndef LOSSES
#define LOSSES 0
#endif
#define BIG 8                   /* the numbers of an epoch */

/* What each attempt wants, as bits: 1 is `a`, 2 is `b`. */
#ifdef MIXED                    /* A wants `a` and shares `b`, B wants `b`, C shares `a` */
#define WANTS(c) ((c) == 0 -> 1 : ((c) == 1 -> 2 : 0))
#define SHARES(c) ((c) == 0 -> 2 : ((c) == 1 -> 0 : 1))
#elif defined(TWO_EXCLUSIVE)    /* A shares `a`, B and C want it */
#define WANTS(c) ((c) >= 1)
#define SHARES(c) ((c) == 0)
#else                           /* A and B share `a`, C wants it */
#define WANTS(c) ((c) == 2)
#define SHARES(c) ((c) < 2)
#endif
#define EXCLUDE(c, d) ((c) != (d) && ((WANTS(c) & (WANTS(d) | SHARES(d))) || (SHARES(c) & WANTS(d))))

#define IDLE 0
#define ASKING 1
#define CONFIRMING 2
#define COMPLETE 3
byte phase[N], T[N], asked[N], stamped[N];
byte reply[9];                  /* of attempt c on node n: c * 3 + n; 0 none */
byte before[N];                 /* the attempts that were complete when this one was asked for, bits */
byte waiters[N];                /* the exclusive waiters that a majority had refused then */
bit over[N];
byte lease[N];                  /* the attempts that have a lease on this node, bits */
byte counter[6];                /* of `a` and `b` on node n: 2 * n, 2 * n + 1 */
byte waiting[N];                /* the exclusive waiters that left a mark */
byte blocked[N];                /* a block: until these attempts are over */
byte base[N], losses;
byte v;

#define HAS(c, n) ((lease[n] >> (c)) & 1)
#define MEETS(c, d, n) (HAS(d, n) && EXCLUDE(c, d))
#ifdef SHARED_OVER_EXCLUSIVE    /* a shared request is granted beside an exclusive lease */
#define IS_FREE(c, n) (!WANTS(c) || !(MEETS(c, 0, n) || MEETS(c, 1, n) || MEETS(c, 2, n)))
#elif defined(FIRST_RESOURCE)   /* of a lease of several resources only the first one is tested */
#define IS_FREE(c, n) (!(c == 0 && HAS(2, n)) && !(c == 2 && HAS(0, n)))
#elif defined(HAND_OVER)        /* C gets the place of A and with it that of the other shared leases */
#define IS_FREE(c, n) ((c == 2 && HAS(0, n)) || !(MEETS(c, 0, n) || MEETS(c, 1, n) || MEETS(c, 2, n)))
#else
#define IS_FREE(c, n) (!(MEETS(c, 0, n) || MEETS(c, 1, n) || MEETS(c, 2, n)))
#endif
#ifndef WAITS
#define MAY_WAIT(c, n) false
#else
#define MAY_WAIT(c, n) (WANTS(c) && !over[c] && !(asked[c] & BIT(n)) && !(waiting[n] & BIT(c)))
#endif
#ifdef WITHOUT_WAIT_MARK        /* the mark of a waiting exclusive request refuses nobody */
#define REFUSES(c, n) false
#else
#define REFUSES(c, n) (!WANTS(c) && waiting[n])
#endif
#ifdef ONE_HOLDER               /* a node remembers only the newest shared holder */
#define GRANTED(c, n) BIT(c)
#else
#define GRANTED(c, n) (lease[n] | BIT(c))
#endif
#ifdef ENDS_TOGETHER            /* the end of one shared lease is that of the index, and so of all */
#define LEFT(c, n) 0
#else
#define LEFT(c, n) (lease[n] & (ALL - BIT(c)))
#endif
#define EFF(n, r) MAX(counter[2 * (n) + (r)], base[n])
#ifdef EXCLUSIVE_COUNTERS       /* the counters of shared resources are neither read nor raised */
#define USES(c) WANTS(c)
#else
#define USES(c) (WANTS(c) | SHARES(c))
#endif
#define HIGHEST(c, n) MAX(((USES(c) & 1) -> EFF(n, 0) : base[n]), ((USES(c) & 2) -> EFF(n, 1) : base[n]))
#ifdef SHARED_KEEPS_COUNTER     /* a shared grant has the number that is there */
#define NEXT(c, n) MAX(HIGHEST(c, n) + (WANTS(c) != 0), 1)
#else
#define NEXT(c, n) (HIGHEST(c, n) + 1)
#endif
#define SET_COUNTERS(c, n, x) \
    if :: USES(c) & 1 -> counter[2 * n] = x :: else fi; \
    if :: USES(c) & 2 -> counter[2 * n + 1] = x :: else fi
#define CONFIRMS(c, n) (HIGHEST(c, n) <= T[c])
#ifdef SHARED_NOT_COPIED        /* FAST READMISSION copies exclusive leases only */
#define COPIES(a, b) ((lease[a] | lease[b]) & ((WANTS(0) != 0) | (WANTS(1) != 0) << 1 | (WANTS(2) != 0) << 2))
#else
#define COPIES(a, b) (lease[a] | lease[b])
#endif
#define BOTH(m, c, d) (((m) & BIT(c)) && ((m) & BIT(d)) && EXCLUDE(c, d))
#ifdef WITHOUT_BLOCK            /* each key by itself: the shared leases are installed and no block */
#define INSTALL(n) lease[n] = v & ((SHARES(0) != 0) | (SHARES(1) != 0) << 1 | (SHARES(2) != 0) << 2)
#else
#define INSTALL(n) lease[n] = 0; blocked[n] = v
#endif

#define IS_WAITED(x) (COUNT(((waiting[0] >> (x)) & 1) | (((waiting[1] >> (x)) & 1) << 1) | \
  (((waiting[2] >> (x)) & 1) << 2)) >= 2 && phase[x] != COMPLETE && !over[x])
#define CHECK_PAIR(c, d) \
    assert(!(EXCLUDE(c, d) && phase[d] == COMPLETE && !over[d]));       /* Exclusion */ \
    assert(!(EXCLUDE(c, d) && phase[d] == COMPLETE && T[c] == T[d])); \
    assert(!(EXCLUDE(c, d) && (before[c] & BIT(d)) && T[c] <= T[d])); \
    assert(!((waiters[c] & BIT(d)) && EXCLUDE(c, d) && phase[d] != COMPLETE && !over[d]))
#ifdef REACH_SHARED
#define CHECK_ALL(c) assert(!(c < 2 && phase[0] == COMPLETE && phase[1] == COMPLETE && !over[0] && !over[1]))
#elif defined(REACH_AFTER)
#define CHECK_ALL(c) assert(!(c == 2 && before[c] != 0))
#else
#define CHECK_ALL(c) CHECK_PAIR(c, 0); CHECK_PAIR(c, 1); CHECK_PAIR(c, 2)
#endif
/* What is not needed any more is cleared, so that there are fewer states. */
#define CLEAR(c) \
    reply[3 * c] = 0; reply[3 * c + 1] = 0; reply[3 * c + 2] = 0; stamped[c] = 0; before[c] = 0; waiters[c] = 0
#define TRY_COMPLETE(c) \
    if \
    :: phase[c] == CONFIRMING && COUNT(stamped[c]) >= 2 && !over[c] -> phase[c] = COMPLETE; \
       printf("=> %c is complete with the token %d\n", LETTER(c), T[c]); CHECK_ALL(c); CLEAR(c) \
    :: else \
    fi

#define ATTEMPT(c) \
  :: d_step { phase[c] == IDLE -> phase[c] = ASKING; \
     before[c] = (phase[0] == COMPLETE && EXCLUDE(c, 0)) | (phase[1] == COMPLETE && EXCLUDE(c, 1)) << 1 | \
       (phase[2] == COMPLETE && EXCLUDE(c, 2)) << 2; \
     if :: !WANTS(c) -> waiters[c] = IS_WAITED(0) | IS_WAITED(1) << 1 | IS_WAITED(2) << 2 :: else fi; \
     printf("%c is asked for\n", LETTER(c)) } \
  :: d_step { phase[c] == ASKING && !over[c] && COUNT((reply[3 * c] != 0) | (reply[3 * c + 1] != 0) << 1 | \
     (reply[3 * c + 2] != 0) << 2) >= 2 -> \
     T[c] = MAX(MAX(reply[3 * c], reply[3 * c + 1]), reply[3 * c + 2]); phase[c] = CONFIRMING; \
     stamped[c] = (reply[3 * c] == T[c]) | (reply[3 * c + 1] == T[c]) << 1 | (reply[3 * c + 2] == T[c]) << 2; \
     printf("%c has the token %d\n", LETTER(c), T[c]); TRY_COMPLETE(c) } \
  :: d_step { phase[c] != IDLE && !over[c] -> over[c] = 1; printf("%c is over\n", LETTER(c)); CLEAR(c); \
     if :: phase[c] != COMPLETE -> T[c] = 0; phase[c] = CONFIRMING :: else fi }

#define NODE(c, n) \
  :: d_step { phase[c] != IDLE && !over[c] && !(asked[c] & BIT(n)) && IS_FREE(c, n) && !blocked[n] && \
     !REFUSES(c, n) -> \
     asked[c] = asked[c] | BIT(n); v = NEXT(c, n); SET_COUNTERS(c, n, v); lease[n] = GRANTED(c, n); \
     reply[3 * c + n] = (phase[c] == COMPLETE -> 0 : v); \
     printf("node %d: ACQUIRE of %c, the counter is %d\n", n, LETTER(c), v); \
     if :: phase[c] == CONFIRMING && v == T[c] -> stamped[c] = stamped[c] | BIT(n); TRY_COMPLETE(c) \
     :: else fi; v = 0 } \
  :: d_step { phase[c] != IDLE && MAY_WAIT(c, n) && !IS_FREE(c, n) -> waiting[n] = waiting[n] | BIT(c); \
     printf("node %d: HELD for %c, which waits\n", n, LETTER(c)) } \
  :: d_step { phase[c] == CONFIRMING && !(stamped[c] & BIT(n)) && reply[3 * c + n] && HAS(c, n) -> \
     if \
     :: CONFIRMS(c, n) -> SET_COUNTERS(c, n, T[c]); stamped[c] = stamped[c] | BIT(n); \
        printf("node %d: CONFIRM of %c, %d\n", n, LETTER(c), T[c]); TRY_COMPLETE(c) \
     :: else -> T[c] = HIGHEST(c, n); stamped[c] = 0; printf("node %d: STALE for %c\n", n, LETTER(c)) \
     fi } \
  :: d_step { over[c] && HAS(c, n) -> lease[n] = LEFT(c, n); printf("node %d: the lease of %c ends\n", n, LETTER(c)) } \
  :: d_step { over[c] && (waiting[n] & BIT(c)) -> waiting[n] = waiting[n] & (ALL - BIT(c)) } \
  :: d_step { over[c] && (blocked[n] & BIT(c)) -> blocked[n] = blocked[n] & (ALL - BIT(c)) }

/* A request that was sent before is refused by the new life of the node; an answer of the old one does not count. */
#define LOSE(c, n) \
    if \
    :: phase[c] != IDLE -> asked[c] = asked[c] | BIT(n); reply[3 * c + n] = 0; \
       if :: phase[c] != COMPLETE -> stamped[c] = stamped[c] & (ALL - BIT(n)) :: else fi \
    :: else \
    fi
#define FORGET(n, a, b) \
  :: d_step { losses < LOSSES -> losses++; base[n] = losses * BIG; \
     counter[2 * n] = 0; counter[2 * n + 1] = 0; waiting[n] = 0; blocked[n] = 0; v = COPIES(a, b); \
     printf("node %d forgets, and gets the leases of the others\n", n); \
     if \
     :: BOTH(v, 0, 1) || BOTH(v, 0, 2) || BOTH(v, 1, 2) -> INSTALL(n) \
     :: else -> lease[n] = v \
     fi; \
     v = 0; LOSE(0, n); LOSE(1, n); LOSE(2, n) }

active proctype cluster() {
    do
    ATTEMPT(0) ATTEMPT(1) ATTEMPT(2)
    NODE(0, 0) NODE(0, 1) NODE(0, 2) NODE(1, 0) NODE(1, 1) NODE(1, 2) NODE(2, 0) NODE(2, 1) NODE(2, 2)
    FORGET(0, 1, 2) FORGET(1, 0, 2) FORGET(2, 0, 1)
    od
}
