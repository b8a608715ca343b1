"""A lease_id that a gateway signed is accepted as a proof, nothing else is. These tests make lease ids themselves,
in the format of proto/lease_id.hpp."""
import base64
import hashlib
import hmac
import json

import psycopg2
import pytest

KEY, OLD_KEY = b"k" * 44, b"\x00\xff'\\ an older key of more than sixty-four bytes, which HMAC hashes first"
RESOURCE, TOKEN = "inventory/sku-1", 34


def base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def lease_id(key=KEY, token=TOKEN, resources=RESOURCE, format_number="1", owner="worker-7", cell=""):
    claims = cell + base64url(
        "\n".join(
            [
                format_number,
                "0123456789abcdef" * 2,
                str(token),
                "1790000000000",
                resources,
                "0123456789abcdef+",
                "orders",
                owner,
            ]
        ).encode()
    )
    return claims + "." + base64url(hmac.new(key, claims.encode(), hashlib.sha256).digest())


class Caller:
    def __init__(self, server, database, user="test_app"):
        self.connection = server.connect(database, user, autocommit=False)

    def run(self, statement, *arguments):
        with self.connection.cursor() as cursor:
            cursor.execute(statement, arguments)
            return cursor.fetchone()[0]

    def enter(self, proof, token=TOKEN, resource=RESOURCE, function="enter"):
        try:
            return self.run(f"select fencing.{function}(%s, %s, %s)", resource, token, proof)
        except psycopg2.Error as error:
            detail = json.loads(error.diag.message_detail)
            assert (detail["resource"], detail["fencing_token"]) == (resource, token)
            if error.pgcode == "FG403":
                return detail["mode"]
            assert error.pgcode == "FG401", error
            error_text = " ".join(
                str(value)
                for value in (
                    error.diag.message_primary,
                    error.diag.message_detail,
                    error.diag.message_hint,
                    error.diag.context,
                )
            )
            assert len(proof or "") < 20 or proof not in error_text
            return detail["fault"]
        finally:
            self.connection.rollback()


@pytest.fixture
def caller(server, database):
    made = Caller(server, database)
    yield made
    made.connection.close()


@pytest.fixture
def owner(server, database):
    made = Caller(server, database, "postgres")
    made.connection.autocommit = True
    made.run("select fencing.add_proof_key(%s, null, 'new')", KEY)
    made.run("select fencing.add_proof_key(%s, null, 'old')", OLD_KEY)
    made.run("select fencing.require_proof(true)")
    yield made
    made.connection.close()


@pytest.mark.parametrize("key", [KEY, OLD_KEY], ids=["new", "old"])
@pytest.mark.parametrize("resources", [RESOURCE, "a\t" + RESOURCE, RESOURCE + "\tz/1"], ids=["alone", "last", "first"])
def test_proof_for_resource_and_token_is_accepted(owner, caller, key, resources):
    for worker in (
        "w",
        "wo",
        "wor",
        "worker \u00e9\u4e2d\n2",
    ):  # every length of padding, and an owner with non-ASCII characters
        assert caller.enter(lease_id(key, resources=resources, owner=worker)) == 1


@pytest.mark.parametrize("resource", ["a b", "ü\\303\\274", "\\", "日本/🛒", "a,b\\134"])
def test_proof_of_any_name_is_for_it_alone(owner, caller, resource):
    assert caller.enter(lease_id(resources="a\t" + resource), resource=resource) == 0
    assert (
        caller.enter(lease_id(resources="a\t" + resource.replace("\\", "\\\\") + "x"), resource=resource)
        == "other_resource"
    )


@pytest.mark.parametrize("names", ["\ta", "\ta\tb", "c\td\t\tb\ta"])
def test_proof_of_shared_lease_lets_read_alone(owner, caller, names):
    proof = lease_id(resources=names)
    assert caller.enter(proof, resource="a") == "shared"
    assert caller.enter(proof, resource="a", function="enter_shared") == 0
    assert caller.enter(proof, resource="e", function="enter_shared") == "other_resource"
    assert caller.enter(lease_id(b"x" * 44, resources=names), resource="a", function="enter_shared") == "not_authentic"
    assert caller.enter(None, resource="a", function="enter_shared") == "missing"


def test_proof_of_exclusive_lease_lets_read_and_write(owner, caller):
    for function in ("enter", "enter_shared"):
        assert caller.enter(lease_id(resources="a\tb\t\tc"), resource="b", function=function) == 0


def test_proof_of_the_longest_lease_is_accepted(owner, caller):
    resources = [f"{n:064}" for n in range(64)]
    assert caller.enter(lease_id(resources="\t".join(resources), owner="o" * 128), resource=resources[-1]) == 0


