"""Two sessions write one resource in every interleaving of their steps: the fence never decreases,
accepted tokens never decrease in commit order, no deadlock occurs."""
import itertools

import psycopg2
import pytest
from interleaving import Run, StepSession, orders

STALE, REQUIRED = "FG412", "FG428"
READ_COMMITTED, REPEATABLE = None, "REPEATABLE READ"


def enter(resource, token):
    return f"select fencing.enter('{resource}', {token})"


def write(resource, token):
    return (
        f"insert into kept values ('{resource}', {token}) on conflict (resource) do update set token = excluded.token"
    )


def begin_write(resources, token):
    return (
        f"select accepted from fencing.begin_write(array[{resources}], {token}, gen_random_uuid(), null, "
        "null, null, null)"
    )


WRITE_IDS = [f"00000000-0000-0000-0000-00000000000{n}" for n in (1, 2)]


def begin_writes(resources, token):
    """Returns a statement that begins two writes in one transaction, each on one resource."""
    return (
        f"select accepted from fencing.begin_writes(array[{resources}], array[{token}, {token}]::bigint[], "
        f"array['{WRITE_IDS[0]}', '{WRITE_IDS[1]}']::uuid[], "
        "array['o', 'o'], array['p', 'p'], array['t', 't'], array[null, null]::jsonb[])"
    )


def make_current_and_write(number, resource, token):
    return f"select set_config('fencing.write_id', '{WRITE_IDS[number]}', true); {write(resource, token)}"


def writer(token, resource="{r}"):
    return [enter(resource, token), write(resource, token), "commit"]


READ = "select set_config('test.stock', (select token from kept where resource = '{r}')::text, true)"
SELL_ONE = "update kept set token = current_setting('test.stock')::bigint - 1 where resource = '{r}'"


def seller(token, reading):
    """Reads how many are left, and writes one less."""
    entering = enter("{r}", token)
    beginnings = {
        "after_enter": [entering, READ],
        "before_enter": [READ, entering],
        "beside_enter": [f"{READ}, {entering.removeprefix('select ')}"],
    }
    return [*beginnings[reading], SELL_ONE, "commit"]


def raise_fence(token):
    return [
        f"select found_token from fencing.raise_fences(array['{{r}}'], {token}, null, null, null, 'test')",
        "commit",
    ]


ENTER_BOTH = "select fencing.enter('{r}', 1), fencing.enter('{s}', 1)"


class Bench:
    """Two sessions, with new resource names for each interleaving."""

    def __init__(self, server, database):
        self.server, self.database, self.number = server, database, 0
        self.owner = server.connect(database)
        self.owner.cursor().execute(
            """
            create table kept (resource text primary key, token bigint not null);
            select fencing.protect('kept', 'resource');
            grant select, insert, update, delete on kept to test_app, test_gateway"""
        )
        self.sessions = {}

    def session(self, number, user, isolation):
        key = (number, user, isolation)
        if key not in self.sessions:
            self.sessions[key] = StepSession(self.server, self.database, user, isolation)
        return self.sessions[key]

    def every_order(self, first, second, before=None, users=("test_app", "test_app"), isolation=READ_COMMITTED):
        """Yields (run, r, s) for each interleaving; r and s are the names of the resources."""
        sessions = [self.session(number, user, isolation) for number, user in enumerate(users)]
        for order in orders(len(first), len(second)):
            self.number += 1
            names = {"r": f"p/{self.number}/r", "s": f"p/{self.number}/s"}
            if before:
                self.fetch_value(before.format(**names))
            run = Run(
                sessions, [[step.format(**names) for step in script] for script in (first, second)], order, self.owner
            )
            for answers in run.outcomes:
                assert not any(isinstance(answer, psycopg2.errors.DeadlockDetected) for answer in answers), (
                    order,
                    run.events,
                )
            yield run, names["r"], names["s"]

    def fetch_value(self, statement):
        with self.owner.cursor() as cursor:
            cursor.execute(statement)
            row = cursor.fetchone()
            return row and row[0]

    def fence(self, resource):
        return self.fetch_value(f"select fencing.fence('{resource}')")

    def kept(self, resource):
        return self.fetch_value(f"select token from kept where resource = '{resource}'")


