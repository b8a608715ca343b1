// Sends the same random commands to the Lua scripts on a real Redis server and to the node of tests/sim, and compares
// answers and data after each.
#include <chaos/real_node.hpp>
#include <proto/lease_record.hpp>
#include <redis/resp_command.hpp>
#include <redis/script_set.hpp>
#include <sim/parts/sim_node.hpp>
#include <support/redis_nodes.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <string>
#include <vector>

namespace sim {
namespace {

using lockcore::command_kind;
using lockcore::fencing_token;
using lockcore::node_reply;
using lockcore::reply_status;
using namespace std::chrono_literals;

constexpr std::uint32_t resources = 5;
constexpr std::uint64_t epoch_size = std::uint64_t{1} << 32;

/// The two nodes under comparison.
class two_nodes {
  public:
    two_nodes(std::uint64_t seed, std::uint16_t port, const std::vector<lockcore::resource_name>& names)
        : names_(names),
          ctx_(make_options(seed), false),
          check_(ctx_),
          simulated_(ctx_, check_, 0, false, drifting_clock()),
          real_(port),
          subscriber_(port) {
        real_.ask(lockcore::redis::resp_command().arg("FLUSHALL").finish());
        subscriber_.ask(lockcore::redis::resp_command().arg("PSUBSCRIBE").arg("fg:wake:*").finish());
        const auto info = real_.ask(lockcore::redis::resp_command().arg("INFO").arg("server").finish());
        const std::string all = text(info.get());
        live_ = all.substr(all.find("run_id:") + 7, 40);
        simulated_.start(++run_);
        compare();  // writes a claim
        readmit(run_, 0, 1);
        compare();
    }

    random& rng() { return ctx_.rng; }

