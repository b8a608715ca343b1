/* A repeated request takes a hold over (docs/protocol.md, HOLDS: confirmed ids) as a Promela model.
 * checks.tsv says with which macros it is searched.
 *
 * What is modelled. Three nodes, a majority is two. A lease is kept by a hold g.
 * Gateway A executes a request with an idempotency key, HOLD or (ACQUIRES) the ACQUIRE of the lease,
 * with the tentative id h; it answers, or fails and sends the undo of h. Gateway B repeats the request: it finds h,
 * and INSPECT asks about the confirmed id h'. The caller then renews and releases h', whichever request was answered.
 * One node forgets and is readmitted fast. A rival takes whatever key is free.
 * Every step is one script on one node, or one decision of a gateway; so each is a d_step.
 *
 * What is abstracted.
 * - Messages. Each request is executed at any later moment, in any order, any number of times, or never;
 *   its reply is delivered at once or lost.
 *   The undo may arrive before the request that it undoes.
 * - INSPECT adds h' where neither id is live, as the TOP-UP of an UPGRADE does.
 *   B answers nothing after a round in which some OK has a CLOSE mark;
 *   here it does not count that OK, which allows more.
 * - Rounds. INSPECT and RENEW are repeated for ever; a repeat of another gateway, and HOLD of h', are an INSPECT.
 * - Time. Without EXPIRY no key of the lease expires. With it one expires at any moment.
 *   A hold depends on the nodes of one majority that answered (of any of its answers),
 *   and is over once the key on one of these expires. It may be answered again later.
 * - Tokens. Each key of the lease counts, which allows more than the rules do; upgrade.pml has the rest.
 *   Only with CLOSES a copy does not count before an UPGRADE.
 * - D and the wait before the reads: when they begin, no round counts a reply that the node sent before it forgot.
 *
 * What is checked. Always: no rival has a majority while h' (or g) is answered, not released and not over;
 *   no node has h beside h', so one hold is counted once; and (CLOSES) h' is not answered under the sealed token.
 * Parts (macros): ACQUIRES; RENEWALS: RENEW; TOP_UPS: TOP-UP; EXPIRY; LOSSES: how often a node forgets;
 *   LATE_ACQUIRE: of the attempt that g belongs to (with ACQUIRES it is the request itself); JOINS (with ACQUIRES):
 *   g is added by HOLD; DROPS: lists are bounded, so any tombstone, or mark of the old rule, may be dropped;
 *   CLOSES: g is released with a seal (not with EXPIRY, TOP_UPS, LATE_ACQUIRE or ACQUIRES: keys that are put back
 *   without a token would count).
 * Weakened rules: every macro WITHOUT_* and those with a comment. REACH_* asserts that a state is never reached.
 */
#define N 3
#define BIT(i) (1 << (i))
#define COUNT(m) (((m) & 1) + (((m) >> 1) & 1) + (((m) >> 2) & 1))
#define MAJORITY 2
#define G 1
#define H 2                     /* tentative: of the request and its undo */
#define C 4                     /* confirmed: of the answer to the caller */
#define LESS(set, id) ((set) & (7 - (id)))

/* ---- State: a node ---- */
#define FREE 0
#define OURS 1
#define RIVALS 2
#define BLOCK 3                 /* a key of nobody, which nobody releases */
byte key[N];
byte ids[N], dead[N];           /* live ids, tombstones */
bit closed[N];                  /* CLOSE mark */
bit installed[N];               /* with CLOSES: a copy, which does not count before an UPGRADE */
#ifdef OLD_RULE                 /* one id, h; INSPECT leaves a mark where h is live, and the undo has no effect there */
bit mark[N];
#endif
/* ---- State: the node that forgets ---- */
#define VOTES 0
#define FORGOT 1                /* D is waited for */
#define READING 2
byte stage, target;
byte was_read, copied_key, copied_ids, copied_dead, losses;
bit copied_mark, copied_closed;
bit rival_counted;              /* a rival counts the reply of the node from before it forgot */
#define ADM(n) (stage == VOTES || target != n)
/* ---- State: gateways and the caller ---- */
#define ASKED 0
#define ANSWERED 1
#define FAILED 2
byte request;                   /* of A */
byte counted;                   /* nodes whose OK was delivered to A */
bit found;                      /* a node has executed it */
bit answered, held, released;   /* h': some gateway has answered it; and it is not over; RELEASE by the caller */
byte rests_on;
byte inspect_yes, renew_yes;    /* nodes whose OK in this round was delivered */
#define NOT_YET 0
#define HELD 1
#define ENDED 2                 /* released, or over */
#define OVER 3
byte g, g_rests_on, g_counted;
bit granted;                    /* to a rival */
#define NO_SEAL 0
#define CLOSING 1
#define SEALED 2
#define LIFTED 3
byte seal;                      /* g is released with a seal */
byte close_yes;                 /* nodes whose OK to CLOSE was delivered */

