/* FAST READMISSION with HOLDS (docs/protocol.md) as a Promela model: exclusion while nodes forget and others read
 * for them. checks.tsv says with which macros it is searched; upgrade.pml has the stamp of an installed lease.
 *
 * What is modelled. Three nodes, a majority is two, so n - q + 1 = 2: both other nodes are read. Two owners, X and Y;
 * X may have a further hold. Time is a number of ticks: TTL of a lease, the bound D, and WAIT before the reads.
 * Every step is one script on one node, one decision of a gateway, or a tick; so each is a d_step.
 *
 * What is abstracted.
 * - Messages. A request is executed at any later moment, any number of times, in any life, or never.
 *   Its reply is used at any later moment, or never.
 *   RELEASE is repeated for ever. A late ACQUIRE, TOP-UP or HOLD (PUTS) puts a lease back,
 *   or its id; it counts for nobody.
 * - Tokens and stamps. An installed lease counts at once for RENEW and HOLD, which allows more than the rule does;
 *   with CLOSES it counts for HOLD after an UPGRADE, which happens only while the grant of X is valid.
 * - A life is a number: what (run id, mark) distinguishes.
 *   RESTORES: a restart brings back an older lease, with its whole ttl.
 * - SCAN of one key (SCANS): it begins, and ends with GET and PTTL;
 *   a key that was missing at some moment in between may be missed.
 *
 * What is checked. At no moment have both owners a valid grant or hold; no hold is answered under a sealed token.
 * Sizes (macros): GRANTED: X has its grant at first, on these nodes (bits); HOLDS: X asks for a second hold;
 * CLOSES: its first is released with a seal; RENEWS: calls that are renewed once (bits); LOSSES; SUPERVISORS 1|2,
 * gateways that readmit; PUTS.
 * Weakened rules: every macro WITHOUT_* and those with a comment. REACH_* asserts that a state is never reached.
 */
#ifndef RENEWS
#define RENEWS 0
#endif
#ifndef LOSSES
#define LOSSES 1
#endif
#ifndef SUPERVISORS
#define SUPERVISORS 1
#endif
#ifndef PUTS
#define PUTS 0
#endif
#ifndef TTL
#define TTL 4
#endif
#define D 1
#ifdef WITHOUT_WAIT
#define WAIT 0
#else
#define WAIT (D + 1)
#endif
#define N 3
#define BIT(i) (1 << (i))
#define COUNT(m) (((m) & 1) + (((m) >> 1) & 1) + (((m) >> 2) & 1))
#define MAJORITY 2
#define AT(s, n) ((s) * N + (n))

/* ---- State: a node ---- */
#define FREE 0
#define X 1
#define Y 2
#define BLOCK 3                 /* a key of nobody, which nobody releases */
byte owner[N];
byte left[N];                   /* ticks until the key expires */
byte ids[N], dead[N];           /* live ids, tombstones: bits of calls */
#ifdef CLOSES
bit closed[N];                  /* CLOSE mark */
bit installed[N];               /* the lease does not count before an UPGRADE */
bit closing, sealed;            /* hold 0 is to be released with a seal */
byte close_age, close_counted;
bit read_closed[6];
#endif
byte life[N];
byte down[N];                   /* ticks in this life, up to TTL */
bit admitted[N] = 1;
byte losses, puts;
/* ---- State: a call: 0 the grant of X, 1 a HOLD of X, 2 the grant of Y; its number is the id of the hold ---- */
#define CALLS 3
#define OWNER(h) ((h) == 2 -> Y : X)
#define IDLE 0
#define ASKED 1
#define ANSWERED 2
#define RELEASED 3              /* by its holder, or because it failed */
byte phase[CALLS];
byte age[CALLS];                /* ticks since the first send, up to D + 1 */
byte counted[CALLS];            /* nodes that executed it */
byte validity[CALLS];           /* ticks left */
bit renewing[CALLS], renewed[CALLS];
byte renewal_age[CALLS], renewal_counted[CALLS];
/* ---- State: a supervisor, a gateway that readmits a node ---- */
#define READING 1
#define INSTALLED 2
byte work[2];
byte target[2], seen_life[2], waited[2];
byte was_read[2];               /* nodes */
byte read_owner[6], read_left[6], read_ids[6], read_dead[6];
#ifdef SCANS
byte scanning[2];               /* nodes on which a SCAN has begun */
byte whole[2];                  /* of these, where the key was there all the time since */
byte scan_life[6];
#define KEY_ENDS(n) whole[0] = whole[0] & (7 - BIT(n)); whole[1] = whole[1] & (7 - BIT(n))
#else
#define KEY_ENDS(n) skip
#endif

