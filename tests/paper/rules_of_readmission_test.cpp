// docs/protocol.md, FAST READMISSION: the scripts MARK, READ, INSTALL and READMIT with a mark. See rules_test.cpp.
#include <proto/lease_record.hpp>

#include "paper/admitted_nodes.hpp"

#include <map>
#include <set>

namespace lockcore {
namespace {

using fencegate::testing::call_of;
using fencegate::testing::node_client;
using fencegate::testing::nonce_of;
using fencegate::testing::rules;
using kind = command_kind;
using status = reply_status;
using namespace std::chrono_literals;

const std::string digits_1(32, '1'), digits_2(32, '2');

struct read_lease {
    std::int64_t remaining_ms = 0;
    std::string value;
};

/// Reads all pages. Out: the leases by the names of their resources; the number of pages.
std::map<std::string, read_lease> read_all(node_client& node, std::size_t page, std::size_t* pages = nullptr) {
    std::map<std::string, read_lease> out;
    std::string base, cursor = "0";
    do {
        const auto reply = node.read_leases(base, cursor, page);
        if (reply.size() < 2 || reply.size() % 3 != 2) {
            ADD_FAILURE() << (reply.empty() ? "" : reply[0]);
            return out;
        }
        base = reply[0];
        cursor = reply[1];
        for (std::size_t i = 2; i < reply.size(); i += 3)
            out[reply[i]] = {std::stoll(reply[i + 1]), reply[i + 2]};
        if (pages) ++*pages;
    } while (cursor != "0");
    return out;
}

/// Returns the lease that is installed on another node: it does not count there until UPGRADE.
node_client::installed_lease make_installed(const std::string& resource, const read_lease& found) {
    auto record = lease_record::parse(found.value);
    EXPECT_TRUE(record) << found.value;
    record->stamp = 0;
    return {resource, record->format(), static_cast<std::uint64_t>(found.remaining_ms + 1)};
}

// --- MARK

/// Returns the mark of the live process with its live command marks.
std::string mark_of(node_client& node, const std::string& digits) {
    return node.run_id() + ' ' + node.marks() + ' ' + digits;
}

TEST_F(rules, mark_is_one_for_a_life_and_names_it) {
    restart(0);
    EXPECT_EQ(n0().mark(digits_1), mark_of(n0(), digits_1));
    EXPECT_EQ(n0().mark(digits_2), mark_of(n0(), digits_1)) << "another gateway gets the same";
    EXPECT_EQ(n0().command({"HGET", "fg:node", "mark"}), mark_of(n0(), digits_1));
    n0().command({"HSET", "fg:node", "mark", std::string(40, 'f') + ' ' + n0().marks() + ' ' + digits_1});
    EXPECT_EQ(n0().mark(digits_2), mark_of(n0(), digits_2)) << "that of an earlier process is replaced";
    n0().command({"SWAPDB", "1", "2"});
    EXPECT_EQ(n0().mark(digits_1), mark_of(n0(), digits_1)) << "that of data which may be lost too";
    n0().command({"HDEL", "fg:node", "mark"});
    EXPECT_EQ(n0().mark(digits_2), mark_of(n0(), digits_2)) << "wiped";
}

TEST_F(rules, readmit_keeps_the_marks_after_an_eviction) {
    const auto a = call_of('a', {r});
    ASSERT_EQ(n0().run(kind::acquire, a).status, status::ok);
    n0().command({"CONFIG", "SET", "slowlog-max-len", "100"});
    n0().command({"HSET", "fg:node", "evicted", "7"});  // as if keys had been evicted since the admission
    EXPECT_EQ(n0().readmit(n0().run_id(), 9, "any", n0().marks()), "ALREADY");
    n0().command({"HDEL", "fg:node", "compared"});
    EXPECT_EQ(n0().run(kind::inspect, a, 1).status, status::not_admitted);
}

TEST_F(rules, mark_is_not_set_on_an_admitted_node) {
    EXPECT_EQ(n0().mark(digits_1), "ALREADY");
    EXPECT_EQ(n0().command({"HGET", "fg:node", "mark"}), "");
    n0().command({"HDEL", "fg:node", "run", "claim"});  // as when it has forgotten in one life
    EXPECT_EQ(n0().mark(digits_1), mark_of(n0(), digits_1));
}

// --- READ

TEST_F(rules, read_returns_every_lease_with_its_time_and_value) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r}, 20s)).status, status::ok);
    ASSERT_EQ(n0().run(kind::acquire, call_of('b', {"a", "b"}, 10s)).status, status::ok);
    n0().command({"SET", "fg:lease:short", "x", "PX", "1"});
    while (n0().time_left("short") > -2)
        continue;
    const std::string before = n0().all_keys();
    const auto found = read_all(n0(), 200);
    EXPECT_EQ(n0().all_keys(), before);
    ASSERT_EQ(found.size(), 3U) << "an expired lease is not read";
    for (const auto& [name, lease] : found) {
        EXPECT_EQ(lease.value, n0().lease(name));
        EXPECT_GT(lease.remaining_ms, name == r ? 19'000 : 9'000);
        EXPECT_LE(lease.remaining_ms, name == r ? 20'000 : 10'000);
    }
}