FORGED = lease_id(b"x" * 44)
GOOD = lease_id()
BAD = {
    "nothing": (None, "missing"),
    "empty": ("", "not_authentic"),
    "a_dot": (".", "not_authentic"),
    "text": ("proof", "not_authentic"),
    "not_base64": ("\u00e9'\\.\u00e9", "not_authentic"),
    "another_key": (FORGED, "not_authentic"),
    "claims_changed": ("A" + GOOD[1:], "not_authentic"),
    "signature_changed": (GOOD[:-2] + "AA", "not_authentic"),
    "signature_missing": (GOOD.split(".")[0], "not_authentic"),
    "signature_empty": (GOOD.split(".")[0] + ".", "not_authentic"),
    "something_behind": (GOOD + ".x", "not_authentic"),
    "something_long": (GOOD + "x" * 6000, "not_authentic"),
    "another_cell": (lease_id(cell="2~"), "other_cell"),
    "another_cell_by_another_key": (lease_id(b"x" * 44, cell="2~"), "other_cell"),
    "this_cell_written_differently": (lease_id(cell="0~"), "not_authentic"),
    "cell_added": ("2~" + GOOD, "other_cell"),
    "another_format": (lease_id(format_number="2"), "not_authentic"),
    "another_resource": (lease_id(resources="inventory/sku-2"), "other_resource"),
    "beginning_of_the_resource": (lease_id(resources="inventory/sku-12"), "other_resource"),
    "no_resource": (lease_id(resources=""), "other_resource"),
    "only_shared_resource": (lease_id(resources="\t" + RESOURCE), "shared"),
    "shared_beside_another": (lease_id(resources="a\tb\t\tc\t" + RESOURCE), "shared"),
    "lower_token": (lease_id(token=TOKEN - 1), "other_token"),
    "higher_token": (lease_id(token=9007199254740991), "other_token"),
    "a_space_separates_nothing": (lease_id(resources="a " + RESOURCE), "other_resource"),
    "resource_only_in_the_owner": (lease_id(resources="b", owner="x\n" + RESOURCE), "other_resource"),
}


def test_proof_is_of_the_cell_of_the_cluster(server, database, owner, caller):
    server.connect(database).cursor().execute("select fencing.join_cluster('{n1,n2,n3}', 2, 30000, 65536, 500, 2)")
    signed = lease_id(cell="2~")
    assert caller.enter(signed) == 1
    for proof, fault in (
        (GOOD, "other_cell"),
        (lease_id(cell="22~"), "other_cell"),
        (signed[2:], "other_cell"),
        ("2~" + GOOD, "not_authentic"),
        (lease_id(cell="02~"), "other_cell"),
        (lease_id(cell="2~2~"), "not_authentic"),
        (lease_id(b"x" * 44, cell="2~"), "not_authentic"),
    ):
        assert caller.enter(proof) == fault, proof


def accepted_of(owner, proofs):
    """Returns the positions of the proofs without a fault."""
    return owner.run(
        """select coalesce(array_agg(n), '{}') from unnest(%s) with ordinality as p (proof, n)
                        where fencing.proof_fault(%s, %s, proof) is distinct from 'not_authentic'""",
        proofs,
        RESOURCE,
        TOKEN,
    )


def test_proof_with_any_bit_flipped_is_refused(owner):
    flipped = [
        GOOD[:at] + chr(ord(GOOD[at]) ^ 1 << bit) + GOOD[at + 1 :] for at in range(len(GOOD)) for bit in range(8)
    ]
    assert accepted_of(owner, [*flipped, GOOD]) == [len(flipped) + 1], "the last one is not changed"


def test_proof_in_another_form_of_the_same_bytes_is_refused(owner):
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_+/="
    claims, signature = GOOD.split(".")
    other_ends = [claims[:-1] + last + "." + signature for last in alphabet] + [
        claims + "." + signature[:-1] + last for last in alphabet
    ]
    others = [
        claims + "=." + signature,
        GOOD + "=",
        GOOD + "\n",
        " " + GOOD,
        "." + GOOD,
        GOOD.replace(".", ".."),
        GOOD.replace(".", ""),
        GOOD + "." + signature,
        GOOD.swapcase(),
        GOOD.upper(),
        GOOD[::-1],
        *(GOOD[:end] for end in range(len(GOOD))),
        *(GOOD[begin:] for begin in range(1, len(GOOD))),
    ]
    assert accepted_of(owner, [proof for proof in other_ends + others if proof != GOOD]) == []
    worker = next(worker for worker in map(str, range(1000)) if set(lease_id(owner=worker)) & set("-_"))
    by_worker = lease_id(owner=worker)
    assert accepted_of(owner, [by_worker, by_worker.replace("-", "+").replace("_", "/")]) == [1]