hidden byte i, e, v, u, w;

#define VALID_X (validity[0] > 0 || validity[1] > 0)
inline check() { assert(!(VALID_X && validity[2] > 0)) }
#ifdef CLOSES
#define OPEN(n) (!closed[n])
#define HOLD_COUNTS(n) (!installed[n])
#define NOTE_INSTALLED(n) installed[n] = (owner[n] == X)
#define UPGRADE(n) :: d_step { installed[n] && ADM(n) && validity[0] > 0 -> \
  installed[n] = 0; printf("node %d: UPGRADE\n", n) }
#define SET_MARK(n, value) closed[n] = value; installed[n] = 0
#define KEEP_MARK(s, n) read_closed[AT(s, n)] = closed[n]
#define DROP_MARK(s, n) read_closed[AT(s, n)] = 0
#ifdef WITHOUT_CLOSE_MARK       /* INSTALL leaves the CLOSE mark out */
#define MERGED_MARK(s) 0
#else
#define MERGED_MARK(s) (read_closed[AT(s, 0)] || read_closed[AT(s, 1)] || read_closed[AT(s, 2)])
#endif
#ifdef LATE_CLOSES              /* a reply to CLOSE counts whenever it is read */
#define CLOSE_ON_TIME true
#else
#define CLOSE_ON_TIME (close_age <= D)
#endif
/* CLOSE in one try, which is not lifted: with a majority the token is sealed, and no hold may be answered from then on.
 * */
#define CLOSE \
  :: d_step { phase[0] == ANSWERED && !closing -> \
     closing = 1; printf("hold 0 is to be released with a seal: CLOSE\n") } \
  :: d_step { closing && !sealed && COUNT(close_counted) >= MAJORITY && CLOSE_ON_TIME -> sealed = 1; close_age = 0; \
     close_counted = 0; printf("=> the token is sealed\n"); assert(validity[1] == 0) }
#define CLOSE_ON(n) \
  :: d_step { closing && !sealed && HAS_KEY(0, n) && (ids[n] & 6) == 0 -> \
     closed[n] = 1; close_counted = close_counted | BIT(n); printf("node %d: CLOSE\n", n) }
#define CHECK_SEAL(h) assert((h) != 1 || !sealed)
#else
#define OPEN(n) true
#define HOLD_COUNTS(n) true
#define NOTE_INSTALLED(n) skip
#define UPGRADE(n)
#define SET_MARK(n, value) skip
#define KEEP_MARK(s, n) skip
#define DROP_MARK(s, n) skip
#define CLOSE
#define CLOSE_ON(n)
#define CHECK_SEAL(h) skip
#define MERGED_MARK(s) 0
#endif
inline clear_key(n) { owner[n] = FREE; left[n] = 0; ids[n] = 0; dead[n] = 0; SET_MARK(n, 0); KEY_ENDS(n) }