TEST_F(rules, read_finds_all_leases_in_pages_among_many_counters) {
    n0().command({"EVAL",
                  "for i = 1, 5000 do redis.call('SET', 'fg:token:' .. i, i) end "
                  "for i = 1, 700 do redis.call('SET', 'fg:lease:r' .. i, 'x' .. i, 'PX', 60000) end",
                  "0"});
    std::size_t pages = 0;
    const auto found = read_all(n0(), 100, &pages);
    EXPECT_EQ(found.size(), 700U);
    EXPECT_GE(pages, 7U);
    EXPECT_LE(pages, 50U) << "a page goes on over other keys";
    EXPECT_EQ(found.at("r700").value, "x700");
}

TEST_F(rules, read_returns_foreign_values_as_such) {
    const std::string binary("\0\r\n\xff * $5", 9), longest(16'384, 'x');
    for (const auto& write : std::vector<std::vector<std::string>>{{"SET", "fg:lease:binary", binary},
                                                                   {"SET", "fg:lease:empty", ""},
                                                                   {"SET", "fg:lease:longest", longest},
                                                                   {"SET", "fg:lease:longer", longest + "x"},
                                                                   {"RPUSH", "fg:lease:list", "x"},
                                                                   {"HSET", "fg:lease:hash", "x", "y"}})
        n0().command(write);
    const auto found = read_all(n0(), 200);
    ASSERT_EQ(found.size(), 6U);
    for (const auto& [name, value] : std::map<std::string, std::string>{
             {"binary", binary}, {"empty", ""}, {"longest", longest}, {"longer", "?"}, {"list", "?"}, {"hash", "?"}}) {
        EXPECT_EQ(found.at(name).value, value) << name;
        EXPECT_EQ(found.at(name).remaining_ms, -1) << name;
    }
}

TEST_F(rules, read_tests_on_each_page_that_the_node_votes_unchanged) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r})).status, status::ok);
    const auto first = n0().read_leases("", "0", 200);
    ASSERT_EQ(first.size(), 5U);
    EXPECT_EQ(first[0], "0") << "the base";
    EXPECT_EQ(n0().read_leases("0", "0", 200).size(), 5U);
    n0().command({"HSET", "fg:node", "run", std::string(40, 'f')});
    EXPECT_TRUE(n0().read_leases("", "0", 200)[0].starts_with("UNINIT")) << "not admitted under its live run id";
    EXPECT_TRUE(n0().read_leases("", "0", 200, std::string(40, 'f'))[0].starts_with("UNINIT"))
        << "the admission of an earlier process, in older data";
    n0().command({"HSET", "fg:node", "run", n0().run_id(), "base", std::to_string(tokens_per_epoch)});
    EXPECT_TRUE(n0().read_leases("0", "0", 200)[0].starts_with("UNINIT")) << "readmitted meanwhile";
    EXPECT_EQ(n0().read_leases("", "0", 200)[0], std::to_string(tokens_per_epoch)) << "a scan from the start";
    n0().command({"SWAPDB", "1", "2"});
    n0().command({"HSET", "fg:node", "compared", "1"});  // as in another 10 ms
    EXPECT_TRUE(n0().read_leases("", "0", 200)[0].starts_with("UNINIT")) << "it may have lost leases";
    restart(0);
    EXPECT_TRUE(n0().read_leases("", "0", 200)[0].starts_with("UNINIT")) << "never admitted";
}