inline delete(n) {
    key[n] = FREE; ids[n] = 0; dead[n] = 0; closed[n] = 0; installed[n] = 0;
#ifdef OLD_RULE
    mark[n] = 0;
#endif
    printf("   the key on node %d is deleted\n", n)
}
#define END_KEY(n) if :: ids[n] == 0 -> delete(n) :: else -> skip fi
#define CHECK() assert(!(granted && (held || g == HELD)))
#define CHECK_ONE(n) assert((ids[n] & (H + C)) != H + C)
inline answer(nodes) {
    /* each answer has a validity of its own */
    if :: !held -> rests_on = nodes :: held -> rests_on = nodes :: held -> skip fi;
    answered = 1; held = 1; CHECK(); assert(seal != SEALED)
}

/* ---- The first request: HOLD(h) or ACQUIRE(h), by gateway A; its undo ---- */
#ifdef OLD_RULE
#define CALLERS H
#define DEAD_H(n) (dead[n] & H)
#define DEAD_C(n) (dead[n] & H)
#define PROTECTED(n) mark[n]
#else
#define CALLERS C
#define DEAD_H(n) (dead[n] & (H + C))
#define DEAD_C(n) (dead[n] & C)
#ifdef UNDO_OF_CONFIRMED        /* the undo of h removes h' as well */
#define PROTECTED(n) false
#else
#define PROTECTED(n) (ids[n] & C)
#endif
#endif
#ifdef ADDS_BESIDE              /* h is added where h' is live */
#define ADD_H(n) ids[n] = ids[n] | H
#else
#define ADD_H(n) if :: ids[n] & C -> skip :: else -> ids[n] = ids[n] | H fi
#endif
#ifdef ACQUIRE_DROPS            /* an ACQUIRE that finds its own nonce writes the value anew */
#define OWN_VALUE(n, id) ids[n] = id; dead[n] = 0; DROP_MARK(n)
#else
#ifdef ACQUIRE_KEEPS            /* an ACQUIRE that finds its own nonce does not add its id */
#define OWN_VALUE(n, id) skip
#else
#define OWN_VALUE(n, id) if :: (dead[n] & id) || (id == H && ((ids[n] | dead[n]) & C)) -> skip :: else -> \
  ids[n] = ids[n] | id fi
#endif
#endif
#ifdef ACQUIRES
#define EXECUTABLE(n) (key[n] == OURS || key[n] == FREE)
#define EXECUTE(n) if :: key[n] == FREE -> key[n] = OURS; ids[n] = H :: else -> OWN_VALUE(n, H) fi
#else
#define EXECUTABLE(n) (key[n] == OURS && !DEAD_H(n) && !closed[n])
#define EXECUTE(n) ADD_H(n)
#endif
#define REQUEST(n) \
  :: d_step { ADM(n) && EXECUTABLE(n) && !released -> EXECUTE(n); found = 1; \
     printf("node %d: A's request, live ids %d\n", n, ids[n]); CHECK_ONE(n); \
     if :: request == ASKED && !installed[n] -> counted = counted | BIT(n); \
           if :: COUNT(counted) >= MAJORITY -> request = ANSWERED; printf("=> A answers\n"); answer(counted); \
             counted = 0 :: else -> skip fi \
        :: skip fi }