/* ---- A call ---- */
#ifdef LATE_GRANTS              /* a reply to ACQUIRE counts whenever it is read */
#define ON_TIME(h) (age[h] <= D || (h) != 1)
#elif defined(LATE_HOLDS)       /* a reply to HOLD */
#define ON_TIME(h) (age[h] <= D || (h) == 1)
#else
#define ON_TIME(h) (age[h] <= D)
#endif
#ifdef LATE_RENEWALS            /* a reply to RENEW */
#define RENEWAL_ON_TIME(h) true
#else
#define RENEWAL_ON_TIME(h) (renewal_age[h] <= D)
#endif
#if defined(LATE_GRANTS) || defined(LATE_HOLDS) || defined(LATE_RENEWALS)
#define AGE_MAX TTL
#else
#define AGE_MAX (D + 1)
#endif
#define MAY_ASK(h) ((h) != 1 || phase[0] == ANSWERED)
#define HAS_KEY(h, n) (ADM(n) && owner[n] == OWNER(h) && !(dead[n] & BIT(h)))
#define ADM(n) admitted[n]
#define CALL(h) \
  :: d_step { phase[h] == IDLE && MAY_ASK(h) -> phase[h] = ASKED; printf("call %d begins\n", h) } \
  :: d_step { phase[h] == ASKED && COUNT(counted[h]) >= MAJORITY && ON_TIME(h) && age[h] < TTL -> \
     phase[h] = ANSWERED; validity[h] = TTL - age[h]; age[h] = 0; counted[h] = 0; \
       printf("=> call %d is answered, valid for %d\n", h, validity[h]); CHECK_SEAL(h); check() } \
  :: d_step { phase[h] == ASKED -> phase[h] = RELEASED; age[h] = 0; counted[h] = 0; printf("call %d fails\n", h) } \
  :: d_step { phase[h] == ANSWERED -> phase[h] = RELEASED; validity[h] = 0; renewing[h] = 0; renewal_age[h] = 0; \
     renewal_counted[h] = 0; printf("the holder of %d releases it\n", h) } \
  :: d_step { (RENEWS & BIT(h)) && phase[h] == ANSWERED && !renewed[h] -> renewed[h] = 1; renewing[h] = 1; \
     printf("hold %d is to be renewed\n", h) } \
  :: d_step { renewing[h] && COUNT(renewal_counted[h]) >= MAJORITY && RENEWAL_ON_TIME(h) && renewal_age[h] < TTL -> \
     renewing[h] = 0; if :: validity[h] < TTL - renewal_age[h] -> validity[h] = TTL - renewal_age[h] :: else fi; \
     renewal_age[h] = 0; renewal_counted[h] = 0; \
       printf("=> hold %d is renewed, valid for %d\n", h, validity[h]); check() }
#define ACQUIRE(h, n) \
  :: d_step { ADM(n) && ((phase[h] == ASKED && (owner[n] == FREE || owner[n] == OWNER(h))) || \
     (phase[h] > ASKED && puts < PUTS && owner[n] == FREE)) -> \
     owner[n] = OWNER(h); left[n] = TTL; ids[n] = ids[n] | BIT(h); \
       printf("node %d: ACQUIRE, CONFIRM or TOP-UP of %d\n", n, h); \
     if :: phase[h] == ASKED -> counted[h] = counted[h] | BIT(n) :: else -> puts++ fi }
#define HOLD(n) \
  :: d_step { (phase[1] == ASKED || (phase[1] > ASKED && puts < PUTS)) && HAS_KEY(1, n) && OPEN(n) -> \
     ids[n] = ids[n] | BIT(1); left[n] = TTL; printf("node %d: HOLD\n", n); \
     if :: phase[1] == ASKED && HOLD_COUNTS(n) -> \
       counted[1] = counted[1] | BIT(n) :: phase[1] == ASKED && !HOLD_COUNTS(n) :: else -> puts++ fi }
#define RENEW(h, n) \
  :: d_step { renewing[h] && HAS_KEY(h, n) -> \
     ids[n] = ids[n] | BIT(h); left[n] = TTL; renewal_counted[h] = renewal_counted[h] | BIT(n); \
       printf("node %d: RENEW of %d\n", n, h) }
#define RELEASE(h, n) \
  :: d_step { phase[h] == RELEASED && HAS_KEY(h, n) -> \
     ids[n] = ids[n] & (7 - BIT(h)); dead[n] = dead[n] | BIT(h); \
       printf("node %d: RELEASE of %d, live ids left %d\n", n, h, ids[n]); \
     if :: ids[n] == 0 -> clear_key(n) :: else fi }

/* ---- A node forgets ---- */
#ifdef WITHOUT_MARK             /* the life is the run id; data are lost without a restart */
#define NEW_LIFE(n) skip
#else
#define NEW_LIFE(n) life[n]++
#endif
#if defined(GRANTED) && GRANTED != 7
#define FORGETTERS(n) (losses > 0 || (n) != 1)
#else                           /* nodes are alike */
#define FORGETTERS(n) (losses > 0 || (n) == 0)
#endif
inline forget(n) { losses++; NEW_LIFE(n); admitted[n] = 0; down[n] = 0; clear_key(n) }
#ifdef RESTORES
#define RESTORE(n) \
  :: d_step { losses < LOSSES && FORGETTERS(n) && phase[0] != IDLE -> forget(n); owner[n] = X; left[n] = TTL; \
     ids[n] = BIT(0); printf("node %d: restarts with an older lease of X\n", n) } \
  :: d_step { losses < LOSSES && FORGETTERS(n) && phase[2] != IDLE -> forget(n); owner[n] = Y; left[n] = TTL; \
     ids[n] = BIT(2); printf("node %d: restarts with an older lease of Y\n", n) }