// --- INSTALL

TEST_F(rules, install_writes_each_lease_over_the_nodes_own) {
    restart(0);
    for (const char* name : {"a", "kept"})
        n0().command({"SET", std::string("fg:lease:") + name, "own", "PX", "60000"});
    n0().command({"RPUSH", "fg:lease:list", "x"});
    const std::string mark = n0().mark(digits_1), binary("\0\r\n\xff", 4);
    ASSERT_EQ(n0().install(n0().run_id(), mark, {{"a", "A", 9'000}, {"b", binary, 5'000}, {"list", "L", 7'000}}), "OK");
    EXPECT_EQ(n0().lease("a"), "A");
    EXPECT_EQ(n0().lease("b"), binary);
    EXPECT_EQ(n0().lease("list"), "L");
    EXPECT_EQ(n0().lease("kept"), "own") << "no lease of this key was found";
    EXPECT_GT(n0().time_left("a"), 8'000);
    EXPECT_LE(n0().time_left("a"), 9'000);
    EXPECT_LE(n0().time_left("b"), 5'000);
    EXPECT_GT(n0().time_left("kept"), 50'000);
    EXPECT_EQ(n0().install(n0().run_id(), mark, {}), "OK") << "an empty page";
}

TEST_F(rules, install_is_refused_without_effect_for_another_life_or_mark) {
    restart(0);
    const std::string earlier = n0().run_id(), earlier_mark = n0().mark(digits_1);
    restart(0);
    const std::string run = n0().run_id();
    EXPECT_EQ(n0().install(earlier, earlier_mark, {{"a", "A", 9'000}}), "GONE") << "an earlier process";
    EXPECT_EQ(n0().install(run, earlier_mark, {{"a", "A", 9'000}}), "GONE") << "no mark";
    n0().command({"HSET", "fg:node", "mark", earlier_mark});  // as in data of the earlier process
    EXPECT_EQ(n0().install(earlier, earlier_mark, {{"a", "A", 9'000}}), "GONE") << "its restored mark";
    EXPECT_EQ(n0().install(run, earlier_mark, {{"a", "A", 9'000}}), "GONE") << "its restored mark";
    const std::string before_swap = n0().mark(digits_1);
    n0().command({"SWAPDB", "1", "2"});
    EXPECT_EQ(n0().install(run, before_swap, {{"a", "A", 9'000}}), "GONE") << "it may have lost data since";
    const std::string mark = n0().mark(digits_1);
    n0().command({"FLUSHALL"});
    EXPECT_EQ(n0().install(run, mark, {{"a", "A", 9'000}}), "GONE") << "wiped";
    ASSERT_NE(n0().mark(digits_2), mark);
    EXPECT_EQ(n0().install(run, mark, {{"a", "A", 9'000}}), "GONE") << "wiped, and marked again";
    EXPECT_EQ(n0().lease("a"), "");
}

TEST_F(rules, install_is_refused_without_effect_on_an_admitted_node) {
    restart(0);
    const std::string mark = n0().mark(digits_1);
    ASSERT_EQ(n0().admit(1), "OK");
    n0().command({"HSET", "fg:node", "mark", mark});
    EXPECT_EQ(n0().install(n0().run_id(), mark, {{"a", "A", 9'000}}), "ALREADY");
    EXPECT_EQ(n0().lease("a"), "");
}

// --- READMIT

TEST_F(rules, readmit_with_mark_needs_that_mark_and_deletes_it) {
    restart(0);
    EXPECT_EQ(n0().readmit_marked(1, mark_of(n0(), digits_1)), "GONE") << "no mark";
    const std::string mark = n0().mark(digits_1);
    EXPECT_EQ(n0().readmit_marked(1, mark_of(n0(), digits_2)), "GONE") << "another mark";
    n0().command({"SWAPDB", "1", "2"});
    EXPECT_EQ(n0().readmit_marked(1, mark), "GONE") << "installed leases may be lost, even if it was inspected since";
    const std::string second = n0().mark(digits_2);
    EXPECT_EQ(n0().command({"HGET", "fg:node", "run"}), "");
    EXPECT_EQ(n0().readmit_marked(1, second), "OK");
    EXPECT_EQ(n0().command({"HGET", "fg:node", "mark"}), "");
    EXPECT_EQ(n0().readmit_marked(2, second), "ALREADY");
    // The node forgets in this life. What was read for it before must not be installed.
    n0().command({"HDEL", "fg:node", "run", "claim"});
    EXPECT_EQ(n0().install(n0().run_id(), second, {{"a", "A", 9'000}}), "GONE");
    ASSERT_NE(n0().mark(digits_1), second);
    EXPECT_EQ(n0().install(n0().run_id(), second, {{"a", "A", 9'000}}), "GONE");
    EXPECT_EQ(n0().readmit_marked(2, second), "GONE");
}

TEST_F(rules, readmit_without_mark_needs_none_and_deletes_it) {
    restart(0);
    const std::string mark = n0().mark(digits_1);
    EXPECT_EQ(n0().readmit_marked(1, ""), "OK") << "the quarantine is over";
    EXPECT_EQ(n0().command({"HGET", "fg:node", "mark"}), "");
    EXPECT_EQ(n0().install(n0().run_id(), mark, {{"a", "A", 9'000}}), "ALREADY");
}

// --- all steps

TEST_F(rules, readmitted_node_refuses_rivals_and_counts_after_upgrade) {
    const auto a = call_of('a', {r}), ab = call_of('b', {"a", "b"});
    for (node_client& node : nodes) {
        ASSERT_EQ(node.run(kind::acquire, a).value, 1U);
        ASSERT_EQ(node.run(kind::acquire, ab).value, 1U);
    }
    restart(2);
    const std::string mark = nodes[2].mark(digits_1);
    std::vector<node_client::installed_lease> page;
    for (const auto& [name, lease] : read_all(nodes[0], 200))
        page.push_back(make_installed(name, lease));
    ASSERT_EQ(page.size(), 3U);
    ASSERT_EQ(nodes[2].install(nodes[2].run_id(), mark, page), "OK");
    ASSERT_EQ(nodes[2].readmit_marked(1, mark), "OK");
    EXPECT_EQ(nodes[2].stamp_of(r), "0:1");
    EXPECT_EQ(nodes[2].run(kind::acquire, call_of('x', {r})).status, status::held);
    EXPECT_EQ(nodes[2].run(kind::acquire, call_of('x', {"b"})).status, status::held);
    for (const auto& call : {a, ab}) {
        const node_reply not_counting = nodes[2].run(kind::renew, call, 1);
        EXPECT_EQ(not_counting.status, status::lost) << "an installed lease does not count";
        EXPECT_TRUE(not_counting.has_stamp);
        EXPECT_EQ(not_counting.value, tokens_per_epoch);
        auto upgrade = call;
        upgrade.seen = "0";
        EXPECT_FALSE(nodes[2].run(kind::top_up, upgrade, 1).counts) << "its stamp, of any admission";
        upgrade.seen = std::to_string(not_counting.value);
        const node_reply upgraded = nodes[2].run(kind::top_up, upgrade, 1);
        EXPECT_EQ(upgraded.value, tokens_per_epoch);
        EXPECT_TRUE(upgraded.counts);
        EXPECT_EQ(nodes[2].run(kind::renew, call, 1).status, status::ok);
    }
    EXPECT_EQ(nodes[2].run(kind::release, a).status, status::ok);
    EXPECT_EQ(nodes[2].run(kind::acquire, call_of('x', {r})).value, tokens_per_epoch + 1);
}

}  // namespace
}  // namespace lockcore
