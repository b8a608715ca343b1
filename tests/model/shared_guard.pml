/* The read fence and the write fence of one resource (docs/decisions.md, Shared leases) as a Promela model.
 * checks.tsv says with which macros it is searched.
 *
 * What is modelled. Five holders with the tokens 1 to 5, each of which may begin transactions at any moment, as often
 * as it wants, also long after its lease: 1 and 3 are exclusive, 2, 4 and 5 are shared; 4 and 5 overlap.
 * A transaction enters, reads or writes, and commits or is rolled back. Others see its effects when it commits.
 * Each step is one statement.
 *
 * What is abstracted. The value of a row is the token of the last writer, 0 at first. A refusal changes nothing,
 * so it is no step. The floor, seals and other resources only add refusals.
 * SNAPSHOT: above read committed; a transaction fails (40001) if the row of the guard changed since it began.
 *
 * What is checked. Tokens of writes never decrease. No write has a lower token than a read before it.
 * What overlapping shared holders read is the same, in one transaction and in all that commit.
 * Weakened rules: the macros with a comment. REACH_READS: it is reached that 4 and 5 have read what 3 wrote.
 */
#define N 5
#define TOKEN(i) ((i) + 1)
#define IS_SHARED(i) ((i) == 1 || (i) >= 3)
#define GROUP(i) ((i) >= 3)
#define MAX(x, y) ((x) > (y) -> (x) : (y))
#define BIT(i) (1 << (i))
#define NOTHING 9

#define IDLE 0
#define BEGUN 1
#define ENTERED 2
byte phase[N];
byte write_fence, read_fence;   /* as committed, or as the transaction that has the row changed them */
byte undo_write, undo_read;
byte changing;                  /* 1 + the holder that has the row of the guard for itself */
byte sharing;                   /* the holders that have it in share mode, bits */
byte value;                     /* of the protected row, committed */
byte found[N] = NOTHING;        /* what the transaction has read */
byte read_by[2] = NOTHING;      /* what transactions of the overlapping holders that committed have read */
byte highest_read, readers;
bit changed[N];                 /* the row changed since this transaction began */

#ifdef WITHOUT_READER_TEST      /* a read does not compare with the write fence */
#define READER_MAY(i) true
#else
#define READER_MAY(i) (TOKEN(i) >= write_fence)
#endif
#ifdef WITHOUT_WRITER_TEST      /* a write compares with the write fence only */
#define WRITER_MAY(i) (TOKEN(i) >= write_fence)
#else
#define WRITER_MAY(i) (TOKEN(i) >= write_fence && TOKEN(i) >= read_fence)
#endif
#ifdef RAISE_TO_TOKEN           /* a read sets the read fence, also to a lower token */
#define RAISED(i) TOKEN(i)
#define RAISES(i) (TOKEN(i) != read_fence)
#elif defined(WITHOUT_RAISE)    /* a read raises no fence */
#define RAISED(i) read_fence
#define RAISES(i) false
#else
#define RAISED(i) MAX(TOKEN(i), read_fence)
#define RAISES(i) (TOKEN(i) > read_fence)
#endif
#ifdef WITHOUT_SHARE_LOCK       /* a read that raises nothing does not lock the row */
#define SHARE(i) skip
#else
#define SHARE(i) sharing = sharing | BIT(i)
#endif
#ifdef READS_FIRST              /* the value is read before the resource is entered */
#define AT_BEGIN(i) found[i] = (IS_SHARED(i) -> value : NOTHING)
#define IS_CURRENT(i) true
#elif defined(SNAPSHOT)
#define AT_BEGIN(i) found[i] = (IS_SHARED(i) -> value : NOTHING)
#ifdef WITHOUT_40001            /* enter_shared reads the guard without locking it: no failure above read committed */
#define IS_CURRENT(i) true
#else
#define IS_CURRENT(i) (!changed[i])
#endif
#else
#define AT_BEGIN(i) skip
#define IS_CURRENT(i) true
#endif
#ifdef SHARED_WRITES            /* a write under the token of a shared lease is not refused */
#define MAY_WRITE(i) true
#else
#define MAY_WRITE(i) (!IS_SHARED(i))
#endif
#ifdef READER_DOES_NOT_WAIT     /* the read fence is raised although a writer has entered */
#define FREE_FOR_READER (true)
#else
#define FREE_FOR_READER (changing == 0)
#endif
#ifdef REACH_READS
#define AT_READ assert(!(readers == 24 && read_by[1] == 3))
#else
#define AT_READ skip
#endif