@pytest.fixture(scope="module")
def bench(server):
    name = server.create("fence_base")
    made = Bench(server, name)
    yield made
    for session in made.sessions.values():
        session.close()
    made.owner.close()
    server.drop(name)


def committed(run):
    """Returns the numbers of the sessions that committed, in the order of their commits."""
    return [number for number, step, answer in run.events if step == "commit" and answer is None]


def sqlstate_of(answers):
    return answers[-1].pgcode if isinstance(answers[-1], psycopg2.Error) else None


def with_new_and_known_resource(test):
    return pytest.mark.parametrize("before", [None, ENTER_BOTH], ids=["never_seen", "seen_before"])(test)


@with_new_and_known_resource
@pytest.mark.parametrize("isolation", [READ_COMMITTED, REPEATABLE])
@pytest.mark.parametrize("tokens", [(5, 6), (5, 5)], ids=["older_and_newer", "equal"])
def test_writers_in_any_order_commit_in_token_order(bench, tokens, before, isolation):
    observed = set()
    for run, r, _ in bench.every_order(writer(tokens[0]), writer(tokens[1]), before, isolation=isolation):
        committed_tokens = [tokens[number] for number in committed(run)]
        assert committed_tokens and committed_tokens == sorted(committed_tokens), run.events
        assert bench.kept(r) == bench.fence(r) == committed_tokens[-1]
        for number, answers in enumerate(run.outcomes):
            allowed = {None, STALE} if tokens[number] < max(tokens) else {None}
            assert sqlstate_of(answers) in (allowed if isolation == READ_COMMITTED else allowed | {"40001"}), run.events
        observed.add(tuple(committed_tokens))
    assert observed >= ({(5, 6), (6,)} if tokens == (5, 6) else {(5, 5)}) or isolation == REPEATABLE


@with_new_and_known_resource
def test_seal_in_any_order_leaves_no_later_write(bench, before):
    observed = set()
    for run, r, _ in bench.every_order(writer(5), raise_fence(6), before, users=("test_app", "test_gateway")):
        order = committed(run)
        assert order in ([0, 1], [1]), run.events
        assert sqlstate_of(run.outcomes[0]) == (STALE if order == [1] else None)
        assert (bench.fence(r), bench.kept(r)) == (6, 5 if 0 in order else None)
        observed.add(tuple(order))
    assert observed == {(0, 1), (1,)}


@with_new_and_known_resource
def test_raise_to_older_token_in_any_order_keeps_the_newer_fence(bench, before):
    for run, r, _ in bench.every_order(writer(5), raise_fence(4), before, users=("test_app", "test_gateway")):
        assert sorted(committed(run)) == [0, 1], run.events
        assert bench.kept(r) == bench.fence(r) == 5


@with_new_and_known_resource
def test_fenced_read_and_older_write_in_any_order_keep_rows_read(bench, before):
    reading = [enter("{r}", 6), "select token from kept where resource = '{r}'", "commit"]
    observed = set()
    for run, r, _ in bench.every_order(writer(5), reading, before):
        (read,) = run.outcomes[1][1:2]
        assert bench.kept(r) == (read[0][0] if read else None), run.events
        assert bench.fence(r) == 6
        observed.add(bool(read))
    assert observed == {True, False}


def reader(token):
    return [f"select fencing.enter_shared('{{r}}', {token})", READ_TOKEN, "commit"]


READ_TOKEN = "select (select token from kept where resource = '{r}')"