#else
#define RESTORE(n)
#endif
#define NODE(n) \
  :: d_step { losses < LOSSES && FORGETTERS(n) -> forget(n); printf("node %d: forgets everything\n", n) } \
  RESTORE(n) \
  :: d_step { !ADM(n) && down[n] >= TTL -> admitted[n] = 1; down[n] = 0; \
     printf("node %d: votes after the quarantine\n", n) }

/* ---- FAST READMISSION ---- */
#ifdef FEWER_READS              /* n - q nodes */
#define ENOUGH(s) (was_read[s] != 0)
#else
#define ENOUGH(s) (COUNT(was_read[s]) == 2)
#endif
#ifdef READS_OF_ANY             /* a node that does not vote is read as well */
#define SOURCE(n) true
#else
#define SOURCE(n) ADM(n)
#endif
#ifdef READS_FIRST              /* the wait follows the reads */
#define MAY_READ(s) true
#define MAY_INSTALL(s) (waited[s] >= WAIT)
#else
#define MAY_READ(s) (waited[s] >= WAIT)
#define MAY_INSTALL(s) true
#endif
#define IN_LIFE(s) (life[target[s]] == seen_life[s])
#ifdef INSTALL_UNBOUND          /* INSTALL tests neither (run, mark) nor that the node is not admitted */
#define MAY_WRITE(s) true
#else
#define MAY_WRITE(s) (IN_LIFE(s) && !ADM(target[s]))
#endif
#ifdef READMIT_UNBOUND          /* READMIT does not test (run, mark) */
#define MAY_ADMIT(s) (!ADM(target[s]))
#else
#define MAY_ADMIT(s) (IN_LIFE(s) && !ADM(target[s]))
#endif
#ifdef READMIT_WITHOUT_INSTALL  /* READMIT is sent before INSTALL was acknowledged */
#define MAY_SEND_READMIT(s) (work[s] == INSTALLED || (work[s] == READING && ENOUGH(s)))
#else
#define MAY_SEND_READMIT(s) (work[s] == INSTALLED)
#endif
inline finish(s) {
    work[s] = IDLE; target[s] = 0; seen_life[s] = 0; waited[s] = 0; was_read[s] = 0;
    for (i : 0 .. N - 1) { read_owner[AT(s, i)] = 0; read_left[AT(s, i)] = 0; read_ids[AT(s, i)] = 0;
      read_dead[AT(s, i)] = 0; DROP_MARK(s, i) };
#ifdef SCANS
    scanning[s] = 0; whole[s] = 0;
    for (i : 0 .. N - 1) { scan_life[AT(s, i)] = 0 };
#endif
    i = 0
}
#define KEEP(s, n) was_read[s] = was_read[s] | BIT(n); read_owner[AT(s, n)] = owner[n]; \
  read_left[AT(s, n)] = left[n]; read_ids[AT(s, n)] = ids[n]; read_dead[AT(s, n)] = dead[n]; KEEP_MARK(s, n); \
     printf("supervisor %d reads node %d: owner %d, left %d, ids %d, tombstones %d\n", s, n, owner[n], left[n], \
       ids[n], dead[n])
