/* Holds of one re-entrant lease (docs/protocol.md, HOLDS and CLOSE) as a Promela model.
 * checks.tsv says with which macros it is searched.
 *
 * What is modelled. Three nodes, a majority is two.
 * The owner X holds the lease by HOLDS random ids: hold 0 is the grant's, the others come by HOLD; each has a gateway
 * of its own. A rival takes whatever key is free. Every step is one script on one node,
 * or one decision of a gateway; so each is a d_step.
 *
 * What is abstracted.
 * - Messages. A request is executed by the node at any later moment, once (with TWICE any number of times), or never;
 *   its reply is delivered or lost.
 *   A gateway receives a reply at once: a later reply is modelled by a request that is executed later.
 * - Time. A key expires at any moment. A hold depends on the nodes whose time its gateway set last, by HOLD or RENEW,
 *   and is over once the key on one of these expires: its validity ends no later.
 * - Tokens. All of X's keys have the lease's token; lease.pml has the rest.
 *
 * What is checked. Always: no rival has a majority while a hold is answered, not released and not over;
 *   and no other hold is answered under a token that is sealed. With LEFTOVERS: everything is released and delivered,
 *   so no node keeps X's key.
 * Sizes and parts (macros): HOLDS 2|3; RENEWALS: RENEW; TOP_UPS: TOP-UP after it;
 *   SEALS: hold 0 is released with a seal; IN_ORDER: requests of one gateway to one node are not executed
 *   after its RELEASE; EXPIRY: keys expire; TWICE.
 * Weakened rules: every macro WITHOUT_* and those with a comment.
 *   REACH_* asserts that a state is never reached: the result "violated" shows that the search reaches it.
 */
#ifndef HOLDS
#define HOLDS 2
#endif
#define N 3
#define MAJORITY 2
#define ALL 7
#define BIT(i) (1 << (i))
#define COUNT(m) (((m) & 1) + (((m) >> 1) & 1) + (((m) >> 2) & 1))
#ifdef WITHOUT_MAJORITY         /* HOLD is answered when one node has counted it */
#define ENOUGH 1
#else
#define ENOUGH MAJORITY
#endif

/* ---- State: a node ---- */
#define FREE 0
#define OURS 1
#define RIVALS 2
byte key[N] = OURS;
byte ids[N];                    /* the live ids */
byte dead[N];                   /* tombstones */
bit closed[N];                  /* CLOSE mark */
#ifdef WITHOUT_IDS              /* a count in place of the ids */
byte number[N];
#define EMPTY(n) (number[n] == 0)
#else
#define EMPTY(n) (ids[n] == 0)
#endif
/* ---- State: a hold and its gateway ---- */
#define IDLE 0
#define ASKED 1
#define ANSWERED 2
#define RELEASED 3              /* by its holder */
#define FAILED 4                /* no majority counted it: RELEASE removes its id */
#define OVER 5                  /* its validity has ended */
byte phase[3];
byte counted[3];                /* nodes whose OK to HOLD was delivered */
byte rests_on[3];
byte held_on[3], released_on[3], renewed_on[3], renew_yes[3], top_up_to[3], top_up_on[3];  /* nodes that executed it */
bit renews[3], saw_closed[3];
/* ---- State: the sealing release of hold 0 ---- */
#define NO_SEAL 0
#define CLOSING 1
#define SEALED 2
#define LIFTED 3                /* the seal failed, or other holds are left */
byte seal;
byte close_on, close_yes, lift_on;
/* no node deletes its own key: a gateway to which a majority showed no live id deletes it everywhere */
#ifdef END_WITHOUT_CONDITION
byte observed_release[3], shown_live[3], end_on[3];
bit ends[3];
#endif

#ifdef TWICE
#define MAY(done, n) (1)
#else
#define MAY(done, n) (!((done) & BIT(n)))
#endif
#ifdef IN_ORDER
#define NOT_BEHIND_RELEASE(h, n) (!(released_on[h] & BIT(n)))
#else
#define NOT_BEHIND_RELEASE(h, n) (1)
#endif
#ifdef WITHOUT_TOMBSTONES
#define HAS_TOMBSTONE(h, n) (0)
#else
#define HAS_TOMBSTONE(h, n) (dead[n] & BIT(h))
#endif
#ifdef WITHOUT_UNDO
#define RELEASES(h) (phase[h] == RELEASED)
#else
#define RELEASES(h) (phase[h] == RELEASED || phase[h] == FAILED)
#endif

