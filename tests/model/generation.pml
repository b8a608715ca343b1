/* The storage generation (docs/protocol.md, STORAGE GENERATION) as a Promela model.
 * checks.tsv says with which macros it is searched.
 *
 * What is modelled. Three nodes, a majority is two. Database 0 is the first primary.
 *   Each of PROMOTIONS further databases begins from any state
 *   that an older one had at any time (an asynchronous standby, a backup, a dump); the older ones stay live,
 *   and gateways and writers may be connected to any of them. Changes of generation are run by any number of gateways,
 *   dead or paused at any step: each step of a change may be taken at any later moment,
 *   also on another database, or never.
 *   Every step is one script on one node or one transaction, so each is a d_step.
 *   A writer's transaction is three steps: its snapshot, its check, its commit.
 *
 * What is abstracted.
 * - Tokens. A token is its epoch. lease.pml has the rest,
 *   and needs that a node is admitted with an epoch above every token that was stamped on it (I4): checked here.
 * - Gateways have no state. A reply to a change counts for every gateway that runs it.
 *   A gateway has seen nothing, or what one node has now; older replies lie between.
 * - Messages. ANNOUNCE and READMIT are executed at any later moment, ANNOUNCE any number of times,
 *   also by a later process of the node. BEHIND changes nothing on it.
 * - ANNOUNCE is not compared with the floor that its gateway saw: one that is refused is one that is never executed.
 *   Rule 10 is not modelled (tests/sim has it, C5).
 * - Timelines are numbers, one more than that of the state from which a database begins,
 *   so two databases may have the same one.
 * - MARGIN represents 1024, and fewer epochs than that are drawn.
 *
 * What is checked. G1, G4: at step 3 the floor is above every token that was complete anywhere when the database became
 *   live, at its last fence_all and at its last step 1.
 *   A token that was sealed (revoked, made stale) before a newer database's step 1 is not let in by the newest one.
 *   No write commits below the floor. G3: a database lets nothing in before its step 3. G2: I4.
 *   M: a pending change is replaced only if a node has another announcement or a higher base.
 * Sizes and parts (macros): PROMOTIONS; DRAWS; CHANGES; FORGETS: nodes that lose everything,
 *   one at a time until it is admitted; RESTARTS: nodes that keep their data;
 *   FENCES: fence_all; PUT_BACK: the last database is an older state of the one before it on the same timeline,
 *   in its place, with fence_all; DUMP: database 1 has another system identifier and the same timeline;
 *   WRITES: one token is sealed and written with; NONE_ADMITTED: at first no node is.
 * Weakened rules: every macro WITHOUT_* and those with a comment. REACH_* asserts that a state is never reached.
 */
#ifndef PROMOTIONS
#define PROMOTIONS 1
#endif
#ifndef DRAWS
#define DRAWS 1
#endif
#ifndef CHANGES
#define CHANGES 3
#endif
#ifndef FORGETS
#define FORGETS 0
#endif
#ifndef RESTARTS
#define RESTARTS 0
#endif
#ifndef FENCES
#define FENCES 0
#endif
#if defined(WITHOUT_MARGIN)
#define MARGIN 1
#else
#define MARGIN (DRAWS + 1)
#endif
#define N 3
#define ALL 7
#define BIT(n) (1 << (n))
#define COUNT(m) (((m) & 1) + (((m) >> 1) & 1) + (((m) >> 2) & 1))
#define MAX(x, y) ((x) > (y) -> (x) : (y))

