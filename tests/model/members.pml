/* A change of the set of nodes (docs/decisions.md, 0019) as a Promela model. checks.tsv says with which macros it is
 * searched.
 *
 * What is modelled. Four nodes, of which a set has those of OLD, later those of NEW. Configuration 0 is OLD. 1 is
 * joint: what needs a majority needs one of OLD and one of NEW. 2 is NEW, or OLD again if the change was taken back.
 * With PROMOTIONS the register may forget them all once; then 3 is joint of OLD and OTHER, and 4 is OTHER. With OTHER =
 * OLD 4 also takes 1 back.
 * Every step is one script on one node, one transaction of the current, or one decision of a gateway.
 *
 * What is abstracted.
 * - Messages. A request is executed by the node at any later moment, once, or never, and its reply is used at once.
 * - A gateway begins each attempt and each renewal under any configuration that was ever committed: it may have slept.
 * - `over`: the validity has ended, or the attempt has failed and is undone. Then its leases may end, each on its own.
 *   A node that took no part in the last renewal that succeeded may lose the lease earlier.
 * - A wait of max_ttl_ms: it is over when no lease is valid, and no attempt is under way, that is older.
 * - RENEW, TOP-UP and UPGRADE test a lease of their own on each node: upgrade.pml. Here one step puts a lease on a
 *   node, or makes it count there again.
 * - A node that forgot votes again after the quarantine; readmit.pml has the faster way.
 *
 * What is checked. Exclusion: no two leases are valid together. Tokens: a grant that was asked for when another was
 * complete has a higher one.
 * Weakened rules: the macros with a comment. REACH_…: a grant under 2 after one under 0; a lease of 0 that is valid
 * under 2.
 */
#ifndef OLD
#define OLD 7                   /* nodes 0, 1, 2 */
#endif
#ifndef NEW
#define NEW 14                  /* nodes 1, 2, 3 */
#endif
#ifndef OTHER
#define OTHER 11
#endif
#ifndef LOSSES
#define LOSSES 0
#endif
#ifndef RENEWALS
#define RENEWALS 0
#endif
#ifndef PROMOTIONS
#define PROMOTIONS 0
#endif
#if PROMOTIONS                  /* without them there are no configurations 3 and 4 */
#define LATER(x, y) x y
#else
#define LATER(x, y)
#endif
#define BIT(i) (1 << (i))
#define COUNT(m) (((m) & 1) + (((m) >> 1) & 1) + (((m) >> 2) & 1) + (((m) >> 3) & 1))
#define MAX(x, y) ((x) > (y) -> (x) : (y))
#define LETTER(c) ('A' + (c))
#define BIG 8                   /* the numbers of an epoch */
#define NONE 255                /* the node is not admitted */

#define IDLE 0
#define ASKING 1
#define CONFIRMING 2
#define COMPLETE 3
byte phase[2], T[2], asked[2], stamped[2];
byte cfg[2];                    /* the configuration of the attempt, or of the last renewal that succeeded */
byte reply[8];                  /* of attempt c on node n: c * 4 + n; 0 none */
bit before[2];                  /* the other one was complete when this one was asked for */
bit over[2];
byte held[2];                   /* the nodes that keep the lease as long as it is valid */
byte renewing[2];               /* 1 + the configuration of the renewal under way */
byte seen[2], renewed[2];       /* in this renewal: the nodes that have the lease; those where it counts */
byte renewals[2];

byte number[4];                 /* the configuration by which the node answers */
byte counter[4];
byte epoch[4];                  /* with which it was admitted, or joined */
byte lease[4];                  /* the attempts that have a lease on this node, bits */
byte counts[4];                 /* those whose lease counts */
byte acked[5];                  /* by configuration: the nodes that answered JOIN */
byte current, committed;        /* the configuration; all that were committed, bits */
byte epochs;
byte base[5];                   /* by configuration: its epoch */
bit back;
byte losses, promotions, announced, highest_seen;
byte floor_at[4];               /* the node has the floor of the promotion */
byte v;