inline delete(n) {
    key[n] = FREE; ids[n] = 0; dead[n] = 0; closed[n] = 0;
#ifdef WITHOUT_IDS
    number[n] = 0;
#endif
    printf("   the key on node %d is deleted\n", n)
}
inline add(h, n) {
#ifdef WITHOUT_IDS
    number[n] = number[n] + 1;
#endif
    ids[n] = ids[n] | BIT(h)
}

/* ---- HOLD ---- */
#define REQUEST(h) \
  :: d_step { phase[h] == IDLE && (phase[0] == ANSWERED || phase[1] == ANSWERED || phase[2] == ANSWERED) -> \
     phase[h] = ASKED; printf("hold %d is asked for\n", h) }
#define HOLD(h, n, delivered) \
  :: d_step { phase[h] != IDLE && h > 0 && MAY(held_on[h], n) && NOT_BEHIND_RELEASE(h, n) && key[n] == OURS && \
     !HAS_TOMBSTONE(h, n) && !closed[n] -> \
     held_on[h] = held_on[h] | BIT(n); add(h, n); printf("node %d: HOLD of %d, yes, delivered %d\n", n, h, delivered); \
     if :: delivered && phase[h] == ASKED -> counted[h] = counted[h] | BIT(n); \
           if :: COUNT(counted[h]) >= ENOUGH -> phase[h] = ANSWERED; rests_on[h] = counted[h]; \
             printf("=> hold %d is answered\n", h); \
                 REACHED_AFTER_LIFT assert(seal != SEALED) \
              :: else -> skip fi \
        :: else -> skip fi }
#ifdef REACH_HOLD_AFTER_LIFT
#define REACHED_AFTER_LIFT assert(seal != LIFTED || close_yes == 0);
#else
#define REACHED_AFTER_LIFT
#endif
#define HOLD_REFUSED(h, n) \
  :: d_step { phase[h] != IDLE && h > 0 && !(held_on[h] & BIT(n)) && (key[n] != OURS || HAS_TOMBSTONE(h, n) || \
     closed[n] || !NOT_BEHIND_RELEASE(h, n)) -> \
     held_on[h] = held_on[h] | BIT(n); printf("node %d: HOLD of %d, no\n", n, h) }
#define FAIL(h) :: d_step { phase[h] == ASKED -> phase[h] = FAILED; printf("hold %d fails and is undone\n", h) }

/* ---- RELEASE(id) ---- */
#ifdef SEALS
#define MAY_RELEASE(h) (h > 0 || seal != CLOSING)
#else
#define MAY_RELEASE(h) (1)
#endif
#define RELEASE_HOLD(h) :: d_step { (phase[h] == ANSWERED || phase[h] == OVER) && MAY_RELEASE(h) -> \
  phase[h] = RELEASED; printf("the holder of %d releases it\n", h) }
#if defined(RELEASE_DELETES)    /* whatever other ids are live */
#define END_KEY(n) delete(n)
#elif defined(END_WITHOUT_CONDITION)
#define END_KEY(n) skip
#elif defined(WITHOUT_IDS)
#define END_KEY(n) if :: number[n] > 0 -> number[n] = number[n] - 1 :: else -> skip fi; if :: number[n] == 0 -> \
  delete(n) :: else -> skip fi
#else
#define END_KEY(n) if :: ids[n] == 0 -> delete(n) :: else -> skip fi
#endif
#ifdef END_WITHOUT_CONDITION
#define OBSERVE_RELEASE(h, n) if :: skip -> observed_release[h] = observed_release[h] | BIT(n); \
  shown_live[h] = shown_live[h] | ids[n] :: skip fi;
#define END(h) \
  :: d_step { RELEASES(h) && !ends[h] && COUNT(observed_release[h]) >= MAJORITY && shown_live[h] == 0 -> \
     ends[h] = 1; printf("a majority shows no live id to the gateway of %d\n", h) }
#define END_ON(h, n) \
  :: d_step { ends[h] && !(end_on[h] & BIT(n)) -> end_on[h] = end_on[h] | BIT(n); if :: key[n] == OURS -> \
     delete(n) :: else -> skip fi }
#else
#define OBSERVE_RELEASE(h, n)
#define END(h)
#define END_ON(h, n)
#endif
#define RELEASE(h, n) \
  :: atomic { RELEASES(h) && MAY(released_on[h], n) -> released_on[h] = released_on[h] | BIT(n); \
     if :: key[n] == OURS -> dead[n] = dead[n] | BIT(h); ids[n] = ids[n] & (ALL - BIT(h)); \
       printf("node %d: RELEASE of %d, live ids left %d\n", n, h, ids[n]); \
           if :: h == 0 -> closed[n] = 0 :: else -> skip fi; OBSERVE_RELEASE(h, n) END_KEY(n) \
        :: else -> OBSERVE_RELEASE(h, n) printf("node %d: RELEASE of %d, no lease\n", n, h) fi }