/* ---- State: databases 0 to 2, and the states 3 and 4 from which 1 and 2 begin ---- */
byte dbs = 1;                   /* databases that are or were live */
byte highest[5];                /* the register: the highest epoch drawn */
/* pair: timeline of the database, and the one under which its fences are whole; 0 unknown */
byte live[5], stored[5];
byte floor[5];                  /* as an epoch */
byte pending[5], pending_pair[5];   /* the change that is begun and not finished, 0 none */
bit sealed[5];                  /* the tracked token */
bit foreign[3];                 /* another system identifier than the stored one, not noticed yet */
bit gone[3], begun[3], finished[3];
bit whole[3];
byte before[3];                 /* the newest token when it became live, at its last fence_all and its last step 1 */
/* ---- State: changes ---- */
byte changes;
byte epoch[6], ok[6], ok_admitted[6];
bit second[6];                  /* the round in which all nodes have to reply OK once more */
/* ---- State: nodes ---- */
byte base[N] = 1, top[N] = 1;   /* epochs; top: of the highest counter */
byte announced[N], announced_by[N];
bit admitted[N] = 1, forgot[N];
byte drawn[N];                  /* for the node's present life; its READMIT may still arrive */
byte stamped[N];                /* the highest epoch ever stamped on a node that is not admitted */
byte draws, forgets, restarts, fences;
/* ---- State: tokens and the writer ---- */
byte newest = 1;                /* the highest token that is complete */
byte token;                     /* a complete token, 0 not chosen yet */
bit sealed_somewhere;           /* it is sealed, and a newer database must know it */
#define IDLE 0
#define SNAPSHOT 1
#define PASSED 2
byte writer, writer_on;
bit changed;                    /* the row of the storage generation was changed after the snapshot */

hidden byte e, least, hint;

#define LIVE(d) ((d) < dbs && !gone[d])
/* Inside a transaction only the timeline is compared; a gateway compares the system identifier too. */
#define CURRENT(d) (LIVE(d) && stored[d] == live[d])
#define CURRENT_PAIR(d) (CURRENT(d) && !foreign[d])
#define NEWER(flags, d) (((d) < 1 && flags[1]) || ((d) < 2 && flags[2]))

/* Not promised: a primary that was replaced draws epochs, or begins a change, after step 1 on a newer one. */
#ifdef REPLACED_DRAWS
#define REPLACED_MAY_DRAW(d) true
#else
#define REPLACED_MAY_DRAW(d) (!NEWER(begun, d))
#endif
#ifdef REPLACED_CHANGES
#define REPLACED_MAY_CHANGE(d) true
#else
#define REPLACED_MAY_CHANGE(d) (!NEWER(begun, d))
#endif

/* ---- A change of generation ---- */
#ifdef PENDING_OF_ANY_PAIR      /* a pending change is continued, whichever pair it is for */
#define IS_PENDING(d) (pending[d] != 0)
#else
#define IS_PENDING(d) (pending[d] != 0 && pending_pair[d] == live[d])
#endif
#ifdef WITHOUT_ID               /* nodes and the database compare epochs alone */
#define OTHER(n, k) (announced[n] != epoch[k])
#else
#define OTHER(n, k) (announced[n] != epoch[k] || announced_by[n] != (k))
#endif
#define SEEN(n) MAX(base[n], announced[n])
#ifdef WITHOUT_DISTANCE         /* an epoch above what the node has is enough, however little */
#define DISTANCE 1
#else
#define DISTANCE MARGIN
#endif
#define IS_BEHIND(n, k) (base[n] >= epoch[k] || (OTHER(n, k) && SEEN(n) + DISTANCE > epoch[k]))
/* a pending change is returned again only if its epoch is above what the gateway has seen */
#ifdef REPLACED_BY_EQUAL
#define IS_TOO_LOW(n, d) (SEEN(n) >= epoch[pending[d]])
#else
#define IS_TOO_LOW(n, d) (SEEN(n) > epoch[pending[d]] || IS_BEHIND(n, pending[d]))
#endif
#define PASSED_ON(d) (writer == PASSED && writer_on == (d))
#define CHANGE_ROW(d) if :: writer == SNAPSHOT && writer_on == (d) -> changed = 1 :: else -> skip fi
/* begin marks a foreign database's pair as unknown without waiting for transactions that passed */
#ifdef WITHOUT_LOCK_OF_BEGIN
#define MAY_MARK(d) true
#else
#define MAY_MARK(d) (!foreign[d] || !PASSED_ON(d))
#endif
inline begin(d) {
    changes++;
    e = MAX(MAX(highest[d], floor[d]), least) + MARGIN;
    epoch[changes] = e; before[d] = newest; highest[d] = e; pending[d] = changes; pending_pair[d] = live[d];
      begun[d] = 1;
    if :: foreign[d] -> foreign[d] = 0; stored[d] = 0 :: else -> skip fi;
    CHANGE_ROW(d);
    printf("database %d begins change %d, epoch %d\n", d, changes, e)
}
/* The gateway has seen nothing, or what node n has; or n has replied BEHIND to the pending change. */
#define BEGIN(d) \
  :: d_step { LIVE(d) && !CURRENT_PAIR(d) && REPLACED_MAY_CHANGE(d) && MAY_MARK(d) && changes < CHANGES && \
     (!IS_PENDING(d) || foreign[d]) -> least = 0; begin(d) }