@with_new_and_known_resource
@pytest.mark.parametrize("isolation", [READ_COMMITTED, REPEATABLE, "SERIALIZABLE"])
@pytest.mark.parametrize("writing", [5, 6, 7], ids=["older", "equal", "newer"])
def test_shared_read_beside_writer_keeps_rows_read(bench, writing, before, isolation):
    """What a shared holder with token 6 has read is not changed by an older writer."""
    observed = set()
    for run, r, _ in bench.every_order(writer(writing), reader(6), before, isolation=isolation):
        order = committed(run)
        if 1 in order:
            seen = run.outcomes[1][1][0][0]
            wrote_before = 0 in order and order.index(0) < order.index(1)
            assert seen == (writing if wrote_before else None), run.events
            assert writing >= 6 or 0 not in order or wrote_before, run.events
            assert writing <= 6 or not wrote_before, run.events
        for number, stale in enumerate((writing < 6, writing > 6)):
            allowed = {None, STALE} if stale else {None}
            assert sqlstate_of(run.outcomes[number]) in (
                allowed if isolation == READ_COMMITTED else allowed | {"40001"}
            ), run.events
        observed.add(tuple(order))
    # The one that is not late is refused by nobody.
    expected = {5: {(0, 1), (1,)}, 6: {(0, 1), (1, 0)}, 7: {(0,), (1, 0)}}[writing]
    assert observed == expected if isolation == READ_COMMITTED else observed & expected, observed


@pytest.mark.parametrize("read_before", [5, 6, 7], ids=["raising", "equal", "lower"])
def test_shared_read_keeps_writers_out_until_it_ends(bench, read_before):
    reading = [*reader(6)[:2], READ_TOKEN, "commit"]
    before = f"select fencing.enter_shared('{{r}}', {read_before})"
    observed = set()
    for run, r, _ in bench.every_order(reading, writer(7), before):
        order = committed(run)
        assert order in ([0, 1], [1]), run.events
        if 0 in order:
            assert run.outcomes[0][1] == run.outcomes[0][2] == [(None,)], run.events
        observed.add(tuple(order))
    assert observed == {(0, 1), (1,)}


@with_new_and_known_resource
@pytest.mark.parametrize("tokens", [(6, 6), (6, 7), (7, 6)], ids=["equal", "rising", "falling"])
def test_shared_reads_refuse_each_other_in_no_order(bench, tokens, before):
    for run, r, _ in bench.every_order(*[reader(token) for token in tokens], before):
        assert sorted(committed(run)) == [0, 1], run.events
        assert bench.fence(r) == max(tokens)


@with_new_and_known_resource
def test_rolled_back_shared_read_lets_older_writer_pass(bench, before):
    rolled_back = ["savepoint a", *reader(9)[:2], "rollback to a", "commit"]
    for run, r, _ in bench.every_order(rolled_back, writer(5), before):
        assert sorted(committed(run)) == [0, 1], run.events
        assert bench.kept(r) == bench.fence(r) == 5


@pytest.mark.parametrize("reading", ["after_enter", "before_enter", "beside_enter"])
def test_only_what_is_read_after_enter_is_never_sold_twice(bench, reading):
    """The older holder may commit while the newer one, which has read already, waits in enter."""
    two_left = "select fencing.enter('{r}', 1); insert into kept values ('{r}', 2) returning token"
    oversold = []
    for run, r, _ in bench.every_order(seller(5, reading), seller(6, reading), two_left):
        assert committed(run) in ([0, 1], [1]), run.events
        oversold.append(bench.kept(r) > 2 - len(committed(run)))
    assert any(oversold) == (reading != "after_enter")