#define FAIL :: d_step { request == ASKED -> request = FAILED; counted = 0; \
  printf("A's request fails and is undone\n") }
#ifdef WITHOUT_UNDONE_TOMBSTONE
#define BURY_H(n) skip
#else
#define BURY_H(n) dead[n] = dead[n] | H
#endif
#define UNDO(n) \
  :: d_step { request == FAILED && ADM(n) && key[n] == OURS && !PROTECTED(n) -> \
     BURY_H(n); ids[n] = LESS(ids[n], H + C); printf("node %d: undo of h, live ids left %d\n", n, ids[n]); END_KEY(n) }

/* ---- The repeat at gateway B, and what the caller does ---- */
#ifdef OLD_RULE
#define INSPECTABLE(n) (ids[n] & H)
#define INSPECTED(n) mark[n] = 1
#define RENEWABLE(n) true
#define RENEWED(n) ids[n] = ids[n] | H
#else
#define CONFIRM(n) ids[n] = LESS(ids[n], H) | C
#ifdef WITHOUT_ADDING           /* INSPECT and RENEW answer OK where neither is there, and add nothing */
#define INSPECTABLE(n) true
#define INSPECTED(n) if :: ids[n] & H -> CONFIRM(n) :: else -> skip fi
#define RENEWABLE(n) true
#define RENEWED(n) INSPECTED(n)
#else
#define INSPECTABLE(n) true
#define INSPECTED(n) CONFIRM(n)
#ifdef WITHOUT_CONVERSION_BY_RENEW
#define RENEWABLE(n) (ids[n] & (H + C))
#define RENEWED(n) skip
#else
#define RENEWABLE(n) true
#define RENEWED(n) CONFIRM(n)
#endif
#endif
#endif
#ifdef WITHOUT_MAJORITY         /* one node is enough for INSPECT */
#define ENOUGH 1
#else
#define ENOUGH MAJORITY
#endif
#define HAS_LEASE(n) (ADM(n) && key[n] == OURS && !DEAD_C(n) && !installed[n])
#ifdef INSPECT_OF_CLOSED        /* B counts an OK to INSPECT with a CLOSE mark */
#define OPEN(n) true
#elif defined(INSPECT_OF_CLOSED_LIVE)   /* B counts an OK to INSPECT with a CLOSE mark where h or h' is live */
#define OPEN(n) (!closed[n] || (ids[n] & (H + C)))
#else
#define OPEN(n) (!closed[n])
#endif
#define INSPECT(n) \
  :: d_step { found && !released && HAS_LEASE(n) && INSPECTABLE(n) && OPEN(n) -> \
     INSPECTED(n); printf("node %d: INSPECT by B, live ids %d\n", n, ids[n]); CHECK_ONE(n); \
     if :: inspect_yes = inspect_yes | BIT(n); \
           if :: COUNT(inspect_yes) >= ENOUGH -> printf("=> B answers, of the nodes in %d\n", inspect_yes); \
             answer(inspect_yes); inspect_yes = 0 :: else -> skip fi \
        :: skip fi }
#ifdef RENEWALS
#define RENEW(n) \
  :: d_step { answered && !released && HAS_LEASE(n) && RENEWABLE(n) -> \
     RENEWED(n); printf("node %d: RENEW, live ids %d\n", n, ids[n]); CHECK_ONE(n); \
     if :: renew_yes = renew_yes | BIT(n); \
           if :: COUNT(renew_yes) >= MAJORITY -> printf("=> renewed, of the nodes in %d\n", renew_yes); \
             answer(renew_yes); renew_yes = 0 :: else -> skip fi \
        :: skip fi }
#else
#define RENEW(n)
#endif
#ifdef TOP_UPS                  /* where the key is there, it does what RENEW does */
#define TOP_UP(n) :: d_step { answered && !released && ADM(n) && key[n] == FREE -> key[n] = OURS; ids[n] = CALLERS; \
  printf("node %d: TOP-UP of h'\n", n) } \
  :: d_step { g == HELD && ADM(n) && key[n] == FREE -> key[n] = OURS; ids[n] = G; printf("node %d: TOP-UP of g\n", n) }