#define SET_A(k) ((k) == 4 -> OTHER : ((k) == 2 && !back -> NEW : OLD))
#define SET_B(k) ((k) == 0 -> OLD : ((k) == 1 -> NEW : ((k) == 2 -> (back -> OLD : NEW) : OTHER)))
#define MAJORITY(m, s) (2 * COUNT((m) & (s)) > COUNT(s))
#ifdef ANY_MAJORITY             /* joint: a majority of all nodes */
#define ENOUGH(k, m) MAJORITY(m, SET_A(k) | SET_B(k))
#elif defined(NEW_MAJORITY)     /* joint: a majority of the new set */
#define ENOUGH(k, m) MAJORITY(m, SET_B(k))
#elif defined(OLD_MAJORITY)     /* joint: a majority of the old set */
#define ENOUGH(k, m) MAJORITY(m, SET_A(k))
#else
#define ENOUGH(k, m) (MAJORITY(m, SET_A(k)) && MAJORITY(m, SET_B(k)))
#endif
#define IN(k, n) (((SET_A(k) | SET_B(k)) >> (n)) & 1)
#define HAS(c, n) ((lease[n] >> (c)) & 1)
#ifdef WITHOUT_NUMBER           /* a node answers requests of any configuration */
#define ANSWERS(n, k) (number[n] != NONE && IN(k, n))
#else
#define ANSWERS(n, k) (number[n] == (k) && IN(k, n))
#endif
#ifdef WITHOUT_EPOCH            /* JOIN does not raise the counters */
#define JOINED_COUNTER(n, k) counter[n]
#else
#define JOINED_COUNTER(n, k) MAX(counter[n], base[k])
#endif
#ifdef WITHOUT_FLOOR_TEST       /* a node with the floor of a promotion joins a configuration from before it */
#define TAKES(n, k) (number[n] < (k) && IS_LATER(n, k))
#else
#define TAKES(n, k) (number[n] < (k) && !(floor_at[n] && (k) < 3) && IS_LATER(n, k))
#endif
#ifdef WITHOUT_EPOCH_TEST       /* a node that forgot joins a configuration from before it was admitted */
#define IS_LATER(n, k) true
#else
#define IS_LATER(n, k) (epoch[n] < base[k])
#endif
#ifdef WITHOUT_WAIT             /* the new set begins when its nodes have joined */
#define IS_NEWER(c, k) true
#else
#define IS_NEWER(c, k) (phase[c] == IDLE || over[c] || cfg[c] >= (k))
#endif
#ifdef WITHOUT_OLD_JOINED       /* the new set begins although a majority of the old one may answer older requests */
#define JOINED(k) MAJORITY(acked[k], SET_B(k))
#elif defined(WITHOUT_NEW_JOINED)
#define JOINED(k) MAJORITY(acked[k], SET_A(k))
#else
#define JOINED(k) (MAJORITY(acked[k], SET_A(k)) && MAJORITY(acked[k], SET_B(k)))
#endif
#ifdef WITHOUT_DRAW_TEST        /* a gateway with any configuration readmits a node */
#define DRAWS(k) (committed & BIT(k))
#else
#define DRAWS(k) (current == (k))
#endif
#ifdef TOP_UP_WITHOUT_OLD       /* a renewal puts the lease on nodes though a majority of the old set may lack it */
#define MAY_TOP_UP(c) true
#else
#define MAY_TOP_UP(c) MAJORITY(seen[c], SET_A(renewing[c] - 1))
#endif