@with_new_and_known_resource
@pytest.mark.parametrize("tokens", [(5, 6), (5, 5)], ids=["older_and_newer", "equal"])
def test_begin_write_with_opposite_orders_never_deadlocks(bench, tokens, before):
    scripts = [
        [begin_write(names, token), write(first, token), write(second, token), "commit"]
        for names, token, first, second in (
            ("'{r}','{s}'", tokens[0], "{r}", "{s}"),
            ("'{s}','{r}'", tokens[1], "{s}", "{r}"),
        )
    ]
    for run, r, s in bench.every_order(*scripts, before, users=("test_gateway", "test_gateway")):
        # begin_write reports a stale token as a row, not as an error; the following changes fail.
        committed_tokens = [tokens[number] for number in committed(run)]
        assert committed_tokens and committed_tokens == sorted(committed_tokens), run.events
        assert bench.kept(r) == bench.kept(s) == bench.fence(r) == bench.fence(s) == committed_tokens[-1]


@with_new_and_known_resource
def test_begin_writes_with_opposite_orders_never_deadlocks(bench, before):
    scripts = [
        [
            begin_writes(f"'{first}', '{second}'", token),
            make_current_and_write(0, first, token),
            make_current_and_write(1, second, token),
            "commit",
        ]
        for token, first, second in ((5, "{r}", "{s}"), (6, "{s}", "{r}"))
    ]
    for run, r, s in bench.every_order(*scripts, before, users=("test_gateway", "test_gateway")):
        committed_tokens = [(5, 6)[number] for number in committed(run)]
        assert committed_tokens in ([5, 6], [6]), run.events
        assert bench.kept(r) == bench.kept(s) == bench.fence(r) == bench.fence(s) == 6


def test_enter_in_name_order_never_deadlocks(bench):
    scripts = [[enter("{r}", token), enter("{s}", token), write("{r}", token), "commit"] for token in (5, 6)]
    for run, r, s in bench.every_order(*scripts):
        assert bench.kept(r) == bench.fence(r) == bench.fence(s) == 6
        assert committed(run) in ([0, 1], [1])


@with_new_and_known_resource
def test_enter_with_array_locks_in_name_order(bench, before):
    """Entered in the order of the array, s before r,
    the first session would wait for r while the second waits for s."""
    scripts = [
        ["select fencing.enter(array['{s}', '{r}'], 5)", write("{r}", 5), "commit"],
        [enter("{r}", 6), enter("{s}", 6), "commit"],
    ]
    for run, r, s in bench.every_order(*scripts, before):
        assert bench.fence(r) == bench.fence(s) == 6
        assert committed(run) in ([0, 1], [1])


@with_new_and_known_resource
def test_repair_and_write_in_any_order_keep_the_last_fence(bench, before):
    repair = ["select last_fencing_token from fencing.repair_fence('{r}', 3, 'operator', null, 'test')", "commit"]
    observed = set()
    for run, r, _ in bench.every_order(writer(5), repair, before, users=("test_app", "test_gateway")):
        order = committed(run)
        assert sorted(order) == [0, 1], run.events
        assert bench.fence(r) == (3 if order[-1] == 1 else 5)
        assert bench.kept(r) == 5
        observed.add(tuple(order))
    assert observed == {(0, 1), (1, 0)}


@with_new_and_known_resource
def test_enter_rolled_back_to_savepoint_lets_older_writer_pass(bench, before):
    rolled_back = ["savepoint a", enter("{r}", 9), "rollback to a", "commit"]
    for run, r, _ in bench.every_order(rolled_back, writer(5), before):
        assert sorted(committed(run)) == [0, 1], run.events
        assert bench.kept(r) == bench.fence(r) == 5


@with_new_and_known_resource
def test_change_without_enter_beside_a_writer_is_refused(bench, before):
    for run, r, _ in bench.every_order(writer(5), [write("{r}", 7), "commit"], before):
        assert sqlstate_of(run.outcomes[1]) == REQUIRED and committed(run) == [0], run.events
        assert bench.kept(r) == bench.fence(r) == 5


def test_orders_yields_each_merge_once():
    assert len(set(orders(3, 4))) == len(list(orders(3, 4))) == 35
    assert set(itertools.chain.from_iterable(orders(2, 2))) == {0, 1}