#else
#define TOP_UP(n)
#endif
#if defined(REPEAT_RELEASES)    /* B's repeat fails, and B releases h' */
#define UNDO_BY_B(n) \
  :: d_step { found && ADM(n) && key[n] == OURS && (ids[n] & C) -> \
     dead[n] = dead[n] | C; ids[n] = LESS(ids[n], H + C); \
       printf("node %d: RELEASE by B, whose repeat failed, live ids left %d\n", n, ids[n]); END_KEY(n) }
#elif defined(REPEAT_UNDOES)    /* B's repeat fails, and B sends the undo of h */
#define UNDO_BY_B(n) \
  :: d_step { found && ADM(n) && key[n] == OURS && !PROTECTED(n) && (ids[n] & H) -> \
     dead[n] = dead[n] | H; ids[n] = LESS(ids[n], H); \
       printf("node %d: undo by B, whose repeat failed, live ids left %d\n", n, ids[n]); END_KEY(n) }
#else
#define UNDO_BY_B(n)
#endif
#define RETURN_G \
  :: atomic { answered && !released -> d_step { released = 1; held = 0; rests_on = 0; inspect_yes = 0; \
     renew_yes = 0; printf("the caller releases\n") }; \
     if :: g > HELD -> goto done :: else -> skip fi }
#define RELEASE(n) \
  :: d_step { released && ADM(n) && key[n] == OURS -> \
     dead[n] = dead[n] | CALLERS; ids[n] = LESS(ids[n], H + C); \
       printf("node %d: RELEASE by the caller, live ids left %d\n", n, ids[n]); END_KEY(n) }

/* ---- The hold g ---- */
#define END_G \
  :: atomic { g == HELD && seal != CLOSING -> d_step { g = ENDED; g_rests_on = 0; printf("g is released\n") }; \
     if :: released -> goto done :: else -> skip fi }
#define RELEASE_G(n) \
  :: d_step { g == ENDED && ADM(n) && key[n] == OURS -> \
     dead[n] = dead[n] | G; ids[n] = LESS(ids[n], G); printf("node %d: RELEASE of g, live ids left %d\n", n, ids[n]); \
       END_KEY(n) }
#ifdef CLOSES
#define SEAL \
  :: d_step { g == HELD && seal == NO_SEAL -> seal = CLOSING; printf("g is to be released with a seal: CLOSE\n") } \
  :: d_step { seal == CLOSING && COUNT(close_yes) >= MAJORITY -> seal = SEALED; close_yes = 0; \
     printf("=> the token is sealed\n"); assert(!held) } \
  :: d_step { seal == CLOSING -> seal = LIFTED; close_yes = 0; printf("nothing is sealed: the mark is lifted\n") }
#define NOTE_INSTALLED(n) installed[n] = 1
#define CLOSE(n) \
  :: d_step { ADM(n) && installed[n] && (g == HELD || held) -> installed[n] = 0; printf("node %d: UPGRADE\n", n) } \
  :: d_step { seal == CLOSING && ADM(n) && key[n] == OURS && LESS(ids[n], G) == 0 && !(dead[n] & G) && \
     !installed[n] -> closed[n] = 1; close_yes = close_yes | BIT(n); printf("node %d: CLOSE\n", n) } \
  :: d_step { seal == LIFTED && ADM(n) && closed[n] -> closed[n] = 0; printf("node %d: CLOSE is lifted\n", n) }
#else
#define SEAL
#define NOTE_INSTALLED(n) skip
#define CLOSE(n)
#endif
#ifdef LATE_ACQUIRE
#define ACQUIRE(n) \
  :: d_step { ADM(n) && (key[n] == OURS || key[n] == FREE) -> \
     if :: key[n] == FREE -> key[n] = OURS; ids[n] = G :: else -> \
       OWN_VALUE(n, G) fi; printf("node %d: late ACQUIRE, live ids %d\n", n, ids[n]) }