/* ---- RENEW, TOP-UP: carry the sender's own id ---- */
#ifdef RENEWALS
#ifdef RENEW_CREATES
#define PRESENT(n) (key[n] == OURS || key[n] == FREE)
#else
#define PRESENT(n) (key[n] == OURS)
#endif
#define RENEW(h) :: d_step { phase[h] == ANSWERED && !renews[h] -> renews[h] = 1; printf("hold %d renews\n", h) }
#define RENEW_ON(h, n) \
  :: d_step { renews[h] && MAY(renewed_on[h], n) && NOT_BEHIND_RELEASE(h, n) -> \
     renewed_on[h] = renewed_on[h] | BIT(n); \
     if :: PRESENT(n) && !HAS_TOMBSTONE(h, n) -> key[n] = OURS; \
           if :: !(ids[n] & BIT(h)) -> add(h, n) :: else -> skip fi; \
           renew_yes[h] = renew_yes[h] | BIT(n); saw_closed[h] = saw_closed[h] || closed[n]; \
             printf("node %d: RENEW of %d, yes, closed %d\n", n, h, closed[n]); \
           if :: phase[h] == ANSWERED && COUNT(renew_yes[h]) >= MAJORITY -> \
             rests_on[h] = renew_yes[h] :: else -> skip fi \
        :: else -> printf("node %d: RENEW of %d, lost\n", n, h) fi }
#else
#define RENEW(h)
#define RENEW_ON(h, n)
#endif
#ifdef TOP_UPS
#define TOP_UP(h, n) \
  :: d_step { phase[h] == ANSWERED && COUNT(renew_yes[h]) >= MAJORITY && !(top_up_to[h] & BIT(n)) && \
     (renewed_on[h] & BIT(n)) && !(renew_yes[h] & BIT(n)) -> \
     top_up_to[h] = top_up_to[h] | BIT(n); printf("hold %d tops up node %d\n", h, n) }
#define TOP_UP_ON(h, n) \
  :: d_step { (top_up_to[h] & BIT(n)) && MAY(top_up_on[h], n) && NOT_BEHIND_RELEASE(h, n) -> \
     top_up_on[h] = top_up_on[h] | BIT(n); \
     if :: key[n] == FREE -> key[n] = OURS; add(h, n); closed[n] = saw_closed[h]; \
       printf("node %d: TOP-UP of %d, closed %d\n", n, h, closed[n]) :: else -> skip fi }
#else
#define TOP_UP(h, n)
#define TOP_UP_ON(h, n)
#endif

/* ---- CLOSE: hold 0 is released with a seal ---- */
#ifdef SEALS
#if defined(WITHOUT_CLOSE)      /* the gateway tests for other holds, and seals later */
#define SET_MARK(n) skip
#else
#define SET_MARK(n) closed[n] = 1
#endif
#define IS_CLOSED(n) (key[n] == OURS && (ids[n] & (ALL - 1)) == 0)
#ifdef CLOSE_ON_ONE
#define CLOSED_BY_NOW (close_yes != 0)
#else
#define CLOSED_BY_NOW (COUNT(close_yes) >= MAJORITY)
#endif
#define SEAL \
  :: d_step { phase[0] == ANSWERED && seal == NO_SEAL -> \
     seal = CLOSING; printf("hold 0 is to be released with a seal: CLOSE\n") } \
  :: d_step { seal == CLOSING && CLOSED_BY_NOW -> seal = SEALED; printf("=> the token is sealed\n"); \
     assert((phase[1] != ANSWERED) && (phase[2] != ANSWERED)) } \
  :: d_step { seal == CLOSING -> seal = LIFTED; printf("nothing is sealed: the mark is lifted\n") }
#define CLOSE_ON(n) \
  :: d_step { seal != NO_SEAL && !(close_on & BIT(n)) && !(lift_on & BIT(n)) && NOT_BEHIND_RELEASE(0, n) -> \
     close_on = close_on | BIT(n); \
     if :: IS_CLOSED(n) -> close_yes = close_yes | BIT(n); if :: key[n] == OURS -> SET_MARK(n) :: else -> \
       skip fi; printf("node %d: CLOSE, yes\n", n) \
        :: else -> printf("node %d: CLOSE, no, ids %d\n", n, ids[n]) fi }
