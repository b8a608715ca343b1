/* Which lease a node that forgot gets if the nodes that are read have different ones (docs/protocol.md,
 * FAST READMISSION 5), with five nodes, as a Promela model.
 * checks.tsv says with which macros it is searched; readmit.pml has the times and the life of a node, with three nodes,
 * where each of two leases may be on a majority.
 *
 * What is modelled. Two attempts, X and Y, for one resource. Nodes forget, and keep any older lease;
 * while two have forgotten, one more than the target is not read. All nodes are alike, so only two of them forget.
 * A supervisor reads all voting nodes, one after the other, and writes the result to its target, which votes then.
 * Every step is one script on one node or one decision.
 *
 * What is abstracted.
 * - Time. The key of a node that an attempt counts, and a block in its place, stays until the attempt is over;
 *   any other key ends at any moment.
 *   Reads begin when D is over: an attempt that is not complete by then counts the target no more.
 * - A late ACQUIRE, TOP-UP or INSTALL puts a key back on any free node that votes, at any moment;
 *   where its owner is not over, it may count (more than the rule allows).
 *
 * What is checked. At no moment are both attempts valid.
 * Sizes (macros): LOSSES: nodes that forget. Weakened rules: every macro with a comment.
 * REACH_* asserts that a state is never reached.
 */
#ifndef LOSSES
#define LOSSES 1
#endif
#define N 5
#define NODES 31
#define MAJORITY 3
#define BIT(i) (1 << (i))
#define COUNT(m) (((m) & 1) + (((m) >> 1) & 1) + (((m) >> 2) & 1) + (((m) >> 3) & 1) + (((m) >> 4) & 1))
#define LESS(m, b) ((m) & (NODES - (b)))

/* ---- State: a node ---- */
#define FREE 0
#define X 1
#define Y 2
#define BLOCK 3                 /* a key of nobody, which nobody releases */
byte owner[N];
byte voting = NODES;
byte losses;
/* ---- State: the attempts X and Y, at 1 and 2 ---- */
#define ASKING 0
#define VALID 1
#define OVER 2                  /* released, expired or failed */
byte phase[3];
byte counted[3];                /* nodes */
/* ---- State: the supervisor ---- */
byte target = N;                /* N: none */
byte to_read, not_read;         /* nodes; not_read is as it was when the reads began */
byte copies[4];                 /* how many nodes that were read have this owner */
byte result;

/* ---- The rule ---- */
#ifdef BLOCK_IS_A_LEASE         /* a node with a block is taken for a node without X and Y */
#define UNKNOWN not_read
#elif defined(UNREAD_HAVE_NONE)         /* nodes that were not read are taken for nodes without the lease */
#define UNKNOWN (copies[BLOCK] + 1)
#else
#define UNKNOWN (copies[BLOCK] + not_read)
#endif
#ifdef MOST_COPIES              /* the lease of which more copies were read */
#define MAY_BE_VALID(o) (copies[o] > copies[X + Y - (o)])
#elif defined(MORE_THAN_MAJORITY)     /* > instead of >= */
#define MAY_BE_VALID(o) (copies[o] + UNKNOWN > MAJORITY)
#else
#define MAY_BE_VALID(o) (copies[o] + UNKNOWN >= MAJORITY)
#endif
/* The only lease that may be valid; a block if both may; nothing if none may.
 * A lease of which no copy was read may be valid too. */
inline choose() {
    if
    :: copies[X] + copies[Y] + copies[BLOCK] == 0 -> result = FREE
    :: else ->
        if
        :: MAY_BE_VALID(X) && !MAY_BE_VALID(Y) -> result = X
        :: MAY_BE_VALID(Y) && !MAY_BE_VALID(X) -> result = Y
        :: MAY_BE_VALID(X) && MAY_BE_VALID(Y) -> result = BLOCK
        :: else -> result = FREE
        fi;
#ifdef REACH_CHOICE
        assert(!(copies[X] > 0 && copies[Y] > 0 && result == X))
#elif defined(REACH_NONE)
        assert(result != FREE)
#endif
    fi
}

/* ---- An attempt ---- */
#define ATTEMPT(o) \
  :: d_step { phase[o] == ASKING && COUNT(counted[o]) >= MAJORITY -> \
     phase[o] = VALID; printf("=> attempt %d is valid, on the nodes in %d (bits)\n", o, counted[o]); \
     assert(phase[X + Y - (o)] != VALID) } \
  :: d_step { phase[o] != OVER -> phase[o] = OVER; counted[o] = 0; printf("attempt %d is over\n", o) }
#define AT(o, n) \
  :: d_step { (voting & BIT(n)) && owner[n] == FREE -> owner[n] = o; printf("node %d: a key of attempt %d\n", n, o) } \
  :: d_step { (voting & BIT(n)) && owner[n] == (o) && phase[o] == ASKING && !(counted[o] & BIT(n)) -> \
     counted[o] = counted[o] | BIT(n); printf("node %d: counts for attempt %d\n", n, o) }
#define STAYS(o, n) (counted[o] & BIT(n))
#define KEY_ENDS(n) \
  :: d_step { owner[n] != FREE && (owner[n] == Y || !STAYS(X, n)) && (owner[n] == X || !STAYS(Y, n)) -> \
     owner[n] = FREE; printf("node %d: the key ends\n", n) }

/* ---- A node that forgets, and the supervisor ---- */
#define FORGET(n, o) \
  :: d_step { (voting & BIT(n)) && losses < LOSSES -> losses++; owner[n] = o; voting = LESS(voting, BIT(n)); \
     if :: to_read & BIT(n) -> target = N; to_read = 0; not_read = 0; copies[X] = 0; copies[Y] = 0; \
       copies[BLOCK] = 0 :: else fi; \
     printf("node %d forgets, and has the key %d\n", n, o) }
#define BEGIN(n) \
  :: d_step { target == N && !(voting & BIT(n)) && COUNT(voting) >= MAJORITY -> target = n; to_read = voting; \
     not_read = N - COUNT(voting); \
     if :: phase[X] == ASKING -> counted[X] = LESS(counted[X], BIT(n)) :: else fi; \
     if :: phase[Y] == ASKING -> counted[Y] = LESS(counted[Y], BIT(n)) :: else fi; \
     printf("the reads for node %d begin\n", n) }
#define READ(n) \
  :: d_step { to_read & BIT(n) -> to_read = LESS(to_read, BIT(n)); if :: owner[n] != FREE -> \
     copies[owner[n]]++ :: else fi; printf("node %d is read: %d\n", n, owner[n]) }
#define INSTALL \
  :: d_step { target < N && to_read == 0 -> choose(); if :: result != FREE -> owner[target] = result :: else fi; \
     voting = voting | BIT(target); \
     printf("node %d: INSTALL of %d, READMIT\n", target, result); target = N; not_read = 0; copies[X] = 0; \
       copies[Y] = 0; copies[BLOCK] = 0; result = FREE }
#define NODE(n) AT(X, n) AT(Y, n) KEY_ENDS(n) READ(n)
#define FORGETFUL(n) FORGET(n, FREE) FORGET(n, X) FORGET(n, Y) BEGIN(n)

active proctype world() {
    do
    ATTEMPT(X) ATTEMPT(Y)
    NODE(0) NODE(1) NODE(2) NODE(3) NODE(4)
    FORGETFUL(0) FORGETFUL(1)
    INSTALL
    od
}