#else
#define ACQUIRE(n)
#endif
#ifdef JOINS
#define JOIN(n) \
  :: d_step { g == NOT_YET && found && ADM(n) && key[n] == OURS -> ids[n] = ids[n] | G; \
     g_counted = g_counted | BIT(n); printf("node %d: HOLD of g\n", n); \
     if :: COUNT(g_counted) >= MAJORITY -> g = HELD; g_rests_on = g_counted; g_counted = 0; \
       printf("=> g is answered\n"); CHECK() :: else -> skip fi }
#else
#define JOIN(n)
#endif

/* ---- Expiry, bounded lists, the rival ---- */
#ifdef EXPIRY
#define EXPIRE(n) \
  :: d_step { key[n] == OURS -> printf("node %d: the key expires\n", n); delete(n); \
     counted = LESS(counted, BIT(n)); inspect_yes = LESS(inspect_yes, BIT(n)); renew_yes = LESS(renew_yes, BIT(n)); \
       g_counted = LESS(g_counted, BIT(n)); \
     close_yes = LESS(close_yes, BIT(n)); \
     if :: held && (rests_on & BIT(n)) -> held = 0; rests_on = 0; printf("   h' is over\n") :: else -> skip fi; \
     if :: g == HELD && (g_rests_on & BIT(n)) -> g = OVER; g_rests_on = 0; printf("   g is over\n") :: else -> skip fi }
#else
#define EXPIRE(n)
#endif
#ifdef OLD_RULE
#define DROP_MARK(n) mark[n] = 0
#define DROP_MARK_STEP(n) :: d_step { mark[n] -> mark[n] = 0; printf("node %d drops the mark\n", n) }
#else
#define DROP_MARK(n) skip
#define DROP_MARK_STEP(n)
#endif
#ifdef DROPS
#define DROP(n) \
  DROP_MARK_STEP(n) \
  :: d_step { dead[n] & H -> dead[n] = LESS(dead[n], H); printf("node %d drops the tombstone of h\n", n) } \
  :: d_step { dead[n] & C -> dead[n] = LESS(dead[n], C); printf("node %d drops the tombstone of h'\n", n) }
#else
#define DROP(n)
#endif
#define RIVAL(n) \
  :: d_step { ADM(n) && key[n] == FREE -> key[n] = RIVALS; printf("node %d: a rival takes it\n", n); \
     if :: !granted && (key[0] == RIVALS) + (key[1] == RIVALS) + (key[2] == RIVALS) + rival_counted >= MAJORITY -> \
           granted = 1; rival_counted = 0; printf("=> the rival has a majority\n"); CHECK() \
        :: else -> skip fi } \
  :: d_step { key[n] == RIVALS && !granted -> key[n] = FREE; printf("node %d: the rival's key ends\n", n) }
#define RIVAL_ENDS :: d_step { granted -> granted = 0; printf("the rival's grant ends\n") }

/* ---- A node forgets; FAST READMISSION ---- */
#ifdef LOSSES                   /* how often */
#ifdef ACQUIRES
#define FORGETTERS(n) (losses > 0 || (n) == 0)  /* nodes are alike */
#else
#define FORGETTERS(n) (losses > 0 || (n) != 1)  /* 0 and 1 are */
#endif
#ifdef WITHOUT_D                /* a round goes on after a node that answered has forgotten */
#define FORGET_REPLIES skip
#else
#define FORGET_REPLIES \
  counted = LESS(counted, BIT(target)); inspect_yes = LESS(inspect_yes, BIT(target)); \
    renew_yes = LESS(renew_yes, BIT(target)); g_counted = LESS(g_counted, BIT(target)); \
  close_yes = LESS(close_yes, BIT(target)); rival_counted = 0