#ifdef SCANS
#if defined(ADM_AT_START)       /* the pages do not test it */
#define SAME_SCAN(s, n) true
#else
#define SAME_SCAN(s, n) (ADM(n) && scan_life[AT(s, n)] == life[n])
#endif
#define READ(s, n) \
  :: d_step { work[s] == READING && MAY_READ(s) && n != target[s] && !(was_read[s] & BIT(n)) && \
     !(scanning[s] & BIT(n)) && ADM(n) -> \
     scanning[s] = scanning[s] | BIT(n); scan_life[AT(s, n)] = life[n]; if :: owner[n] != FREE -> \
       whole[s] = whole[s] | BIT(n) :: else fi; \
     printf("supervisor %d begins to scan node %d\n", s, n) } \
  :: d_step { (scanning[s] & BIT(n)) && !SAME_SCAN(s, n) -> scanning[s] = scanning[s] & (7 - BIT(n)); \
     whole[s] = whole[s] & (7 - BIT(n)); scan_life[AT(s, n)] = 0 } \
  :: d_step { (scanning[s] & BIT(n)) && SAME_SCAN(s, n) -> KEEP(s, n); scanning[s] = scanning[s] & (7 - BIT(n)); \
     whole[s] = whole[s] & (7 - BIT(n)); scan_life[AT(s, n)] = 0 } \
  :: d_step { (scanning[s] & BIT(n)) && SAME_SCAN(s, n) && !(whole[s] & BIT(n)) && owner[n] != FREE -> \
     was_read[s] = was_read[s] | BIT(n); scanning[s] = scanning[s] & (7 - BIT(n)); scan_life[AT(s, n)] = 0; \
       printf("the scan of supervisor %d misses the key on node %d\n", s, n) }
#else
#define READ(s, n) :: d_step { work[s] == READING && MAY_READ(s) && n != target[s] && !(was_read[s] & BIT(n)) && \
  SOURCE(n) -> KEEP(s, n) }
#endif
#ifdef SMALLEST_PTTL
#define BETTER(x, y) ((x) < (y))
#else
#define BETTER(x, y) ((x) > (y))
#endif
#ifdef LONGER_OF_TWO            /* where the nonces differ, the lease that expires last is installed */
#define DIFFERENT if :: read_left[AT(s, i)] > v -> e = read_owner[AT(s, i)]; u = read_ids[AT(s, i)]; \
  w = read_dead[AT(s, i)] :: else fi
#else
#define DIFFERENT e = BLOCK
#endif
#ifdef IDS_OF_ONE               /* the ids of one copy, instead of the union */
#define MERGE_IDS skip
#else
#define MERGE_IDS u = u | read_ids[AT(s, i)]
#endif
#ifdef WITHOUT_TOMBSTONES
#define MERGE_TOMBSTONES skip
#define FIRST_TOMBSTONES 0
#else
#define MERGE_TOMBSTONES w = w | read_dead[AT(s, i)]
#define FIRST_TOMBSTONES read_dead[AT(s, i)]
#endif
#ifdef OWN_LEASE_STAYS          /* the node's own lease is not overwritten while it lasts longer */
#define OVERWRITES(n) (owner[n] == FREE || left[n] < v)
#elif defined(WITHOUT_INSTALL)
#define OVERWRITES(n) false
#else
#define OVERWRITES(n) true
#endif
#ifdef REACH_MERGE              /* a merged lease with the ids of two holds, of which each reader had one */
#define REACHED assert(!(e == X && u == 3 && read_ids[AT(s, (target[s] + 1) % N)] != 3 && \
  read_ids[AT(s, (target[s] + 2) % N)] != 3));