#define BEGIN_SEEN(d, n) \
  :: d_step { LIVE(d) && !CURRENT_PAIR(d) && REPLACED_MAY_CHANGE(d) && MAY_MARK(d) && changes < CHANGES && \
     (!IS_PENDING(d) || foreign[d]) && SEEN(n) > MAX(highest[d], floor[d]) -> least = SEEN(n); begin(d) } \
  :: d_step { LIVE(d) && !CURRENT_PAIR(d) && REPLACED_MAY_CHANGE(d) && changes < CHANGES && IS_PENDING(d) && \
     !foreign[d] && IS_TOO_LOW(n, d) -> \
     assert(base[n] >= epoch[pending[d]] || announced_by[n] != pending[d]);      /* M */ \
     least = SEEN(n) + DISTANCE; begin(d) }
#ifdef WITHOUT_UNADMITTED       /* a node that is not admitted refuses ANNOUNCE */
#define MAY_ANNOUNCE(n) admitted[n]
#else
#define MAY_ANNOUNCE(n) true
#endif
#define ANNOUNCE(k, n) \
  :: d_step { (k) <= changes && MAY_ANNOUNCE(n) && !IS_BEHIND(n, k) && (!(ok[k] & BIT(n)) || \
     announced[n] != epoch[k] || (admitted[n] && !(ok_admitted[k] & BIT(n)))) -> \
     announced[n] = epoch[k]; announced_by[n] = k; ok[k] = ok[k] | BIT(n); \
     if :: admitted[n] -> ok_admitted[k] = ok_admitted[k] | BIT(n) :: else -> skip fi; \
     /* enough: fewer states */ \
     if :: COUNT(ok_admitted[k]) >= 2 -> ok_admitted[k] = ALL; ok[k] = ALL; second[k] = 1 :: else -> skip fi; \
     printf("node %d: ANNOUNCE of change %d, epoch %d, OK %d\n", n, k, epoch[k], admitted[n]) }
#if defined(WITHOUT_ANNOUNCE)
#define ENOUGH(k) true
#elif defined(ONE_NODE)         /* fewer than a majority */
#define ENOUGH(k) (ok_admitted[k] != 0)
#elif defined(UNADMITTED_COUNT) /* a majority of nodes, admitted or not */
#define ENOUGH(k) (COUNT(ok[k]) >= 2)
#else
#define ENOUGH(k) (COUNT(ok_admitted[k]) >= 2 || (ok[k] == ALL && IS_LAST_ROUND(k)))
#endif
#ifdef ONE_ROUND                /* all nodes have replied OK, each at some time */
#define IS_LAST_ROUND(k) true
#define ROUND(k)
#else
#define IS_LAST_ROUND(k) second[k]
#define ROUND(k) :: d_step { ok[k] == ALL && !second[k] -> second[k] = 1; ok[k] = 0; \
  printf("all nodes have replied OK to change %d: the second round\n", k) }
