/* Late requests and the time of a lease (docs/protocol.md R1, R3, RENEW, TOP-UP, CLOCK SET BACK) as a Promela model:
 * that no late request of a lease shortens the time of its own key,
 * and that a clock which is set back lengthens no lease beyond its ttl.
 * checks.tsv says with which macros it is searched; upgrade.pml and readmit.pml have what makes a lease count.
 *
 * What is modelled. Three nodes, a majority is two. The lease X is granted with the ttl SHORT on the nodes 0 and 1;
 * its ACQUIRE to node 2, and its CONFIRM, are late. Its holder renews it, each time with SHORT or LONG. Y is every
 * other holder. Time is a number of ticks. Every step is one script on one node, one decision of a gateway, or a tick.
 *
 * What is abstracted.
 * - Messages. A request is executed at any later moment, any number of times, or never;
 *   RENEW and TOP-UP with either ttl may have been sent before the beginning.
 *   An answer to RENEW is used at once: used later, it is the answer of a later execution.
 * - Tokens and stamps. After a late ACQUIRE, a late CONFIRM or a TOP-UP the lease counts on the node, or it does not.
 * - Y takes and releases free keys at any moment. Two of its keys at one moment count as a valid grant;
 *   no late request of Y is needed.
 * - X is not released, and nodes forget nothing.
 * - BACKS: so often a clock of a node is set back, by BACK ticks, which are more than any ttl. The key then has
 *   as many ticks more. `given` is the ttl in the lease: the ticks of its last PX.
 *   A script that reads the time of a lease corrects it first. A script of Y refuses Y and changes nothing else.
 *   The stop of a clock, or one that is set back by less, is a part of this: the key has no more time than `given`.
 *
 * What is checked. At no moment is X valid while Y has a majority. With BACKS also: once a script has read the time
 * of a lease, it ends within LONG ticks of that, or of its next extension, unless a clock is set back again.
 * Weakened rules: ACQUIRE_SHORTENS, CONFIRM_SHORTENS, RENEW_SHORTENS and TOP_UP_SHORTENS: PX is the ttl of the request,
 * although more time is left.
 * With BACKS: WITHOUT_CORRECTION: no script corrects the time.
 * RENEW_KEEPS: RENEW takes the time of the clock for the time left. GIVEN_BY_GRANT: `given` stays that of the grant.
 * CORRECTS_TO_SHORT: the time becomes SHORT, the ttl of the caller that asks.
 * REACH_LATE asserts that no late ACQUIRE finds a lease with more time than its ttl.
 */
#define SHORT 1
#define LONG 2
#define N 3
#define BIT(n) (1 << (n))
#define COUNT(m) (((m) & 1) + (((m) >> 1) & 1) + (((m) >> 2) & 1))
#define MAX(x, y) ((x) > (y) -> (x) : (y))

#define FREE 0
#define X 1
#define Y 2
byte owner[N];
byte left[N];                   /* ticks until the key expires */
bit counts[N];                  /* X's lease on this node counts */
byte validity;                  /* ticks for which the holder of X may still rely on it */
byte ttl;                       /* of the present renewal, 0 none */
byte age;                       /* ticks since it was sent */
byte ok;                        /* nodes that answered OK, bits */

#define Y_HAS(n) (owner[n] == Y)
#define CHECK assert(validity == 0 || Y_HAS(0) + Y_HAS(1) + Y_HAS(2) < 2)

#ifdef BACKS
#define BACK 4
byte given[N];                  /* the ttl in the lease */
/* 1 + ticks since a script first read the time of the key after it was written, or a clock was set back; 0 none did */
byte seen[N];
byte backs;
#define SET_BACK(n) \
  :: d_step { backs < BACKS && owner[n] != FREE -> backs++; left[n] = left[n] + BACK; seen[n] = 0; \
     printf("the clock of node %d is set back: %d ticks are left\n", n, left[n]) }
#ifdef WITHOUT_CORRECTION
#define CORRECT(n) seen[n] = MAX(seen[n], 1);
#else
#ifdef CORRECTS_TO_SHORT
#define CORRECT(n) if :: left[n] > given[n] -> left[n] = SHORT :: else fi; seen[n] = MAX(seen[n], 1);
#else
#define CORRECT(n) if :: left[n] > given[n] -> left[n] = given[n] :: else fi; seen[n] = MAX(seen[n], 1);
#endif
#endif
#ifdef RENEW_KEEPS
#define CORRECT_IN_RENEW(n)
#else
#define CORRECT_IN_RENEW(n) CORRECT(n)
#endif
#ifdef GIVEN_BY_GRANT
#define WRITTEN(n) seen[n] = 1;
#else
#define WRITTEN(n) given[n] = left[n]; seen[n] = 1;
#endif
#define REFUSED(n) \
  :: d_step { owner[n] == X -> CORRECT(n) printf("node %d: refuses Y, %d ticks are left\n", n, left[n]) }
#define GRANTED given[0] = SHORT; given[1] = SHORT; given[2] = SHORT; seen[0] = 1; seen[1] = 1;
#define PASSED(n) if :: owner[n] == FREE -> seen[n] = 0 :: owner[n] != FREE && seen[n] > 0 -> \
  seen[n]++; assert(seen[n] <= LONG) :: else fi;