#define TAKE_ROW(i) changing = i + 1; undo_write = write_fence; undo_read = read_fence
#define END(i) \
    if :: changing == i + 1 -> changing = 0 :: else fi; \
    sharing = sharing & (31 - BIT(i)); phase[i] = IDLE; found[i] = NOTHING; changed[i] = 0
#define HOLDER(i) \
  :: d_step { phase[i] == IDLE -> phase[i] = BEGUN; AT_BEGIN(i); printf("%d begins\n", TOKEN(i)) } \
  :: d_step { phase[i] == BEGUN && IS_SHARED(i) && FREE_FOR_READER && READER_MAY(i) && IS_CURRENT(i) && \
     (!RAISES(i) || sharing == 0) -> \
     if \
     :: RAISES(i) && changing == 0 -> TAKE_ROW(i); read_fence = RAISED(i) \
     :: RAISES(i) && changing != 0 -> read_fence = RAISED(i) \
     :: else -> SHARE(i) \
     fi; \
     phase[i] = ENTERED; printf("%d enters to read, fences %d and %d\n", TOKEN(i), write_fence, read_fence) } \
  :: d_step { phase[i] == BEGUN && MAY_WRITE(i) && changing == 0 && sharing == 0 && WRITER_MAY(i) && \
     IS_CURRENT(i) -> TAKE_ROW(i); write_fence = TOKEN(i); phase[i] = ENTERED + 1; \
     printf("%d enters to write, fences %d and %d\n", TOKEN(i), write_fence, read_fence) } \
  :: d_step { phase[i] == ENTERED && (found[i] == NOTHING || found[i] != value) -> \
     READ(i); printf("%d reads the value %d\n", TOKEN(i), value) } \
  :: d_step { phase[i] == ENTERED && found[i] != NOTHING -> \
     printf("%d commits: it has read %d\n", TOKEN(i), found[i]); \
     assert(read_by[GROUP(i)] == NOTHING || read_by[GROUP(i)] == found[i]); \
     read_by[GROUP(i)] = found[i]; highest_read = MAX(highest_read, TOKEN(i)); readers = readers | BIT(i); \
     AT_READ; COMMITTED(i); END(i) } \
  :: d_step { phase[i] == ENTERED + 1 -> \
     printf("%d commits: it has written\n", TOKEN(i)); \
     assert(TOKEN(i) >= value && TOKEN(i) >= highest_read); value = TOKEN(i); COMMITTED(i); END(i) } \
  :: d_step { phase[i] >= BEGUN -> \
     if :: changing == i + 1 -> write_fence = undo_write; read_fence = undo_read :: else fi; \
     END(i); printf("%d is rolled back\n", TOKEN(i)) }
/* Under a snapshot all reads of a transaction have one result. */
#if defined(SNAPSHOT) || defined(READS_FIRST)
#define READ(i) skip
#else
#define READ(i) assert(found[i] == NOTHING || found[i] == value); found[i] = value
#endif
#ifdef SNAPSHOT
#define COMMITTED(i) \
    if :: changing == i + 1 -> changed[0] = phase[0] == BEGUN; changed[1] = phase[1] == BEGUN; \
      changed[2] = phase[2] == BEGUN; changed[3] = phase[3] == BEGUN; changed[4] = phase[4] == BEGUN :: else fi
#else
#define COMMITTED(i) skip
#endif

active proctype database() {
    do
    HOLDER(0) HOLDER(1) HOLDER(2) HOLDER(3) HOLDER(4)
    od
}