#endif
#if defined(WITHOUT_PENDING)    /* step 3 does not test that the change is the pending one */
#define MAY_FINISH(k, d) (!CURRENT_PAIR(d))
#elif defined(WITHOUT_ID)
#define MAY_FINISH(k, d) (IS_PENDING(d) && epoch[pending[d]] == epoch[k])
#else
#define MAY_FINISH(k, d) (pending[d] == (k) && IS_PENDING(d))
#endif
#define FINISH(k, d) \
  :: d_step { (k) <= changes && LIVE(d) && !foreign[d] && MAY_FINISH(k, d) && ENOUGH(k) -> \
     stored[d] = live[d]; floor[d] = epoch[k]; pending[d] = 0; pending_pair[d] = 0; whole[d] = 1; finished[d] = 1; \
       CHANGE_ROW(d); \
     printf("=> database %d finishes change %d: the floor is epoch %d, the newest token %d\n", d, k, \
       epoch[k], newest); \
     REACHED_FINISH(d) \
     assert(epoch[k] > before[d]) /* G1, G4 */ }
#if defined(REACH_FINISH)
#define REACHED_FINISH(d) assert(false);
#elif defined(REACH_SECOND)     /* a second change after two draws, one of them above the first floor */
#define REACHED_FINISH(d) assert(!(d == PROMOTIONS && finished[1] && draws == DRAWS && newest > floor[1]));
#else
#define REACHED_FINISH(d)
#endif

/* ---- fence_all, promotions, what is put back ---- */
#ifdef PENDING_STAYS            /* fence_all leaves the pending change */
#define CLEAR_PENDING(d) skip
#else
#define CLEAR_PENDING(d) pending[d] = 0; pending_pair[d] = 0
#endif
#ifdef WITHOUT_LOCK             /* fence_all does not wait for transactions that passed */
#define MAY_FENCE(d) true
#else
#define MAY_FENCE(d) (!PASSED_ON(d))
#endif
#define FENCE_ALL(d) stored[d] = 0; CLEAR_PENDING(d); whole[d] = 0; before[d] = newest; CHANGE_ROW(d)
#define FENCE(d) :: d_step { fences < FENCES && LIVE(d) && MAY_FENCE(d) -> fences++; FENCE_ALL(d); \
  printf("fence_all on database %d\n", d) }
inline copy(to, source) {
    highest[to] = highest[source]; live[to] = live[source]; stored[to] = stored[source]; floor[to] = floor[source];
    pending[to] = pending[source]; pending_pair[to] = pending_pair[source]; sealed[to] = sealed[source]
}
inline clear(s) { highest[s] = 0; live[s] = 0; stored[s] = 0; floor[s] = 0; pending[s] = 0; pending_pair[s] = 0;
  sealed[s] = 0 }
#define DIFFERS(s, d) (highest[s] != highest[d] || live[s] != live[d] || stored[s] != stored[d] || \
  floor[s] != floor[d] || pending[s] != pending[d] || sealed[s] != sealed[d])
#define COPY(p, from, d) :: d_step { p <= PROMOTIONS && dbs <= p && LIVE(d) && DIFFERS(from, d) -> \
  copy(from, d); printf("the state of database %d is copied for database %d\n", d, p) }
#ifdef DUMP
#define TIMELINE(p) if :: p == 1 -> foreign[p] = 1 :: else -> live[p] = live[p] + 1 fi
#else
#define TIMELINE(p) live[p] = live[p] + 1
#endif
#define PROMOTE(p, from) \
  :: d_step { IS_PROMOTED(p) && p <= PROMOTIONS && dbs == p -> copy(p, from); TIMELINE(p); clear(from); dbs++; \
     before[p] = newest; \
     printf("database %d is live, timeline %d, fences whole under %d, epoch %d, floor %d, pending %d\n", p, live[p], \
       stored[p], highest[p], floor[p], pending[p]) }