#else
#define SET_BACK(n)
#define CORRECT(n)
#define CORRECT_IN_RENEW(n)
#define WRITTEN(n)
#define REFUSED(n)
#define GRANTED
#define PASSED(n)
#endif
#ifdef ACQUIRE_SHORTENS
#define TIME_OF_ACQUIRE(n) SHORT
#else
#define TIME_OF_ACQUIRE(n) MAX(left[n], SHORT)
#endif
#ifdef CONFIRM_SHORTENS
#define TIME_OF_CONFIRM(n) SHORT
#else
#define TIME_OF_CONFIRM(n) MAX(left[n], SHORT)
#endif
#ifdef RENEW_SHORTENS
#define TIME_OF_RENEW(n, t) t
#else
#define TIME_OF_RENEW(n, t) MAX(left[n], t)
#endif
#ifdef TOP_UP_SHORTENS
#define TIME_OF_TOP_UP(n, t) t
#else
#define TIME_OF_TOP_UP(n, t) MAX(left[n], t)
#endif
#ifdef REACH_LATE
#define REACHED(n) assert(left[n] <= SHORT);
#else
#define REACHED(n)
#endif

/* ---- Requests of the grant, with the ttl SHORT ---- */
#define ACQUIRE(n, c) \
  :: d_step { owner[n] == FREE || owner[n] == X -> REACHED(n) if :: owner[n] == X -> \
     CORRECT(n) skip :: else fi; owner[n] = X; left[n] = TIME_OF_ACQUIRE(n); WRITTEN(n) counts[n] = c; \
     printf("node %d: a late ACQUIRE, %d ticks are left\n", n, left[n]) }
#define CONFIRM(n) \
  :: d_step { owner[n] == X -> CORRECT(n) left[n] = TIME_OF_CONFIRM(n); WRITTEN(n) counts[n] = 1; \
     printf("node %d: a late CONFIRM, %d ticks are left\n", n, left[n]) }

/* ---- RENEW and TOP-UP ---- */
#define SEND(t) \
  :: d_step { ttl == 0 -> ttl = t; age = 0; ok = 0; printf("RENEW is sent, ttl %d\n", t) }
#define ANSWER(n) \
  :: d_step { ttl != 0 && owner[n] == X && counts[n] -> \
     CORRECT_IN_RENEW(n) left[n] = TIME_OF_RENEW(n, ttl); WRITTEN(n) ok = ok | BIT(n); \
       printf("node %d: RENEW, %d ticks are left\n", n, left[n]); \
     if \
     :: COUNT(ok) >= 2 && ttl > age -> \
        validity = MAX(validity, ttl - age); printf("=> X is renewed, valid for %d ticks\n", validity); ttl = 0; \
          age = 0; ok = 0; CHECK \
     :: else \
     fi }
#define LATE_RENEW(n, t) \
  :: d_step { owner[n] == X && counts[n] -> CORRECT_IN_RENEW(n) left[n] = TIME_OF_RENEW(n, t); \
     WRITTEN(n) printf("node %d: a late RENEW, %d ticks are left\n", n, left[n]) }
#define TOP_UP(n, t, c) \
  :: d_step { owner[n] == FREE || owner[n] == X -> \
     if \
     :: owner[n] == FREE -> owner[n] = X; left[n] = t; counts[n] = c \
     :: else -> CORRECT(n) left[n] = TIME_OF_TOP_UP(n, t); counts[n] = counts[n] | c \
     fi; \
     WRITTEN(n) \
     printf("node %d: TOP-UP, %d ticks are left\n", n, left[n]) }

/* ---- The rival and time ---- */
#define TAKE(n) :: d_step { owner[n] == FREE -> owner[n] = Y; left[n] = LONG; WRITTEN(n) counts[n] = 0; \
  printf("node %d: Y takes it\n", n); CHECK }
#define RELEASE(n) :: d_step { owner[n] == Y -> owner[n] = FREE; left[n] = 0; printf("node %d: Y releases it\n", n) }
#define EXPIRE(n) if :: left[n] > 0 -> left[n]--; if :: left[n] == 0 -> \
  owner[n] = FREE; counts[n] = 0 :: else fi :: else fi
#define TICK \
  :: d_step { true -> \
     EXPIRE(0); EXPIRE(1); EXPIRE(2); \
     PASSED(0) PASSED(1) PASSED(2) \
     if :: validity > 0 -> validity-- :: else fi; \
     /* too late for a validity */ \
     if :: ttl != 0 && age < ttl -> age++ :: ttl != 0 && age == ttl -> ttl = 0; age = 0; ok = 0 :: else fi; \
     printf("a tick: X is valid for %d, the keys for %d %d %d\n", validity, left[0], left[1], left[2]) }
#define NODE(n) \
    ACQUIRE(n, 0) ACQUIRE(n, 1) CONFIRM(n) ANSWER(n) LATE_RENEW(n, SHORT) LATE_RENEW(n, LONG) \
    TOP_UP(n, SHORT, 0) TOP_UP(n, SHORT, 1) TOP_UP(n, LONG, 0) TOP_UP(n, LONG, \
      1) TAKE(n) RELEASE(n) SET_BACK(n) REFUSED(n)

active proctype world() {
    d_step { owner[0] = X; owner[1] = X; left[0] = SHORT; left[1] = SHORT; counts[0] = 1; counts[1] = 1;
      GRANTED validity = SHORT }
    do
    SEND(SHORT) SEND(LONG)
    NODE(0) NODE(1) NODE(2)
    TICK
    od
}