#define O(c) (1 - (c))
#ifdef REACH_NEW
#define CHECK(c) assert(!(before[c] && cfg[c] == 2 && !back && cfg[O(c)] == 0))
#elif defined(REACH_LATER)
#define CHECK(c) assert(!(before[c] && cfg[c] == 4))
#else
#define CHECK(c) \
    assert(!(phase[O(c)] == COMPLETE && !over[O(c)]));          /* Exclusion */ \
    assert(!(before[c] && T[c] <= T[O(c)]))
#endif
#define CLEAR(c) \
    reply[4 * c] = 0; reply[4 * c + 1] = 0; reply[4 * c + 2] = 0; reply[4 * c + 3] = 0; stamped[c] = 0; \
    asked[c] = 15; before[c] = 0; held[c] = 0; renewing[c] = 0; seen[c] = 0; renewed[c] = 0
#define REPLIED(c) ((reply[4 * c] != 0) | (reply[4 * c + 1] != 0) << 1 | (reply[4 * c + 2] != 0) << 2 | \
  (reply[4 * c + 3] != 0) << 3)
#define TRY_COMPLETE(c) \
    if \
    :: phase[c] == CONFIRMING && ENOUGH(cfg[c], stamped[c]) && !over[c] -> phase[c] = COMPLETE; \
       printf("=> %c is complete with the token %d under %d\n", LETTER(c), T[c], cfg[c]); CHECK(c); v = stamped[c]; \
       CLEAR(c); held[c] = v; v = 0 \
    :: else \
    fi

#define BEGIN(c, k) \
  :: d_step { phase[c] == IDLE && (committed & BIT(k)) -> phase[c] = ASKING; cfg[c] = k; \
     before[c] = phase[O(c)] == COMPLETE; printf("%c is asked for under %d\n", LETTER(c), k) }
#define RENEW(c, k) \
  :: d_step { phase[c] == COMPLETE && !over[c] && renewals[c] < RENEWALS && (committed & BIT(k)) && k > cfg[c] -> \
     renewals[c]++; renewing[c] = 1 + k; seen[c] = 0; renewed[c] = 0; printf("%c is renewed under %d\n", LETTER(c), k) }
#define ATTEMPT(c) \
  BEGIN(c, 0) BEGIN(c, 1) BEGIN(c, 2) LATER(BEGIN(c, 3), BEGIN(c, 4)) \
  RENEW(c, 1) RENEW(c, 2) LATER(RENEW(c, 3), RENEW(c, 4)) \
  :: d_step { phase[c] == ASKING && !over[c] && ENOUGH(cfg[c], REPLIED(c)) -> \
     T[c] = MAX(MAX(reply[4 * c], reply[4 * c + 1]), MAX(reply[4 * c + 2], reply[4 * c + 3])); phase[c] = CONFIRMING; \
     stamped[c] = (reply[4 * c] == T[c]) | (reply[4 * c + 1] == T[c]) << 1 | (reply[4 * c + 2] == T[c]) << 2 | \
       (reply[4 * c + 3] == T[c]) << 3; \
     printf("%c has the token %d\n", LETTER(c), T[c]); TRY_COMPLETE(c) } \
  :: d_step { renewing[c] && !over[c] && ENOUGH(renewing[c] - 1, renewed[c]) -> \
     held[c] = renewed[c]; cfg[c] = renewing[c] - 1; printf("=> %c is renewed under %d\n", LETTER(c), cfg[c]); \
     renewing[c] = 0; seen[c] = 0; renewed[c] = 0; \
     REACHED(c) } \
  :: d_step { phase[c] != IDLE && !over[c] -> over[c] = 1; printf("%c is over\n", LETTER(c)); CLEAR(c); \
     if :: phase[c] != COMPLETE -> T[c] = 0; phase[c] = CONFIRMING :: else fi }
#ifdef REACH_KEPT
#define REACHED(c) assert(cfg[c] != 2)
#else
#define REACHED(c)
#endif

