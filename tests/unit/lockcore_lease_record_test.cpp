// The text of a lease on a node, and of its idempotency keys.
#include <lockcore/config.hpp>
#include <proto/lease_record.hpp>

#include <gtest/gtest.h>

#include <random>

namespace lockcore {
namespace {

using namespace std::chrono_literals;
using match = idempotency_digest::match;

const std::string a_nonce = "0123456789abcdeffedcba9876543210";

lease_claims claims_on(std::vector<std::string> names) {
    lease_claims c;
    c.attempt_id = *nonce::parse(a_nonce);
    c.token = fencing_token{4294967301};
    for (const std::string& n : names)
        c.resources.push_back(*resource_name::parse(n));
    c.holder = {"orders", "worker 7, \"night\" ü"};
    c.granted_at = wall_time{1'795'000'000'123ms};
    c.hold = hold_id::of_grant(c.attempt_id);
    return c;
}
/// Returns a lease in the form in which a node stores it.
std::string on_a_node(const lease_claims& c, const lease_state& s) {
    return std::string(c.attempt_id.str()) + ' ' + std::to_string(value_of(c.token)) + ' ' + lease_tail(c, s);
}

TEST(lease_record, parses_what_was_written) {
    const lease_claims c = claims_on({"inventory/sku-1"});
    const auto r = lease_record::parse(on_a_node(c, {10s, 12, 40s, "0123456789abcdef01234567", {}, {}}));
    ASSERT_TRUE(r);
    EXPECT_EQ(r->attempt_id, c.attempt_id);
    EXPECT_EQ(r->token, c.token);
    EXPECT_EQ(r->renewals, 12U);
    EXPECT_EQ(r->holds.count(), 1U);
    EXPECT_EQ(r->holds.close_marks(), "");
    const std::string mark(32, 'c');
    EXPECT_EQ(lease_record::parse(on_a_node(c, {10s, 12, 40s, {}, {}, mark}))->holds.close_marks(), mark);
    EXPECT_EQ(r->ttl, 10s);
    EXPECT_EQ(r->held, 40s);
    EXPECT_EQ(r->granted_at, c.granted_at);
    EXPECT_EQ(r->keys, "0123456789abcdef01234567:" + std::string(c.hold.str()));
    EXPECT_EQ(r->holder, c.holder);
    EXPECT_TRUE(r->resources.empty()) << "the only resource is that of the key";
}

TEST(lease_record, has_stamp_and_token_where_they_differ) {
    const std::string rest = " 0 10 0 5 -\np\no\n\n\n\n";
    struct expected {
        const char* word;
        std::uint64_t stamp, token;
    };
    for (const auto& [word, stamp, token] :
         {expected{"7", 7, 7}, expected{"7:5", 7, 5}, expected{"7:0", 7, 0}, expected{"0:7", 0, 7},
          expected{"9007199254740991:7", 9007199254740991, 7}}) {
        const auto r = lease_record::parse(a_nonce + ' ' + word + rest);
        ASSERT_TRUE(r) << word;
        EXPECT_EQ(r->stamp, stamp) << word;
        EXPECT_EQ(r->token, fencing_token{token}) << word;
        EXPECT_EQ(r->renewals, 0U) << word;
        EXPECT_EQ(r->ttl, 10ms) << word;
    }
    for (const char* word : {"", ":", "7:", ":7", "7:5:3", "7:x", "x:7", "-7:5", "7:-5", "7 :5",
                             "7:99999999999999999999", "9007199254740992", "7:9007199254740992"})
        EXPECT_FALSE(lease_record::parse(a_nonce + ' ' + word + rest)) << word;
}

TEST(lease_record, format_is_what_parse_reads) {
    const std::string mark = std::string(hold_id::of_grant(*nonce::parse(a_nonce)).str()) + std::string(16, 'c');
    for (const auto& names : {std::vector<std::string>{"a"}, std::vector<std::string>{"a", "b/c"},
                              std::vector<std::string>{" ", "a b", "ä, c"}}) {
        const std::string text = on_a_node(claims_on(names), {10s, 12, 40s, "0123456789abcdef01234567", {}, mark});
        EXPECT_EQ(lease_record::parse(text)->format(), text);
        EXPECT_EQ(lease_record::parse(text + "\1" + "ee")->format(), text) << "without wake marks";
    }
    auto r = *lease_record::parse(on_a_node(claims_on({"a"}), {}));
    r.stamp = 0;
    EXPECT_TRUE(r.format().starts_with(a_nonce + " 0:4294967301 "));
    EXPECT_EQ(lease_record::parse(r.format())->token, fencing_token{4294967301});
    EXPECT_EQ(lease_record::parse(lease_record().format())->keys, "-");
}

TEST(lease_record, format_of_merged_leases_has_no_released_hold) {
    const std::string head = a_nonce + " 5 0 10 0 5 -\np\no\n\n", x(16, 'a'), y(16, 'b'), z(16, 'c'), mark(16, '1');
    const auto merged = [&](const std::string& first, const std::string& second) {
        auto r = *lease_record::parse(head + first);
        r.merge(*lease_record::parse(head + second));
        return r.format().substr(head.size());
    };
    EXPECT_EQ(merged(x + "\n\n", y + "," + x + "\n" + z + "\n"), x + "," + y + "\n" + z + "\n") << "united";
    EXPECT_EQ(merged(x + "," + y + "\n\n", y + "\n" + x + "\n"), y + "\n" + x + "\n") << "released on one node";
    EXPECT_EQ(merged(x + "\n\n", y + "\n" + x + "," + y + "\n"), "\n" + x + "," + y + "\n") << "none is left";
    EXPECT_EQ(merged(x + "\n\n", x + "\n\n" + x + mark), x + "\n\n" + x + mark) << "closed on one node";
    EXPECT_EQ(merged(y + "\n" + x + "\n", x + "\n\n" + x + mark), y + "\n" + x + "\n" + x + mark)
        << "by a hold that is released: its token may be sealed";
}

TEST(lease_record, format_keeps_the_newest_keys_once) {
    const auto with_keys = [](int first, int last) {
        std::string keys;
        for (int i = first; i <= last; ++i)
            keys += (keys.empty() ? "" : ",") + std::string(24, static_cast<char>('a' + i)) + ":00000000000000aa";
        return keys;
    };
    const auto lease_with = [](const std::string& keys) {
        return *lease_record::parse(a_nonce + " 5 0 10 0 5 " + keys + "\np\no\n\n\n\n");
    };
    auto r = lease_with(with_keys(0, 7));
    r.merge(lease_with(with_keys(2, 9)));
    EXPECT_EQ(lease_record::parse(r.format())->keys, with_keys(2, 9)) << "a longer list would be no lease for a node";
    r = lease_with("-");
    r.merge(lease_with(with_keys(3, 3)));
    r.merge(lease_with("-"));
    EXPECT_EQ(r.format(), lease_with(with_keys(3, 3)).format());
    r.merge(lease_with(with_keys(3, 5)));
    EXPECT_EQ(r.format(), lease_with(with_keys(3, 5)).format()) << "each once";
}

TEST(lease_record, tail_has_a_mark_only_of_a_gateway_with_waiters) {
    EXPECT_EQ(lease_tail({}, {}).find('\1'), std::string::npos);
    lease_state state;
    state.wake_mark = "00000000000000aa";
    EXPECT_TRUE(
        lease_tail({}, state).ends_with("\n\1"
                                        "00000000000000aa"));
}

TEST(lease_record, names_all_resources_when_there_are_several) {
    const lease_claims c = claims_on({"a", "b/c", "d"});
    const auto r = lease_record::parse(on_a_node(c, {}));
    ASSERT_TRUE(r);
    EXPECT_EQ(r->resources, c.resources);
    EXPECT_EQ(r->keys, "-");
}

TEST(lease_record, is_the_same_with_marks_of_waiters) {
    for (const auto& names : {std::vector<std::string>{"a"}, std::vector<std::string>{"a", "b"}}) {
        const lease_claims c = claims_on(names);
        const auto r = lease_record::parse(on_a_node(c, {1s, 0, 0s, {}, "00000000000000ee", {}}) +
                                           "\1"
                                           "ff\1"
                                           "01");
        ASSERT_TRUE(r);
        EXPECT_EQ(r->holder, c.holder);
        EXPECT_EQ(r->resources.size(), names.size() == 1 ? 0 : names.size());
    }
}

TEST(lease_record, may_have_a_holder_without_a_name) {
    lease_claims c = claims_on({"a"});
    c.holder = {"", ""};
    const auto r = lease_record::parse(on_a_node(c, {}));
    ASSERT_TRUE(r);
    EXPECT_EQ(r->holder, holder{});
}

TEST(lease_record, text_not_written_by_this_cluster_is_no_lease) {
    for (const std::string& text :
         std::initializer_list<std::string>{"",
                                            " ",
                                            "\n",
                                            "hello",
                                            a_nonce,
                                            a_nonce + " ",
                                            a_nonce + " x",
                                            a_nonce + " 1",
                                            a_nonce + " 1 0 1 10",
                                            a_nonce + " -1 0 1 10 0 5 -\np\no\n",
                                            a_nonce + " 1 -1 1 10 0 5 -\np\no\n",
                                            a_nonce + " 1 0 x 10 0 5 -\np\no\n",
                                            a_nonce + " 1 0 1 10 0 x -\np\no\n",
                                            a_nonce + "  1 0 1 10 0 5 -\np\no\n",
                                            " " + a_nonce + " 1 0 1 10 0 5 -\n",
                                            a_nonce.substr(1) + " 1 0 1 10 0 5 -\np\no\n",
                                            "G" + a_nonce.substr(1) + " 1 0 1 10 0 5 -\np\no\n",
                                            a_nonce + " 99999999999999999999 0 1 10 0 5 -\np\no\n",
                                            a_nonce + " 1 4294967296 1 10 0 5 -\np\no\n",
                                            a_nonce + " 1 0 1 10 0 5 -\np\no\n",
                                            a_nonce + " 1 0 10 0 5 -\np\no\n",
                                            a_nonce + " 1 0 10 0 5 -\np\no\n\n\n",
                                            a_nonce + " 1 0 10 0 5 -\np\no\n\n\n\n\n",
                                            a_nonce + " 1 0 10 0 5\np\no\n\n\n\n",
                                            a_nonce + " 1 0 10 0 5 -\np\no\na//b\n\n\n",
                                            a_nonce + " 1 0 1 10 0 5 -\np\no\na//b",
                                            a_nonce + " 1 0 1 10 0 5 -\np\no\na {x}"}) {
        EXPECT_FALSE(lease_record::parse(text)) << text;
    }
}

// A script of a node takes such a value for another holder's lease.
TEST(lease_record, number_above_those_of_a_node_is_no_lease) {
    EXPECT_TRUE(lease_record::parse(a_nonce + " 9007199254740991 999999999 10 0 5 -\np\no\n\n\n\n"));
    EXPECT_FALSE(lease_record::parse(a_nonce + " 9007199254740992:7 0 10 0 5 -\np\no\n\n\n\n"));
    EXPECT_FALSE(lease_record::parse(a_nonce + " 1 1000000000 10 0 5 -\np\no\n\n\n\n"));
}

TEST(lease_record, keys_of_merged_leases_are_limited) {
    auto merged = lease_record::parse(a_nonce + " 1 0 10 0 5 -\np\no\n\n\n\n");
    for (std::uint64_t i = 0; i < 1'000; ++i) {
        const std::string key(nonce::from_bits(i, 0).str().substr(0, idempotency_digest::size));
        const auto other =
            lease_record::parse(a_nonce + " 1 0 10 0 5 " + key + ':' + std::string(16, 'a') + "\np\no\n\n\n\n");
        ASSERT_TRUE(merged && other);
        merged->merge(*other);
        ASSERT_LE(merged->keys.size(), 4'096U);
    }
}

TEST(lease_record, survives_any_cut_and_any_changed_byte) {
    const std::string whole = on_a_node(claims_on({"a", "b"}), {10s, 1, 3s, "0123456789abcdef01234567", "ee", {}});
    ASSERT_TRUE(lease_record::parse(whole));
    for (std::size_t n = 0; n < whole.size(); ++n)
        (void)lease_record::parse(std::string_view(whole).substr(0, n));
    std::mt19937 random(3);
    for (int i = 0; i < 20'000; ++i) {
        std::string changed = whole;
        // No digits: times beyond the clock's range have a test of their own.
        changed[random() % whole.size()] = " \n@-,xz/"[random() % 8];
        (void)lease_record::parse(changed);
    }
}

// This cluster never writes a time beyond the clock's range; to parse it would overflow.
TEST(lease_record, time_beyond_the_clock_is_no_lease) {
    EXPECT_TRUE(lease_record::parse(a_nonce + " 1 0 10 0 9223372 -\np\no\n\n\n\n"));
    EXPECT_FALSE(lease_record::parse(a_nonce + " 1 0 10 0 9223372036854775807 -\np\no\n\n\n\n"));
    EXPECT_FALSE(lease_record::parse(a_nonce + " 1 0 10 0 -9223372036854775807 -\np\no\n\n\n\n"));
    // The clock counts nanoseconds and ends in 2262.
    EXPECT_TRUE(lease_record::parse(a_nonce + " 1 0 10 0 9223372036854 -\np\no\n\n\n\n"));
    EXPECT_FALSE(lease_record::parse(a_nonce + " 1 0 10 0 9223372036855 -\np\no\n\n\n\n"));
    for (const char* times : {"-2 0", "0 -2", "9223372036854775807 0", "0 9223372036854775807"})
        EXPECT_FALSE(lease_record::parse(a_nonce + " 1 0 " + times + " 5 -\np\no\n\n\n\n")) << times;
}

TEST(lease_record, keys_without_any_are_written_as_none) {
    const auto empty = lease_record::parse(a_nonce + " 1 0 10 0 5 ,,\np\no\n\n\n\n");
    ASSERT_TRUE(empty);
    EXPECT_EQ(empty->format(), a_nonce + " 1 0 10 0 5 -\np\no\n\n\n\n");
}

// A hostile node may send 16 MiB, and the time to merge leases grows with the square of what they contain.
TEST(lease_record, text_longer_than_a_lease_is_no_lease) {
    const auto with_keys = [](std::size_t bytes) {
        return a_nonce + " 1 0 10 0 5 " + std::string(bytes, 'k') + "\np\no\n\n\n\n";
    };
    EXPECT_TRUE(lease_record::parse(with_keys(335)));
    EXPECT_FALSE(lease_record::parse(with_keys(336)));
    const std::string whole = a_nonce + " 1 0 10 0 5 -\np\no\n\n\n\n\1";
    EXPECT_TRUE(lease_record::parse(whole + std::string(lease_bytes_max - whole.size(), 'w')));
    EXPECT_FALSE(lease_record::parse(whole + std::string(lease_bytes_max - whole.size() + 1, 'w')));
}

// What several nodes have is merged, so a lease may have more holds than one node keeps.
TEST(lease_record, lease_with_most_of_everything_can_be_stored) {
    lease_claims claims = claims_on({});
    for (std::size_t i = 0; i < resources_max; ++i)
        claims.resources.push_back(*resource_name::parse(std::string(names_bytes_max / resources_max, 'x')));
    claims.holder = {std::string(holder_bytes_max, 'p'), std::string(holder_bytes_max, 'o')};
    std::string marks;
    for (std::uint64_t call = 0; call < close_marks_max; ++call)
        marks += std::string(16, 'a') + std::string(hold_id::from_bits(call).str());
    const auto parsed = lease_record::parse(on_a_node(claims, {1h, renewals_counted, 1h, {}, {}, marks}));
    ASSERT_TRUE(parsed);
    lease_record most = *parsed;
    std::string live, released;
    for (std::uint64_t id = 0; id < hold_ids_max; ++id) {
        live += std::string(id == 0 ? "" : ",") + std::string(hold_id::from_bits(2 * id + 1'000'000).str());
        released += std::string(id == 0 ? "" : ",") + std::string(hold_id::from_bits(2 * id + 2'000'000).str());
    }
    most.holds = {};
    most.holds.add(live + "\n" + released + "\n" + marks);
    most.stamp = fencing_token_max;
    most.keys.clear();
    for (int i = 0; i < 8; ++i)
        most.keys += std::string(i == 0 ? "" : ",") + std::string(idempotency_digest::size, 'd') + ":" +
                     std::string(hold_id::size, static_cast<char>('0' + i));
    std::string text = most.format();
    for (int i = 0; i < 16; ++i)
        text += "\1" + std::string(32, 'e');
    EXPECT_GT(text.size(), 15'000U);
    EXPECT_LE(text.size(), lease_bytes_max);
    const auto again = lease_record::parse(text);
    ASSERT_TRUE(again);
    EXPECT_EQ(again->format(), most.format());
}

TEST(lease_record, close_marks_of_another_form_are_no_lease) {
    const std::string open = a_nonce + " 1 0 10 0 5 -\np\no\n\n\n\n";
    std::string marks;
    for (std::uint64_t call = 0; call < close_marks_max; ++call)
        marks += std::string(16, 'a') + std::string(hold_id::from_bits(call).str());
    EXPECT_TRUE(lease_record::parse(open + marks));
    EXPECT_FALSE(lease_record::parse(open + marks + std::string(32, 'b'))) << "too many";
    EXPECT_FALSE(lease_record::parse(open + std::string(31, 'a')));
    EXPECT_FALSE(lease_record::parse(open + std::string(32, 'A')));
}

TEST(hold_view, more_holds_than_a_lease_can_have_are_left_out) {
    std::string ids;
    for (std::uint64_t bits = 0; bits < 200'000; bits += 2)
        ids.append(hold_id::from_bits(bits).str()).append(",");
    hold_view holds;
    holds.add(ids + "\n" + ids + "\n");
    EXPECT_EQ(holds.count(), hold_ids_max);
    for (std::uint64_t bits = 1'000'000; bits < 1'001'000; bits += 2)
        holds.add(std::string(hold_id::from_bits(bits).str()) + "\n\n");
    EXPECT_EQ(holds.count(), hold_ids_max) << "of all nodes together";
}

TEST(hold_view, two_ids_of_a_hold_are_one) {
    const std::string tentative(hold_id::from_bits(6).str()), confirmed(hold_id::from_bits(7).str());
    for (const auto& [first, second] : {std::pair(tentative, confirmed), std::pair(confirmed, tentative)}) {
        hold_view holds;
        holds.add(first + "\n\n");
        holds.add(second + "\n\n");
        EXPECT_EQ(holds.text(), confirmed + "\n\n");
    }
    hold_view released, undone;
    released.add(tentative + '\n' + confirmed + '\n');
    EXPECT_EQ(released.count(), 0U);
    undone.add(confirmed + '\n' + tentative + '\n');
    EXPECT_EQ(undone.count(), 1U) << "an undo says nothing about the confirmed id";
}

TEST(hold_view, close_marks_are_32_digits) {
    const std::string one(32, '1'), two(32, '2');
    hold_view holds;
    holds.add("\n\n" + one + "x" + std::string(31, '3') + two + one + "0123");
    EXPECT_EQ(holds.close_marks(), one + two);
    hold_view open;
    open.add("\n\n0123");
    EXPECT_EQ(open.close_marks(), "");
}

acquire_request request(const std::string& key) {
    acquire_request r;
    r.resources = {*resource_name::parse("a"), *resource_name::parse("b")};
    r.holder = {"orders", "worker-7"};
    r.ttl = 10s;
    r.idempotency_key = key;
    return r;
}

const std::string hold_of_key = ":00000000000000aa";

TEST(idempotency_digest, is_found_for_the_same_request_with_its_hold) {
    const auto mark = make_idempotency_digest(request("k1"));
    EXPECT_EQ(mark.text.size(), idempotency_digest::size);
    const std::string entry = mark.text + hold_of_key;
    const auto found = make_idempotency_digest(request("k1")).find_in(entry);
    EXPECT_EQ(found.result, match::same);
    EXPECT_EQ(found.hold, hold_id::from_bits(0xaa));
    const std::string other = make_idempotency_digest(request("k2")).text + ":00000000000000bb";
    for (const std::string& keys : {other + "," + entry, entry + "," + other}) {
        EXPECT_EQ(mark.find_in(keys).result, match::same);
        EXPECT_EQ(mark.find_in(keys).hold, hold_id::from_bits(0xaa));
    }
}

TEST(idempotency_digest, is_not_found_among_other_keys_or_none) {
    const auto mark = make_idempotency_digest(request("k1"));
    for (const std::string& keys :
         {std::string("-"), std::string(), make_idempotency_digest(request("k2")).text + hold_of_key,
          mark.text.substr(1) + hold_of_key, mark.text, mark.text + ":", mark.text + ":12",
          mark.text + ":" + mark.text})
        EXPECT_EQ(mark.find_in(keys).result, match::none) << keys;
    EXPECT_TRUE(make_idempotency_digest(request("")).empty());
    EXPECT_EQ(make_idempotency_digest(request("")).find_in(mark.text + hold_of_key).result, match::none);
}

TEST(idempotency_digest, differing_request_is_reported_as_another) {
    const std::string known = make_idempotency_digest(request("k1")).text + hold_of_key;
    const auto changed = [&](auto change) {
        acquire_request r = request("k1");
        change(r);
        return make_idempotency_digest(r).find_in(known).result;
    };
    EXPECT_EQ(changed([](acquire_request& r) { r.ttl = 11s; }), match::other_request);
    EXPECT_EQ(changed([](acquire_request& r) { r.resources.pop_back(); }), match::other_request);
    EXPECT_EQ(changed([](acquire_request& r) { r.resources = {*resource_name::parse("ab")}; }), match::other_request);
    EXPECT_EQ(changed([](acquire_request& r) { r.holder.principal = "billing"; }), match::none) << "another's key";
    EXPECT_EQ(changed([](acquire_request& r) { r.wait = 5s; }), match::same) << "how long it waits is no matter";
    EXPECT_EQ(changed([](acquire_request& r) { r.holder.owner = "worker-8"; }), match::same)
        << "nor which process asks";
}

TEST(idempotency_digest, names_of_the_two_modes_are_told_apart) {
    acquire_request shares = request("k1"), has = request("k1");
    shares.shared = {*resource_name::parse("x")};
    for (const char* name : {"shared", "x"})
        has.resources.push_back(*resource_name::parse(name));
    EXPECT_EQ(make_idempotency_digest(shares).find_in(make_idempotency_digest(has).text + hold_of_key).result,
              match::other_request);
    has = request("k1");
    has.resources.push_back(*resource_name::parse("shared x"));
    EXPECT_NE(name_request(shares), name_request(has));
    has.resources.back() = *resource_name::parse("x");
    EXPECT_NE(name_request(shares), name_request(has));
}

TEST(idempotency_digest, separates_principal_and_key) {
    acquire_request x = request("bc"), y = request("c");
    x.holder.principal = "a";
    y.holder.principal = "ab";
    EXPECT_EQ(make_idempotency_digest(x).find_in(make_idempotency_digest(y).text + hold_of_key).result, match::none);
}

}  // namespace
}  // namespace lockcore