@pytest.mark.parametrize("user", ["test_gateway", "test_auditor"])
def test_proof_keys_are_listed_without_the_keys(owner, server, database, user):
    reader = Caller(server, database, user)
    listed = reader.run("select json_agg(k) from fencing.proof_keys() k")
    assert [(key["name"], key["expires_at"]) for key in listed] == [("new", None), ("old", None)]
    derived = owner.run("select fencing.add_proof_key(%s)", KEY)
    assert listed[0]["id"] == derived, "the id is the name that add_proof_key makes"
    reader.connection.close()
    application = Caller(server, database)
    with pytest.raises(psycopg2.errors.InsufficientPrivilege):
        application.run("select fencing.proof_keys()")
    application.connection.close()


@pytest.mark.parametrize("required", [True, False], ids=["required", "not_required"])
@pytest.mark.parametrize("name", BAD)
def test_proof_invalid_is_refused_even_if_not_required(owner, caller, name, required):
    owner.run("select fencing.require_proof(%s)", required)
    proof, fault = BAD[name]
    assert caller.enter(proof) == (fault if required or proof is not None else 1)
    assert owner.run("select fencing.fence(%s)", RESOURCE) == 1, "the fence stays"


def test_proof_signed_by_expired_or_retired_key_is_refused(owner, caller):
    assert owner.run("select fencing.retire_proof_key('old', now() + interval '1 hour')")
    assert caller.enter(lease_id(OLD_KEY)) == 1
    owner.run("select fencing.add_proof_key(%s, clock_timestamp(), 'old')", OLD_KEY)
    assert caller.enter(lease_id(OLD_KEY)) == "not_authentic"
    assert owner.run("select fencing.retire_proof_key('old')")
    assert not owner.run("select fencing.retire_proof_key('old')")
    assert owner.run("select array_agg(name) from fencing.proof_key") == ["new"]
    assert caller.enter(GOOD) == 1


def test_require_proof_without_valid_key_is_refused(owner):
    owner.run("select fencing.require_proof(false)")
    owner.run("select fencing.retire_proof_key(name) from fencing.proof_key where name = 'old'")
    owner.run("select fencing.add_proof_key(%s, clock_timestamp(), 'new')", KEY)
    with pytest.raises(psycopg2.Error) as refused:
        owner.run("select fencing.require_proof(true)")
    assert refused.value.pgcode == "22023"
    assert owner.run("select value from fencing.settings where key = 'require_proof'") == "off"


@pytest.mark.parametrize("key", [None, b"", b"k" * 31], ids=["null", "empty", "short"])
def test_add_proof_key_refuses_a_short_key(owner, key):
    with pytest.raises(psycopg2.Error) as refused:
        owner.run("select fencing.add_proof_key(%s)", key)
    assert refused.value.pgcode == "22023" and "kkk" not in str(refused.value)


def test_add_proof_key_without_name_derives_it_from_the_key(owner):
    names = [owner.run("select fencing.add_proof_key(%s)", key) for key in (KEY, KEY, OLD_KEY)]
    assert names[0] == names[1] != names[2]
    assert KEY.hex() not in names[0]


@pytest.mark.parametrize(
    "statement",
    [
        "select inner_pad from fencing.proof_key",
        "select value from fencing.settings",
        "select fencing.add_proof_key('x')",
        "select fencing.retire_proof_key('new')",
        "select fencing.require_proof(false)",
        "select fencing.proof_fault('a', 1, 'x')",
        "insert into fencing.settings values ('require_proof', 'off')",
    ],
)
@pytest.mark.parametrize("user", ["test_app", "test_gateway", "test_auditor"])
def test_proof_keys_and_settings_are_unreadable_for_all_roles(owner, server, database, user, statement):
    role = Caller(server, database, user)
    with pytest.raises(psycopg2.errors.InsufficientPrivilege):
        role.run(statement)
    role.connection.close()


def test_begin_write_needs_no_proof(owner, server, database):
    gateway = Caller(server, database, "test_gateway")
    assert gateway.run(
        "select accepted from fencing.begin_write(%s, 34, gen_random_uuid(), null, null, null, null)", [RESOURCE]
    )
    gateway.connection.close()


def test_proof_refused_is_recorded_in_the_history(owner, caller, server, database):
    assert owner.run("select fencing.set_up_recorder()") is None
    caller.enter(FORGED)
    assert (
        owner.run(
            """select array_agg(array[event, resource, fencing_token::text, principal, detail ->> 'sqlstate',
                        detail ->> 'fault'])
                        from fencing.history where event <> 'guard_changed'"""
        )
        == [["write_rejected", RESOURCE, "34", "test_app", "FG401", "not_authentic"]]
    )