#endif
#ifdef OLD_RULE
#define COPY_MARK(n) copied_mark = copied_mark | mark[n]
#define INSTALL_MARK mark[target] = copied_mark
#else
#define COPY_MARK(n) skip
#define INSTALL_MARK skip
#endif
#ifdef IDS_OF_ONE               /* the ids of the last copy, instead of the union */
#define MERGED_IDS(n) ids[n]
#else
#define MERGED_IDS(n) (copied_ids | ids[n])
#endif
/* A tombstone of h' counts for h too. */
#if defined(TOMBSTONE_OF_TENTATIVE) || defined(OLD_RULE)        /* a tombstone of h counts against h' too */
#define BURIED ((copied_dead & (H + C) -> H + C : 0) | (copied_dead & G))
#else
#define BURIED ((copied_dead & C -> H + C : 0) | (copied_dead & (G + H)))
#endif
#ifdef MERGED_BESIDE            /* h stays beside h' in a merge */
#define ONE_ID skip
#else
#define ONE_ID if :: copied_ids & C -> copied_ids = LESS(copied_ids, H) :: else -> skip fi
#endif
#define FORGETS(n) \
  :: d_step { stage == VOTES && losses < LOSSES && FORGETTERS(n) -> losses++; stage = FORGOT; target = n; \
     rival_counted = (key[n] == RIVALS && !granted); printf("node %d forgets everything\n", n); delete(n) } \
  :: d_step { stage == READING && target != n && !(was_read & BIT(n)) -> was_read = was_read | BIT(n); \
     printf("node %d is read: key %d, live ids %d, tombstones %d\n", n, key[n], ids[n], dead[n]); \
     if :: key[n] == FREE -> skip \
        :: key[n] != FREE && copied_key != FREE && copied_key != key[n] -> copied_key = BLOCK \
        :: else -> copied_key = key[n] fi; \
     if :: key[n] == OURS -> copied_ids = MERGED_IDS(n); copied_dead = copied_dead | dead[n]; \
       copied_closed = copied_closed || closed[n]; COPY_MARK(n) :: else -> skip fi }
#define READMISSION \
  :: d_step { stage == FORGOT -> stage = READING; FORGET_REPLIES; printf("the wait is over\n") } \
  :: d_step { stage == READING && COUNT(was_read) == 2 -> \
     stage = VOTES; copied_ids = LESS(copied_ids, BURIED); ONE_ID; \
     if :: copied_key == OURS && copied_ids == 0 -> skip \
        :: copied_key == OURS && copied_ids != 0 -> key[target] = OURS; ids[target] = copied_ids; \
           dead[target] = copied_dead; closed[target] = copied_closed; NOTE_INSTALLED(target); INSTALL_MARK; \
           CHECK_ONE(target) \
        :: else -> key[target] = copied_key fi; \
     printf("node %d is readmitted: key %d, live ids %d, tombstones %d\n", target, key[target], ids[target], \
       dead[target]); \
     was_read = 0; copied_key = 0; copied_ids = 0; copied_dead = 0; copied_closed = 0; copied_mark = 0; \
       REACHED_COPY target = 0 }
#else
#define FORGETS(n)
#define READMISSION
#endif
#ifdef REACH_COPY               /* a node gets h' from one that was asked, beside one with the tombstone of h */
#define REACHED_COPY assert(!(held && ids[0] == C + G && ids[1] == G && (dead[1] & H) && target == 0));
#else
#define REACHED_COPY
#endif

#define NODE(n) REQUEST(n) UNDO(n) INSPECT(n) RENEW(n) TOP_UP(n) RELEASE(n) RELEASE_G(n) ACQUIRE(n) JOIN(n) CLOSE(n) \
  UNDO_BY_B(n) EXPIRE(n) DROP(n) RIVAL(n) FORGETS(n)
active proctype cluster() {
#ifndef ACQUIRES
    if
    :: d_step { key[0] = OURS; key[1] = OURS; key[2] = OURS; ids[0] = G; ids[1] = G; ids[2] = G; g = HELD;
       g_rests_on = 3 }
    :: d_step { key[0] = OURS; key[1] = OURS; ids[0] = G; ids[1] = G; g = HELD; g_rests_on = 3;
       printf("node 2 has no lease at first\n") }
    fi;
#elif !defined(JOINS)
    g = ENDED;
#endif
    do
    NODE(0) NODE(1) NODE(2)
    FAIL RETURN_G END_G SEAL RIVAL_ENDS READMISSION
    od;
done:
    skip
}