    /// Runs one random command or causes one event of the node.
    void step() {
        const std::uint32_t drawn = rng().below(1'000);
        if (drawn < 8) return flush();
        if (drawn < 20) return restart();
        if (drawn < 50) {
            stale_marks_ = rng().chance(100);
            return readmit(rng().chance(800) ? run_ : 1, rng().below(3), epoch_ + rng().below(2));
        }
        if (drawn < 55) return delete_admission();
        if (drawn < 60) return run_data_losing_command();
        if (drawn < 250) return advance_time();
        run_commands(draw_kind());
    }

    /// Compares the data of both nodes.
    void compare() {
        const auto found = real_.ask(state_command());
        ASSERT_EQ(found->elements, resources * 3) << text(found.get());
        for (std::uint32_t r = 0; r < resources; ++r) {
            const lease_parts here = split_lease(simulated_.lease_text(r), names_);
            const lease_parts there = split_lease(text(found->element[r * 3]), names_);
            ASSERT_EQ(here.head, there.head) << last_;
            ASSERT_EQ(here.rest, there.rest) << last_;
            ASSERT_TRUE(is_close(here.ttl, there.ttl)) << last_ << here.ttl.count() << " " << there.ttl.count();
            ASSERT_TRUE(is_close(here.held, there.held)) << last_ << here.held.count() << " " << there.held.count();
            const milliseconds left{found->element[r * 3 + 1]->integer};
            if (!here.head.empty()) {
                ASSERT_TRUE(is_close(simulated_.time_left(r), left))
                    << last_ << simulated_.time_left(r).count() << " " << left.count();
            }
            const std::string counter = text(found->element[r * 3 + 2]);
            ASSERT_EQ(std::to_string(simulated_.counter(r)), counter.empty() ? "0" : counter) << last_;
        }
        request q;
        q.kind = request_kind::identify;
        q.claim = ++claims_;
        const reply facts = simulated_.execute(q);
        real_.ask(lockcore::redis::resp_command()
                      .arg("HSETNX")
                      .arg("fg:node")
                      .arg("claim")
                      .arg(std::uint64_t{claims_})
                      .finish());
        const auto node = real_.ask(lockcore::redis::resp_command()
                                        .arg("HMGET")
                                        .arg("fg:node")
                                        .arg("run")
                                        .arg("base")
                                        .arg("claim")
                                        .arg("sync")
                                        .arg("marks")
                                        .finish());
        ASSERT_EQ(text(node->element[0]), facts.admitted_run == 0 ? "" : name_of(facts.admitted_run)) << last_;
        if (facts.admitted_run != 0) {
            ASSERT_EQ(text(node->element[1]), std::to_string(facts.base)) << last_;
        }
        ASSERT_EQ(text(node->element[2]), std::to_string(facts.claim)) << last_;
        ASSERT_EQ(text(node->element[3]) == "no", facts.kept_unsynced) << last_;
        live_marks_ = live_marks();
        if (facts.admitted_run == run_) {
            ASSERT_EQ(text(node->element[4]) == live_marks_, facts.admitted_marks == facts.marks) << last_;
        }
        marks_ = facts.marks;
        claim_ = facts.claim;
        admitted_ = facts.admitted_run;
        base_ = facts.base;
        synchronize_expiry();
    }

    std::array<std::uint64_t, lockcore::script_statuses> seen{};  ///< Answers by status.

  private:
    static options make_options(std::uint64_t seed) {
        options o;
        o.seed = seed;
        o.resources = resources;
        o.buckets = 3;
        o.bucket_of = {0, 0, 1, 1, 2};
        return o;
    }
    std::string name_of(run_number run) const { return run == run_ ? live_ : "run-" + std::to_string(run); }

    // --- events of a node

    void flush() {
        last_ = "flush ";
        simulated_.flush();
        real_.ask(lockcore::redis::resp_command().arg("FLUSHALL").finish());
    }
    /// Simulates a restart that keeps the data. The real server does not restart: its `fg:node` gets
    /// another run id instead.
    void restart() {
        last_ = "restart ";
        simulated_.crash(sim_node::restart::keeping);
        simulated_.start(++run_);
        if (admitted_ == 0) return;
        // The counts of the real server continue, so its recorded marks are raised by the difference
        // that a restart makes.
        request q;
        q.kind = request_kind::identify;
        const reply facts = simulated_.execute(q);
        const std::size_t end = live_marks_.find(' ');
        const std::string noted = std::to_string(std::stoul(live_marks_.substr(0, end)) + facts.admitted_marks.lost) +
                                  live_marks_.substr(end);
        real_.ask(lockcore::redis::resp_command()
                      .arg("HSET")
                      .arg("fg:node")
                      .arg("run")
                      .arg(name_of(admitted_))
                      .arg("marks")
                      .arg(noted)
                      .finish());
    }
    void readmit(run_number run, std::uint32_t off_claim, std::uint64_t epoch) {
        last_ = "readmit ";
        request q;
        q.kind = request_kind::readmit;
        q.run = run;
        q.claim = claim_ + off_claim / 2;
        q.marks = marks_;
        if (stale_marks_) ++q.marks.set;
        q.syncs = rng().chance(500);
        q.base = epoch * epoch_size;
        epoch_ = std::max(epoch_, epoch);
        const reply here = simulated_.execute(q);
        const auto there = real_.ask(lockcore::redis::resp_command()
                                         .arg("EVAL")
                                         .arg(lockcore::redis::readmit_script().text)
                                         .arg(std::uint64_t{1})
                                         .arg("fg:node")
                                         .arg(name_of(run))
                                         .arg(q.base)
                                         .arg(std::uint64_t{q.claim})
                                         .arg(stale_marks_ ? std::string_view("others") : live_marks_)
                                         .arg(q.syncs ? "yes" : "no")
                                         .finish());
        constexpr const char* words[] = {"OK", "ALREADY", "GONE"};
        ASSERT_EQ(words[static_cast<std::size_t>(here.readmitted)], text(there.get()));
    }
    void delete_admission() {
        last_ = "forget ";
        request q;
        q.kind = request_kind::delete_admission;
        simulated_.execute(q);
        real_.ask(lockcore::redis::resp_command().arg("HDEL").arg("fg:node").arg("run").arg("claim").finish());
    }
    void run_data_losing_command() {
        last_ = "losing command ";
        simulated_.count_data_losing_command();
        real_.ask(lockcore::redis::resp_command().arg("SWAPDB").arg("1").arg("2").finish());
    }
    std::string live_marks() {
        const auto record = real_.ask(lockcore::redis::resp_command()
                                          .arg("EVAL")
                                          .arg(lockcore::redis::identify_script().text)
                                          .arg(std::uint64_t{1})
                                          .arg("fg:node")
                                          .finish());
        return text(record->element[0]);
    }
    void advance_time() {
        last_ = "time passes ";
        milliseconds span = rng().between(milliseconds{1s}, milliseconds{200s});
        // Avoids an end within milliseconds of the expiry of a lease.
        for (bool close = true; close;) {
            close = false;
            for (std::uint32_t r = 0; r < resources; ++r)
                close = close || (simulated_.holder_of(r) != 0 && is_close(simulated_.time_left(r), span));
            if (close) span += 7s;
        }
        ctx_.events.schedule_in(span, {});
        ctx_.events.next();
        synchronize_expiry();
    }
    /// Sets the ttl of the real leases to those of the simulated ones.
    void synchronize_expiry() {
        lockcore::redis::resp_command c;
        c.arg("EVAL")
            .arg("for i, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ARGV[i]) end")
            .arg(std::uint64_t{resources});
        for (const auto& name : names_)
            c.arg("fg:lease:", name.str());
        for (std::uint32_t r = 0; r < resources; ++r)
            c.arg(static_cast<std::uint64_t>(std::max(simulated_.time_left(r), 0ms).count()));
        real_.ask(c.finish());
    }
    std::string state_command() const {
        lockcore::redis::resp_command c;
        c.arg("EVAL")
            .arg(
                "local out = {} for i = 1, #KEYS, 2 do out[#out + 1] = redis.call('GET', KEYS[i]) or '' "
                "out[#out + 1] = redis.call('PTTL', KEYS[i]) out[#out + 1] = redis.call('GET', KEYS[i + 1]) or '' end "
                "return out")
            .arg(std::uint64_t{resources * 2});
        for (const auto& name : names_)
            c.arg("fg:lease:", name.str()).arg("fg:token:", std::uint64_t{name.bucket()});
        return c.finish();
    }

    // --- commands

    command_kind draw_kind() {
        constexpr command_kind drawn[] = {
            command_kind::acquire, command_kind::acquire, command_kind::acquire, command_kind::acquire,
            command_kind::confirm, command_kind::renew,   command_kind::hold,    command_kind::hold,
            command_kind::inspect, command_kind::top_up,  command_kind::look,    command_kind::release,
            command_kind::release, command_kind::undo,    command_kind::close,
        };
        return rng().pick(drawn);
    }
    resource_set draw_resources() {
        auto set = static_cast<resource_set>(1U << rng().below(resources));
        while (rng().chance(300))
            set |= static_cast<resource_set>(1U << rng().below(resources));
        return set;
    }
    request draw(command_kind kind) {
        request q;
        q.kind = request_kind::lease;
        q.command = kind;
        q.run = admitted_ != 0 && rng().chance(980) ? admitted_ : 77;
        q.resources =
            kind == command_kind::look ? static_cast<resource_set>(1U << rng().below(resources)) : draw_resources();
        std::uint32_t first = 0;
        while (!(q.resources >> first & 1))
            ++first;
        // Mostly uses the values of a lease that exists.
        if (const auto there = lockcore::lease_record::parse(simulated_.lease_text(first));
            there && rng().chance(800)) {
            q.nonce = simulated_.holder_of(first);
            q.token = lockcore::value_of(there->token);
            q.hold = rng().chance(500) ? q.nonce : 1 + rng().below(4);
            if (!there->resources.empty() && rng().chance(900)) {
                q.resources = 0;
                for (const auto& r : there->resources)
                    q.resources |= static_cast<resource_set>(1U << (r.str()[1] - '0'));
                if (kind == command_kind::look) q.resources = static_cast<resource_set>(1U << first);
            }
            q.holder.principal = static_cast<std::uint16_t>(there->holder.principal[1] - '0');
            if (!there->holder.owner.empty()) q.holder.owner = static_cast<std::uint16_t>(there->holder.owner[1] - '0');
        } else {
            q.nonce = q.hold = 1 + rng().below(1'000'000);
            q.token = simulated_.counter(first);
        }
        if (kind == command_kind::confirm || rng().chance(50)) q.token += rng().below(3);
        if (rng().chance(50) && q.token > 1) q.token -= 1;
        if (kind == command_kind::acquire) {
            if (rng().chance(350)) q.previous = q.nonce;
            q.previous_hold = q.hold;
            if (q.previous != 0 || rng().chance(850)) q.nonce = 1 + rng().below(1'000'000);
            q.hold = q.nonce;
            if (rng().chance(50)) q.closed_by = q.closed_mark = q.hold;
        }
        q.whole_lease = kind == command_kind::undo && rng().chance(300);
        q.undone = !q.whole_lease && rng().chance(300);
        q.lift = rng().chance(500);
        q.close_mark = 1 + rng().below(3);
        if (rng().chance(200))
            q.holder = {static_cast<std::uint16_t>(rng().below(2)), static_cast<std::uint16_t>(rng().below(3))};
        if (rng().chance(300)) q.key = {1 + rng().below(12), rng().below(2)};
        constexpr milliseconds ttls[] = {60s, 100s, 300s, 900s};
        q.ttl = rng().pick(ttls);
        if (rng().chance(300)) q.hint = simulated_.counter(first) + rng().below(5);
        if (rng().chance(10)) q.hint = (base_ / epoch_size + 1) * epoch_size;  // the epoch is used up
        if (rng().chance(600)) q.mark = 1 + rng().below(rng().chance(900) ? 4 : 40);
        if (rng().chance(300)) q.initial_mark = 1 + rng().below(4);
        q.renewals_max = rng().below(6);
        q.hold_max = rng().chance(800) ? 24h : milliseconds(rng().below(2'000'000));
        if (kind == command_kind::top_up) {
            q.key = {};
            q.initial_mark = 0;
            q.renewals = rng().below(3);
            if (rng().chance(200)) q.closed_by = q.hold, q.closed_mark = 1 + rng().below(3);
            q.held = milliseconds(rng().below(100'000));
        }
        return q;
    }
    /// Runs one to three commands of a kind in one call of the script.
    void run_commands(command_kind kind) {
        std::vector<request> asked{draw(kind)};
        while (asked.size() < 3 && rng().chance(200)) {
            asked.push_back(draw(kind));
            asked.back().run = asked.front().run;
        }
        std::vector<lockcore::redis::batch_item> items;
        last_ = "command " + std::to_string(static_cast<int>(kind)) + " ";
        for (const request& q : asked) {
            items.push_back({std::make_shared<single_call>(make_call(q, names_)), fencing_token{q.token}});
            last_ += "nonce " + std::to_string(q.nonce) + " previous " + std::to_string(q.previous) + " set " +
                     std::to_string(q.resources) + " tail " + items.back().target->call().tail + "; ";
        }
        const std::string run = asked.front().run == 77 ? "run-77" : name_of(admitted_);
        // The simulated node compares its marks at every command, a real one once in each 10 ms.
        real_.ask(lockcore::redis::resp_command().arg("HDEL").arg("fg:node").arg("compared").finish());
        const auto there = real_.ask(lockcore::redis::format_batch(kind, items, run, true));
        for (std::size_t i = 0; i < asked.size(); ++i) {
            request q = asked[i];
            q.kind = request_kind::lease;
            const node_reply here = simulated_.execute(q).lease;
            if (here.status == reply_status::not_admitted) {
                ASSERT_TRUE(text(there.get()).starts_with("UNINIT")) << last_ << text(there.get());
                continue;
            }
            ASSERT_EQ(there->type, REDIS_REPLY_ARRAY) << last_ << text(there.get());
            const node_reply real = lockcore::parse_reply(kind, text(there->element[i]));
            ++seen[static_cast<std::size_t>(here.status)];
            compare_answers(q, here, real, text(there->element[i]));
            if (testing::Test::HasFatalFailure()) return;
        }
        compare_release_messages();
    }
    void compare_answers(const request& asked, const node_reply& here, const node_reply& there,
                         const std::string& said) const {
        ASSERT_EQ(here.status, there.status) << last_ << said;
        // If several leases refuse the request, the node reports the one that lives longest by its own clock. Leases
        // that end at the same time on one node may not on the other.
        const bool several = here.status == reply_status::held && std::popcount(asked.resources) > 1;
        if (!several) {
            ASSERT_EQ(here.value, there.value) << last_ << said;
        }
        ASSERT_EQ(here.took_over, there.took_over) << last_ << said;
        ASSERT_EQ(here.notified_waiters, there.notified_waiters) << last_ << said;
        ASSERT_TRUE(is_close(here.remaining, there.remaining)) << last_ << said;
        ASSERT_TRUE(is_close(here.ttl, there.ttl)) << last_ << said;
        ASSERT_TRUE(is_close(here.held, there.held)) << last_ << said;
        const lease_parts simulated = split_lease(here.text, names_),
                          actual = split_lease(there.text, names_);  // a lease or its holds
        ASSERT_EQ(simulated.head, actual.head) << last_ << said;
        ASSERT_EQ(simulated.rest, actual.rest) << last_ << said;
    }
    void compare_release_messages() {
        std::vector<std::string> here, there;
        for (const release_message& w : simulated_.take_release_messages()) {
            here.push_back("fg:wake:" + hex16(w.mark) + ' ' +
                           std::string(lockcore::nonce::from_bits(0, w.ended).str()) + ' ' + names_[w.resource].str());
            const auto message = subscriber_.next();  // pattern, channel, text
            there.push_back(text(message->element[2]) + ' ' + text(message->element[3]));
        }
        std::sort(here.begin(), here.end());
        std::sort(there.begin(), there.end());
        ASSERT_EQ(here, there) << last_;
    }

    const std::vector<lockcore::resource_name>& names_;
    context ctx_;
    checkers check_;  ///< Its findings are ignored: random commands do not follow the protocol.
    sim_node simulated_;
    redis_connection real_, subscriber_;
    std::string live_, last_;
    run_number run_ = 0, admitted_ = 0;
    std::uint32_t claim_ = 0, claims_ = 0;
    node_marks marks_;
    std::string live_marks_ = "0 0 0";
    bool stale_marks_ = false;  ///< The next READMIT carries outdated marks.
    std::uint64_t base_ = 0, epoch_ = 1;
};

TEST(node_differential, simulated_node_matches_scripts_on_same_commands) {
    const fencegate::testing::redis_nodes redis(1);
    const auto names = make_names();
    std::array<std::uint64_t, lockcore::script_statuses> seen{};
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        two_nodes both(seed, redis.config().nodes[0].port, names);
        for (int i = 0; i < 400; ++i) {
            both.step();
            if (!HasFatalFailure()) both.compare();
            if (HasFatalFailure()) FAIL() << "seed " << seed << ", turn " << i;
        }
        for (std::size_t s = 0; s < seen.size(); ++s)
            seen[s] += both.seen[s];
    }
    for (std::size_t s = 0; s < seen.size(); ++s)
        EXPECT_GT(seen[s], 0U) << "no script answered " << to_string(static_cast<reply_status>(s));
}

}  // namespace
}  // namespace sim