#define NODE(c, n) \
  :: d_step { phase[c] != IDLE && phase[c] != COMPLETE && !over[c] && !(asked[c] & BIT(n)) && ANSWERS(n, cfg[c]) && \
     !HAS(O(c), n) -> \
     asked[c] = asked[c] | BIT(n); counter[n]++; lease[n] = lease[n] | BIT(c); counts[n] = counts[n] | BIT(c); \
     reply[4 * c + n] = counter[n]; \
     printf("node %d: ACQUIRE of %c, the counter is %d\n", n, LETTER(c), counter[n]); \
     if :: phase[c] == CONFIRMING && counter[n] == T[c] -> stamped[c] = stamped[c] | BIT(n); TRY_COMPLETE(c) \
     :: else fi } \
  :: d_step { phase[c] == CONFIRMING && !over[c] && !(stamped[c] & BIT(n)) && reply[4 * c + n] && HAS(c, n) && \
     ANSWERS(n, cfg[c]) -> \
     if \
     :: counter[n] <= T[c] -> counter[n] = T[c]; stamped[c] = stamped[c] | BIT(n); counts[n] = counts[n] | BIT(c); \
        printf("node %d: CONFIRM of %c, %d\n", n, LETTER(c), T[c]); TRY_COMPLETE(c) \
     :: else -> T[c] = counter[n]; stamped[c] = 0; printf("node %d: STALE for %c\n", n, LETTER(c)) \
     fi } \
  :: d_step { renewing[c] && !over[c] && ANSWERS(n, renewing[c] - 1) && HAS(c, n) && !(seen[c] & BIT(n)) -> \
     seen[c] = seen[c] | BIT(n); \
     if :: counts[n] & BIT(c) -> renewed[c] = renewed[c] | BIT(n) :: else fi; \
     printf("node %d: RENEW of %c\n", n, LETTER(c)) } \
  :: d_step { renewing[c] && !over[c] && ANSWERS(n, renewing[c] - 1) && !(renewed[c] & BIT(n)) && MAY_TOP_UP(c) && \
     !HAS(O(c), n) -> \
     if :: counter[n] < T[c] -> counter[n] = T[c] :: else fi; \
     lease[n] = lease[n] | BIT(c); counts[n] = counts[n] | BIT(c); \
     seen[c] = seen[c] | BIT(n); renewed[c] = renewed[c] | BIT(n); printf("node %d: TOP-UP of %c\n", n, LETTER(c)) } \
  :: d_step { HAS(c, n) && (over[c] || (phase[c] == COMPLETE && !(held[c] & BIT(n)))) -> \
     lease[n] = lease[n] & (3 - BIT(c)); counts[n] = counts[n] & lease[n]; \
     seen[c] = seen[c] & (15 - BIT(n)); renewed[c] = renewed[c] & (15 - BIT(n)); \
     printf("node %d: the lease of %c ends\n", n, LETTER(c)) }

#define JOIN(n, k) \
  :: d_step { (committed & BIT(k)) && IN_ANY(k, n) && number[n] != NONE && TAKES(n, k) -> \
     if :: counter[n] < base[k] -> counts[n] = 0 :: else fi; \
     number[n] = k; epoch[n] = base[k]; counter[n] = JOINED_COUNTER(n, k); acked[k] = acked[k] | BIT(n); \
     printf("node %d: JOIN %d\n", n, k) }
#define IN_ANY(k, n) ((k) == 2 -> (((OLD | NEW) >> (n)) & 1) : ((k) == 4 -> (((OLD | OTHER) >> (n)) & 1) : IN(k, n)))

#define FORGETS_FOR(c, n) \
    if \
    :: phase[c] != IDLE -> asked[c] = asked[c] | BIT(n); reply[4 * c + n] = 0 \
    :: else \
    fi