#define LIFT_ON(n) :: d_step { seal == LIFTED && !(lift_on & BIT(n)) -> lift_on = lift_on | BIT(n); \
  if :: key[n] == OURS -> closed[n] = 0 :: else -> skip fi; printf("node %d: CLOSE is lifted\n", n) }
#else
#define SEAL
#define CLOSE_ON(n)
#define LIFT_ON(n)
#endif

/* ---- Expiry, and the rival ---- */
#ifdef WITHOUT_PX               /* HOLD does not set the time on its nodes, but its validity is counted as if it did */
#define RESTS(h, n) (h == 0 && (rests_on[h] & BIT(n)))
#else
#define RESTS(h, n) (rests_on[h] & BIT(n))
#endif
inline end_time(h, n) {
    if
    :: phase[h] == ANSWERED && RESTS(h, n) -> phase[h] = OVER; printf("   the validity of hold %d is over\n", h)
    :: phase[h] == ASKED && (counted[h] & BIT(n)) -> phase[h] = FAILED
    :: else -> skip
    fi;
    renew_yes[h] = renew_yes[h] & (ALL - BIT(n))
}
#ifdef EXPIRY
#define EXPIRE(n) :: d_step { key[n] == OURS -> delete(n); printf("node %d: the key expires\n", n); end_time(0, n); \
  end_time(1, n); end_time(2, n) }
#else
#define EXPIRE(n)
#endif
#define RIVAL(n) \
  :: d_step { key[n] == FREE -> key[n] = RIVALS; printf("node %d: the rival takes it\n", n); \
     if :: (key[0] == RIVALS) + (key[1] == RIVALS) + (key[2] == RIVALS) >= MAJORITY -> \
       printf("=> the rival has a majority\n"); \
           assert(phase[0] != ANSWERED && phase[1] != ANSWERED && phase[2] != ANSWERED) \
        :: else -> skip fi } \
  :: d_step { key[n] == RIVALS -> key[n] = FREE; printf("node %d: the rival releases it\n", n) }

/* ---- Leftovers: no node keeps the key after everything was released and delivered ---- */
#ifdef LEFTOVERS
#ifdef IN_ORDER
#define DELIVERED(h, done) (done == ALL || released_on[h] == ALL)
#else
#define DELIVERED(h, done) (done == ALL)
#endif
#define SETTLED(h) (phase[h] == IDLE || ((phase[h] == RELEASED || phase[h] == FAILED) && \
  (released_on[h] == ALL || !RELEASES(h)) && \
     (h == 0 || DELIVERED(h, held_on[h])) && (!renews[h] || DELIVERED(h, renewed_on[h])) && \
       DELIVERED(h, (top_up_on[h] | (ALL - top_up_to[h])))))
#define NO_LEFTOVER :: d_step { phase[0] != IDLE && SETTLED(0) && SETTLED(1) && SETTLED(2) -> \
  assert(key[0] != OURS && key[1] != OURS && key[2] != OURS) }
#else
#define NO_LEFTOVER
#endif

#define NODE(h, n) HOLD(h, n, 1) HOLD(h, n, 0) HOLD_REFUSED(h, n) RELEASE(h, n) END_ON(h, n) RENEW_ON(h, n) TOP_UP(h, \
  n) TOP_UP_ON(h, n)
#define STEPS_OF(h) FAIL(h) RELEASE_HOLD(h) END(h) RENEW(h) NODE(h, 0) NODE(h, 1) NODE(h, 2)
active proctype cluster() {
    d_step {
        phase[0] = ANSWERED; ids[0] = 1; ids[1] = 1; ids[2] = 1; held_on[0] = ALL
#ifdef WITHOUT_IDS
        ; number[0] = 1; number[1] = 1; number[2] = 1
#endif
    }
    if
    :: d_step { rests_on[0] = ALL }
    :: d_step { rests_on[0] = 3; key[2] = FREE; ids[2] = 0; printf("node 2 has no lease at first\n");
#ifdef WITHOUT_IDS
        number[2] = 0
#endif
       }
    fi;
    do
    STEPS_OF(0)
    REQUEST(1) STEPS_OF(1)
#if HOLDS >= 3
    REQUEST(2) STEPS_OF(2)
#endif
    SEAL CLOSE_ON(0) CLOSE_ON(1) CLOSE_ON(2) LIFT_ON(0) LIFT_ON(1) LIFT_ON(2)
    EXPIRE(0) EXPIRE(1) EXPIRE(2)
    RIVAL(0) RIVAL(1) RIVAL(2)
    NO_LEFTOVER
    od
}