#ifdef PUT_BACK
#define IS_PROMOTED(p) (p < PROMOTIONS)
#define RESTORE(p, from, old) \
  :: d_step { p == PROMOTIONS && dbs == p && live[from] == live[old] && writer != PASSED -> \
     copy(p, from); clear(from); dbs++; before[p] = newest; \
     gone[old] = 1; least = floor[old]; clear(old); floor[old] = least; writer = IDLE; writer_on = 0; FENCE_ALL(p); \
       printf("database %d is an older state of database %d, put back; fence_all\n", p, old) }
#else
#define IS_PROMOTED(p) true
#define RESTORE(p, from, old)
#endif

/* ---- Nodes ---- */
#if defined(DRAWS_ALWAYS)       /* while the pair differs too */
#define MAY_DRAW(d) LIVE(d)
#elif defined(DRAWS_WHILE_PENDING)  /* while the pair differs, once step 1 is committed */
#define MAY_DRAW(d) (LIVE(d) && (CURRENT_PAIR(d) || IS_PENDING(d)))
#elif defined(DRAWS_BY_TIMELINE)    /* a gateway draws before it has compared the system identifier */
#define MAY_DRAW(d) CURRENT(d)
#else
#define MAY_DRAW(d) CURRENT_PAIR(d)
#endif
#define DRAW(d, n) \
  :: d_step { !admitted[n] && draws < DRAWS && MAY_DRAW(d) && REPLACED_MAY_DRAW(d) -> \
     draws++; highest[d] = highest[d] + 1; drawn[n] = highest[d]; \
     printf("database %d draws epoch %d for node %d\n", d, drawn[n], n) }
#ifdef READMIT_DELETES          /* the announcement */
#define KEEP_ANNOUNCED(n) announced[n] = 0; announced_by[n] = 0
#else
#define KEEP_ANNOUNCED(n) skip
#endif
#define READMIT(n) \
  :: d_step { !admitted[n] && drawn[n] != 0 -> base[n] = drawn[n]; top[n] = MAX(top[n], base[n]); admitted[n] = 1; \
     forgot[n] = 0; drawn[n] = 0; KEEP_ANNOUNCED(n); \
     printf("node %d: READMIT, base %d, stamped %d before\n", n, base[n], stamped[n]); \
     assert(base[n] > stamped[n]);  /* I4 */ stamped[n] = 0 }
#ifdef MANY_FORGET              /* not promised: several nodes have forgotten at a time */
#define MAY_FORGET(n) true
#else
#define MAY_FORGET(n) (forgot[0] + forgot[1] + forgot[2] == forgot[n])
#endif
#define FORGET(n) \
  :: d_step { forgets < FORGETS && MAY_FORGET(n) -> forgets++; stamped[n] = MAX(stamped[n], top[n]); base[n] = 0; \
     top[n] = 0; announced[n] = 0; announced_by[n] = 0; \
     admitted[n] = 0; forgot[n] = 1; drawn[n] = 0; printf("node %d forgets everything\n", n) }
#define RESTART(n) \
  :: d_step { restarts < RESTARTS && (admitted[n] || drawn[n] != 0) -> restarts++; stamped[n] = MAX(stamped[n], \
     top[n]); admitted[n] = 0; drawn[n] = 0; printf("node %d restarts with its data\n", n) }

/* ---- Grants, seals, writes ---- */
#ifdef WRITES
#define CHOOSE(t) if :: token == 0 -> token = (t) :: skip fi
#define TRACK (token == 0)
#else
#define CHOOSE(t) skip
#define TRACK false
#endif
inline grant(a, b) {
    e = MAX(MAX(top[a], top[b]), hint); top[a] = e; top[b] = e; newest = MAX(newest, e);
    CHOOSE(e);
    printf("a grant on the nodes %d and %d, token %d, hint %d\n", a, b, e, hint)
}
#define GRANT(a, b, h) :: d_step { admitted[a] && admitted[b] && (top[a] != top[b] || (h) > top[a] || \
  top[a] > newest || TRACK) -> hint = h; grant(a, b) }