#define OLD_LIFE(c, n) (phase[c] != IDLE && !over[c] && ((held[c] | stamped[c]) & BIT(n)))
#ifdef WITHOUT_QUARANTINE       /* a node that forgot votes at once */
#define QUARANTINED(n) false
#else
#define QUARANTINED(n) (OLD_LIFE(0, n) || OLD_LIFE(1, n))
#endif
#define READMIT(n, k) \
  :: d_step { number[n] == NONE && promotions != 1 && DRAWS(k) && IN(k, n) && !QUARANTINED(n) -> \
     epochs++; number[n] = k; epoch[n] = epochs * BIG; counter[n] = epoch[n]; \
     printf("node %d is readmitted under %d\n", n, k) }
#define STEPS_OF(n) \
  NODE(0, n) NODE(1, n) JOIN(n, 1) JOIN(n, 2) LATER(JOIN(n, 3), JOIN(n, 4)) \
  :: d_step { losses < LOSSES && number[n] != NONE -> losses++; number[n] = NONE; \
     counter[n] = 0; epoch[n] = 0; lease[n] = 0; counts[n] = 0; floor_at[n] = 0; FORGETS_FOR(0, n); FORGETS_FOR(1, n); \
     seen[0] = seen[0] & (15 - BIT(n)); seen[1] = seen[1] & (15 - BIT(n)); \
     renewed[0] = renewed[0] & (15 - BIT(n)); renewed[1] = renewed[1] & (15 - BIT(n)); \
     printf("node %d forgets\n", n) } \
  READMIT(n, 0) READMIT(n, 1) READMIT(n, 2) LATER(READMIT(n, 3), READMIT(n, 4)) \
  :: d_step { promotions == 1 && !floor_at[n] && number[n] != NONE && IN(current, n) -> floor_at[n] = 1; \
     announced = announced | BIT(n); highest_seen = MAX(highest_seen, number[n]); \
     printf("node %d: ANNOUNCE, it has %d\n", n, number[n]) }

#define COMMIT(k) \
    epochs++; base[k] = epochs * BIG; current = k; committed = committed | BIT(k); \
    printf("register: %d is committed\n", k)

active proctype cluster() {
    d_step { current = 0; committed = 1; base[0] = 0 }
    do
    ATTEMPT(0) ATTEMPT(1)
    STEPS_OF(0) STEPS_OF(1) STEPS_OF(2) STEPS_OF(3)
    :: d_step { current == 0 && promotions == 0 -> COMMIT(1) }
    :: d_step { current == 1 && promotions != 1 && JOINED(1) && IS_NEWER(0, 1) && IS_NEWER(1, 1) && \
         !(committed & BIT(2)) -> COMMIT(2) }
    :: d_step { current == 1 && promotions != 1 && !(committed & BIT(2)) -> back = 1; COMMIT(2) }
    :: d_step { promotions < PROMOTIONS && current != 0 -> promotions = 1; current = 0; epochs = epochs + 1; \
         printf("register: a promotion has lost all configurations\n") }
#ifdef WITHOUT_ADOPTION         /* the numbers on the nodes are not read when the register has lost some */
    :: d_step { promotions == 1 && MAJORITY(announced, SET_A(current)) -> promotions = 2 }
#else
    :: d_step { promotions == 1 && MAJORITY(announced, SET_A(current)) && MAJORITY(announced, SET_B(current)) -> \
         if \
         :: highest_seen > current -> current = highest_seen; announced = 0; \
            floor_at[0] = 0; floor_at[1] = 0; floor_at[2] = 0; floor_at[3] = 0; \
            printf("register: %d is adopted\n", current) \
         :: else -> promotions = 2; printf("register: the change of generation is finished\n") \
         fi }
#endif
    :: d_step { promotions == 2 && current == 0 -> COMMIT(3) }
    :: d_step { promotions == 2 && current == 1 && OTHER == OLD -> COMMIT(4) }  /* it is taken back */
    :: d_step { promotions == 2 && current == 3 && JOINED(3) && IS_NEWER(0, 3) && IS_NEWER(1, 3) -> COMMIT(4) }
    od
}
