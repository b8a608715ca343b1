/* A release with a seal that is repeated before it is done (docs/protocol.md, HOLDS) as a Promela model.
 * checks.tsv says with which macros it is searched.
 *
 * What is modelled. Three nodes, a majority is two. X's lease has hold 0 on every node.
 * Its release with a seal is asked of two gateways, each of which sends a CLOSE of its own. Somebody asks for hold 1.
 * Every step is one script on one node, or one decision of a gateway; so each is a d_step.
 *
 * What is abstracted.
 * - Messages. A request is executed by the node at any later moment, once, or never.
 *   A gateway receives the reply at once: a later reply is modelled by a request that is executed later.
 * - Hold 0 as such: a key without hold 1 has hold 0. A hold 1 that fails;
 *   time and tokens: holds.pml and lease.pml have the rest.
 * - With LOSSES a node forgets everything and gets what the others have at the same moment;
 *   it votes again when no reply of before counts any more, so replies that were not enough yet do not count (D;
 *   readmit.pml). No node forgets after another has executed the RELEASE (docs/protocol.md, Not promised).
 *
 * What is checked. Hold 1 is not answered under a sealed token, and no token is sealed under hold 1.
 * Weakened rules: the macros with a comment. REACH_* asserts that a state is never reached: the result "violated" shows
 * that the search reaches it.
 */
#ifndef LOSSES
#define LOSSES 0
#endif
#define N 3
#define MAJORITY 2
#define ALL 7
#define BIT(i) (1 << (i))
#define COUNT(m) (((m) & 1) + (((m) >> 1) & 1) + (((m) >> 2) & 1))

/* ---- State: a node ---- */
bit key[N] = 1;                 /* it has the lease */
bit hold[N];                    /* with hold 1 */
byte marks[N];                  /* the CLOSE marks: a bit for each CLOSE */
byte losses;
/* ---- State: hold 1 ---- */
#define IDLE 0
#define ASKED 1
#define ANSWERED 2
byte phase, hold_on, counted;
/* ---- State: the releases of hold 0 ---- */
#define CLOSING 1
#define SEALED 2
#define LIFTED 3                /* the seal failed, or other holds are left: the mark is removed */
byte seal[2], close_on[2], close_yes[2], lift_on[2], released_on;
#define IS_SEALED (seal[0] == SEALED || seal[1] == SEALED)

#ifdef ONE_MARK                 /* a CLOSE replaces the mark of the one before */
#define WITH_MARK(c, n) BIT(c)
#else
#define WITH_MARK(c, n) (marks[n] | BIT(c))
#endif
#ifdef LIFTS_ANY                /* the removal of one mark removes the other too */
#define WITHOUT_MARK(c, n) 0
#else
#define WITHOUT_MARK(c, n) (marks[n] & (ALL - BIT(c)))
#endif
#ifdef MARK_OF_ONE_COPY         /* INSTALL takes the marks of one copy that has some */
#define MERGED_MARKS(a, b) (marks[a] -> marks[a] : marks[b])
#else
#define MERGED_MARKS(a, b) (marks[a] | marks[b])
#endif
#ifdef RELEASE_LIFTS            /* RELEASE of hold 0 removes its marks where hold 1 is left */
#define MARKS_LEFT(n) 0
#else
#define MARKS_LEFT(n) (hold[n] -> marks[n] : 0)
#endif
#ifdef REACH_HOLD_AFTER_LIFT
#define AT_ANSWER assert(seal[0] != LIFTED || seal[1] != LIFTED || close_yes[0] == 0 || close_yes[1] == 0)
#else
#define AT_ANSWER assert(!IS_SEALED)
#endif

#define HOLD(n) \
  :: d_step { phase == ASKED && !(hold_on & BIT(n)) && key[n] && !marks[n] -> hold_on = hold_on | BIT(n); \
     hold[n] = 1; counted = counted | BIT(n); printf("node %d: HOLD\n", n); \
     if :: COUNT(counted) >= MAJORITY -> phase = ANSWERED; printf("=> hold 1 is answered\n"); \
       AT_ANSWER :: else -> skip fi }

#define RELEASE(c) \
  :: d_step { seal[c] == IDLE && (c == 0 || seal[0] != IDLE) && !IS_SEALED -> \
     seal[c] = CLOSING; printf("gateway %d: CLOSE\n", c) } \
  :: d_step { seal[c] == CLOSING && COUNT(close_yes[c]) >= MAJORITY -> \
     seal[c] = SEALED; printf("=> gateway %d seals the token\n", c); assert(phase != ANSWERED) } \
  :: d_step { seal[c] == CLOSING -> seal[c] = LIFTED; printf("gateway %d seals nothing\n", c) }
#define CLOSE(c, n) \
  :: d_step { seal[c] != IDLE && !(close_on[c] & BIT(n)) && key[n] && !hold[n] -> \
     close_on[c] = close_on[c] | BIT(n); close_yes[c] = close_yes[c] | BIT(n); \
     marks[n] = WITH_MARK(c, n); printf("node %d: CLOSE of gateway %d\n", n, c) }
#define LIFT(c, n) \
  :: d_step { seal[c] == LIFTED && !(lift_on[c] & BIT(n)) -> lift_on[c] = lift_on[c] | BIT(n); \
     if :: marks[n] & BIT(c) -> marks[n] = WITHOUT_MARK(c, n) :: else -> \
       skip fi; printf("node %d: the mark of gateway %d is removed\n", n, c) }
#define RELEASE_ON(n) \
  :: d_step { IS_SEALED && !(released_on & BIT(n)) && key[n] -> released_on = released_on | BIT(n); \
     printf("node %d: RELEASE\n", n); \
     marks[n] = MARKS_LEFT(n); key[n] = hold[n] }

#define FORGET(n, a, b) \
  :: d_step { losses < LOSSES && released_on == 0 -> \
     losses++; printf("node %d forgets, and gets the leases of the others\n", n); \
     key[n] = 1; hold[n] = hold[a] | hold[b]; marks[n] = MERGED_MARKS(a, b); \
     if :: phase == ASKED -> counted = counted & (ALL - BIT(n)) :: else -> skip fi; \
     if :: seal[0] == CLOSING -> close_yes[0] = close_yes[0] & (ALL - BIT(n)) :: else -> skip fi; \
     if :: seal[1] == CLOSING -> close_yes[1] = close_yes[1] & (ALL - BIT(n)) :: else -> skip fi }

#define NODE(n) HOLD(n) CLOSE(0, n) CLOSE(1, n) LIFT(0, n) LIFT(1, n) RELEASE_ON(n)
active proctype cluster() {
    do
    :: d_step { phase == IDLE -> phase = ASKED; printf("hold 1 is asked for\n") }
    RELEASE(0) RELEASE(1)
    NODE(0) NODE(1) NODE(2)
    FORGET(0, 1, 2) FORGET(1, 0, 2) FORGET(2, 0, 1)
    od
}