#else
#define REACHED
#endif
inline merge(s) {
    e = FREE; v = 0; u = 0; w = 0;
    for (i : 0 .. N - 1) {
        if
        :: read_owner[AT(s, i)] == FREE
        :: read_owner[AT(s, i)] != FREE && e == FREE -> e = read_owner[AT(s, i)]; v = read_left[AT(s, i)];
           u = read_ids[AT(s, i)]; w = FIRST_TOMBSTONES
        :: read_owner[AT(s, i)] != FREE && e != FREE ->
            if
            :: e != read_owner[AT(s, i)] -> DIFFERENT
            :: else -> MERGE_IDS; MERGE_TOMBSTONES
            fi;
            if :: BETTER(read_left[AT(s, i)], v) -> v = read_left[AT(s, i)] :: else fi
        fi
    };
    REACHED
    if
    :: e == BLOCK -> u = 0; w = 0
    :: e != BLOCK && e != FREE -> u = u & (7 - w); if :: u == 0 -> e = FREE :: else fi     /* it was released */
    :: else
    fi
}
#define SUPERVISOR(s) \
  :: d_step { work[s] == READING && ENOUGH(s) && MAY_INSTALL(s) && MAY_WRITE(s) -> \
     merge(s); e = (OVERWRITES(target[s]) -> e : FREE); v = (e == FREE -> 0 : v); \
     if :: e != FREE -> owner[target[s]] = e; left[target[s]] = v; ids[target[s]] = u; dead[target[s]] = w; \
       SET_MARK(target[s], MERGED_MARK(s)); NOTE_INSTALLED(target[s]) :: else fi; \
     work[s] = INSTALLED; was_read[s] = 0; waited[s] = 0; \
     for (i : 0 .. N - 1) { read_owner[AT(s, i)] = 0; read_left[AT(s, i)] = 0; read_ids[AT(s, i)] = 0; \
       read_dead[AT(s, i)] = 0; DROP_MARK(s, i) }; \
     printf("node %d: INSTALL by supervisor %d, owner %d, left %d, ids %d\n", target[s], s, e, v, u); e = 0; v = 0; \
       u = 0; w = 0 } \
  :: d_step { MAY_SEND_READMIT(s) && MAY_ADMIT(s) -> admitted[target[s]] = 1; down[target[s]] = 0; \
     printf("node %d: READMIT by supervisor %d\n", target[s], s); finish(s) } \
  :: d_step { work[s] == READING && (!IN_LIFE(s) || ADM(target[s])) && !MAY_WRITE(s) -> finish(s) } \
  :: d_step { work[s] == INSTALLED && (!IN_LIFE(s) || ADM(target[s])) && !MAY_ADMIT(s) -> finish(s) }
#define SIGHT(s, n) :: d_step { work[s] == IDLE && !ADM(n) -> work[s] = READING; target[s] = n; \
  seen_life[s] = life[n]; printf("supervisor %d sees that node %d does not vote\n", s, n) }

/* ---- A tick ---- */
inline tick() {
    printf("-- a tick --\n");
    for (i : 0 .. N - 1) {
        if :: left[i] > 0 -> left[i] = left[i] - 1; if :: left[i] == 0 ->
          clear_key(i); printf("   the key on node %d expires\n", i) :: else fi :: else fi;
        if :: !ADM(i) && down[i] < TTL -> down[i] = down[i] + 1 :: else fi;
        if :: validity[i] > 0 -> validity[i] = validity[i] - 1 :: else fi;
        if :: phase[i] == ASKED && age[i] < AGE_MAX -> age[i] = age[i] + 1 :: else fi;
#ifdef CLOSES
        if :: i == 0 && closing && !sealed && close_age <= D -> close_age++ :: else fi;
#endif
        if :: renewing[i] && renewal_age[i] < AGE_MAX -> renewal_age[i] = renewal_age[i] + 1 :: else fi
    };
    for (i : 0 .. SUPERVISORS - 1) { if :: work[i] == READING && waited[i] < WAIT ->
      waited[i] = waited[i] + 1 :: else fi };
    i = 0
}

#define ON(n) ACQUIRE(0, n) ACQUIRE(2, n) RENEW(0, n) RENEW(2, n) RELEASE(0, n) RELEASE(2, n) NODE(n) SIGHT(0, \
  n) READ(0, n)
active proctype cluster() {
#ifdef GRANTED
    d_step {
        phase[0] = ANSWERED; validity[0] = TTL;
        for (i : 0 .. N - 1) { if :: GRANTED & BIT(i) -> owner[i] = X; left[i] = TTL; ids[i] = 1 :: else fi };
        i = 0
    }
#endif
    do
    CALL(0) CALL(2) ON(0) ON(1) ON(2) SUPERVISOR(0)
#ifdef HOLDS
    CALL(1) HOLD(0) HOLD(1) HOLD(2) RENEW(1, 0) RENEW(1, 1) RENEW(1, 2) RELEASE(1, 0) RELEASE(1, 1) RELEASE(1, 2)
#endif
#if SUPERVISORS >= 2
    SUPERVISOR(1) SIGHT(1, 0) SIGHT(1, 1) SIGHT(1, 2) READ(1, 0) READ(1, 1) READ(1, 2)
#endif
    CLOSE CLOSE_ON(0) CLOSE_ON(1) CLOSE_ON(2) UPGRADE(0) UPGRADE(1) UPGRADE(2)
    :: d_step { tick() }
    od
}