#ifdef HINT_BY_ANNOUNCED        /* the hint is above what the gateway has seen on nodes */
#define GRANTS(a, b) GRANT(a, b, 0) GRANT(a, b, announced[0]) GRANT(a, b, announced[1]) GRANT(a, b, announced[2])
#else
#define GRANTS(a, b) GRANT(a, b, 0) GRANT(a, b, floor[0]) GRANT(a, b, floor[1]) GRANT(a, b, floor[2])
#endif
#ifdef WITHOUT_FLOOR
#define IS_BELOW(d) false
#else
#define IS_BELOW(d) (token < floor[d])
#endif
/* the gateway compares the pair, the transaction does not: a session that was opened before the promotion */
#ifdef WITHOUT_COMPARISON
#define COMPARED(d) LIVE(d)
#else
#define COMPARED(d) CURRENT(d)
#endif
#ifdef WITHOUT_FOR_SHARE        /* a transaction with a snapshot from before the change passes by it */
#define IS_SAME_ROW true
#else
#define IS_SAME_ROW (!changed)
#endif
#ifdef WRITES
#define WRITER(d) \
  :: d_step { token != 0 && CURRENT(d) && !IS_BELOW(d) && !sealed[d] && !PASSED_ON(d) -> \
     sealed[d] = 1; printf("database %d: token %d is sealed\n", d, token); \
     if :: !NEWER(begun, d) -> sealed_somewhere = 1 :: else -> skip fi } \
  :: d_step { token != 0 && writer == IDLE && COMPARED(d) && !IS_BELOW(d) && !sealed[d] -> writer = SNAPSHOT; \
     writer_on = d; changed = 0; printf("database %d: snapshot of a write with token %d\n", d, token) } \
  :: d_step { writer == SNAPSHOT && writer_on == d && LIVE(d) && !sealed[d] && IS_SAME_ROW -> \
     writer = PASSED; changed = 0; printf("database %d: the write passes\n", d); \
     assert(whole[d] || foreign[d]);    /* G3 */ \
     assert(!sealed_somewhere || d + 1 != dbs || foreign[d]) } \
  :: d_step { writer == PASSED && writer_on == d -> writer = IDLE; writer_on = 0; \
     printf("database %d: the write commits\n", d); \
     assert(token >= floor[d] || gone[d]) }
#define ABORT :: d_step { writer == SNAPSHOT -> writer = IDLE; writer_on = 0; changed = 0 }
#else
#define WRITER(d)
#define ABORT
#endif

#define CHANGE(k) ROUND(k) ANNOUNCE(k, 0) ANNOUNCE(k, 1) ANNOUNCE(k, 2) FINISH(k, 0) FINISH(k, 1) FINISH(k, 2)
#define DATABASE(d) BEGIN(d) BEGIN_SEEN(d, 0) BEGIN_SEEN(d, 1) BEGIN_SEEN(d, 2) FENCE(d) DRAW(d, 0) DRAW(d, 1) DRAW(d, \
  2) WRITER(d)
#define NODE(n) READMIT(n) FORGET(n) RESTART(n)
active proctype cluster() {
    d_step {
        highest[0] = 1; live[0] = 1; stored[0] = 1; whole[0] = 1;
        copy(3, 0);
#if PROMOTIONS >= 2
        copy(4, 0);
#endif
#ifdef NONE_ADMITTED
        admitted[0] = 0; admitted[1] = 0; admitted[2] = 0; stamped[0] = 1; stamped[1] = 1; stamped[2] = 1
#endif
    }
    do
    DATABASE(0) DATABASE(1) DATABASE(2)
    COPY(1, 3, 0) COPY(2, 4, 0) COPY(2, 4, 1)
    PROMOTE(1, 3) PROMOTE(2, 4) RESTORE(1, 3, 0) RESTORE(2, 4, 1)
    CHANGE(1) CHANGE(2) CHANGE(3)
#if CHANGES >= 4
    CHANGE(4)
#endif
    NODE(0) NODE(1) NODE(2)
    GRANTS(0, 1) GRANTS(0, 2) GRANTS(1, 2)
    ABORT
    od
}
