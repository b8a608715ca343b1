// Sends the same random commands to a real Redis server and to the one of tests/sim, and compares every answer and all
// data after each.
#include <proto/lease_record.hpp>
#include <redis/node_requests.hpp>
#include <redis/resp.hpp>
#include <redis/script_set.hpp>
#include <sim/differential/real_node.hpp>
#include <sim/differential/two_servers.hpp>
#include <sim/world/random.hpp>
#include <support/redis_nodes.hpp>

#include <gtest/gtest.h>

#include <map>

namespace sim {
namespace {

using lockcore::command_kind;
using lockcore::fencing_token;
using lockcore::lease_call;
using lockcore::redis::resp_command;
using namespace std::chrono_literals;

constexpr std::uint64_t epoch_size = std::uint64_t{1} << 32;

/// Draws commands, mostly with the values of leases that are there.
class random_commands {
  public:
    random_commands(std::uint64_t seed, two_servers& both, const std::vector<lockcore::resource_name>& names)
        : r_(seed), both_(both), names_(names) {}

    void step() {
        const std::uint32_t drawn = r_.below(1'000);
        if (drawn < 8) return both_.ask(resp_command().arg("FLUSHALL").finish());
        if (drawn < 18) return change_run();
        if (drawn < 50) return readmit();
        if (drawn < 55) return ask_node(lockcore::node_request::delete_admission{});
        if (drawn < 60) return both_.ask(resp_command().arg("SWAPDB").arg("1").arg("2").finish());
        if (drawn < 65) return change_setting();
        if (drawn < 70) return both_.ask(resp_command().arg("SCRIPT").arg("FLUSH").finish());
        if (drawn < 180) return advance_time();
        if (drawn < 300) return write_strange_value();
        if (drawn < 340) return both_.identify();
        if (drawn < 360) return ask_node(lockcore::node_request::mark{hex16(r_.next()) + hex16(r_.next())});
        if (drawn < 380) return read_leases();
        if (drawn < 400) return install_leases();
        run_batch(draw_kind());
    }

    std::map<std::string, int> seen;  ///< Answers by command and first word.

  private:
    // --- the node

    void change_run() {
        const std::string run = r_.chance(500) ? both_.run_id() : "another-run";
        both_.ask(resp_command().arg("HSET").arg("fg:node").arg("run").arg(run).finish());
    }
    /// Sends a request of a gateway.
    void ask_node(const lockcore::node_request::any& request) {
        for (const std::string& command : lockcore::redis::format_request(request))
            both_.ask(command);
    }
    std::string draw_run() { return r_.chance(900) ? both_.run_id() : "another-run"; }
    std::string draw_node_mark() { return r_.chance(800) ? both_.node_field("mark") : ""; }
    void readmit() {
        const std::string claim = hex16(r_.below(3));
        ask_node(lockcore::node_request::write_claim{claim});
        epoch_ += r_.below(2);
        lockcore::node_request::readmit request;
        request.run_id = draw_run();
        request.drawn = lockcore::epoch{epoch_};
        request.claim = r_.chance(800) ? both_.node_field("claim") : claim;
        request.marks = r_.chance(900) ? both_.marks() : "9 9 9";
        request.syncs_every_write = r_.chance(500);
        request.mark = r_.chance(500) ? draw_node_mark() : "";
        ask_node(request);
    }
    void install_leases() {
        lockcore::node_request::install request;
        request.run_id = draw_run();
        request.mark = draw_node_mark();
        for (const auto& name : draw_resources()) {
            const milliseconds left = r_.between(milliseconds{60s}, milliseconds{900s});
            const std::string shared = both_.shared_lease(name, r_.below(9));
            if (!shared.empty()) {
                const std::string nonce = shared.substr(0, lockcore::nonce::size);
                request.leases.push_back({name.str() + '\t' + nonce, left, shared});
            } else {
                request.leases.push_back({name.str(), left, r_.chance(800) ? both_.lease(name) : "text"});
            }
        }
        ask_node(request);
    }
    void read_leases() {
        lockcore::node_request::read_leases request;
        request.run_id = draw_run();
        if (r_.chance(500)) request.base = both_.node_field("base");
        request.cursor = "0";
        request.page_size = 200;
        both_.read_page(lockcore::redis::format_request(request).front());
    }
    void change_setting() {
        both_.ask(resp_command()
                      .arg("CONFIG")
                      .arg("SET")
                      .arg("appendfsync")
                      .arg(r_.chance(500) ? "always" : "everysec")
                      .finish());
    }
    /// Shortens all ttls, which has the effect of time that passes.
    void advance_time() {
        const milliseconds span = r_.between(milliseconds{1s}, milliseconds{200s});
        resp_command c;
        c.arg("EVAL")
            .arg(
                "local keys = redis.call('SCAN', '0', 'MATCH', 'fg:lease:*', 'COUNT', '100000')[2] "
                "for _, key in ipairs(keys) do local left = redis.call('PTTL', key) "
                "if left >= 0 then redis.call('PEXPIRE', key, left - ARGV[1]) end end")
            .arg("0");
        both_.ask(c.arg(static_cast<std::uint64_t>(span.count())).finish());
    }
    /// Writes what no gateway writes: other types, other texts, no ttl.
    void write_strange_value() {
        const auto& name = pick_name();
        if (r_.chance(20)) {  // not a hash
            both_.ask(resp_command().arg("SET").arg("fg:node").arg("text").finish());
            run_batch(draw_kind());
            both_.identify();
            return both_.ask(resp_command().arg("DEL").arg("fg:node").finish());
        }
        if (r_.chance(100)) {  // the last token of the epoch
            const std::string last_token = std::to_string((epoch_ + 1) * epoch_size - 1);
            both_.ask(
                resp_command().arg("SET").arg("fg:token:", std::uint64_t{name.bucket()}).arg(last_token).finish());
            return run_batch(r_.chance(500) ? command_kind::top_up : command_kind::acquire);
        }
        const std::string lease = "fg:lease:" + name.str();
        const std::string counter = "fg:token:" + std::to_string(name.bucket());
        const std::string& key = r_.chance(600) ? lease : counter;
        constexpr std::string_view texts[] = {"", "stranger", "12", "-5", "99999999999999999999", "1 2 3"};
        switch (r_.below(9)) {
            case 0:
                return both_.ask(resp_command().arg("SET").arg(key).arg(r_.pick(texts)).finish());
            case 1:
                return both_.ask(
                    resp_command().arg("SET").arg(key).arg(r_.pick(texts)).arg("PX").arg("90000").finish());
            case 2:
                both_.ask(resp_command().arg("DEL").arg(key).finish());
                return both_.ask(resp_command().arg("HSET").arg(key).arg("field").arg("value").finish());
            case 3:
                return both_.ask(resp_command().arg("PERSIST").arg(lease).finish());
            case 4:
                return both_.ask(resp_command().arg("APPEND").arg(key).arg(r_.pick(texts)).finish());
            case 5:
                return both_.ask(resp_command().arg("SET").arg(lease).arg(std::string(20'000, 'x')).finish());
            default:
                return both_.ask(resp_command().arg("DEL").arg(key).finish());
        }
    }

    // --- commands about leases

    const lockcore::resource_name& pick_name() { return names_[r_.below(static_cast<std::uint32_t>(names_.size()))]; }
    command_kind draw_kind() {
        constexpr command_kind drawn[] = {
            command_kind::acquire, command_kind::acquire, command_kind::acquire, command_kind::acquire,
            command_kind::confirm, command_kind::renew,   command_kind::renew,   command_kind::hold,
            command_kind::hold,    command_kind::inspect, command_kind::top_up,  command_kind::look,
            command_kind::release, command_kind::release, command_kind::undo,    command_kind::close,
            command_kind::list,
        };
        return r_.pick(drawn);
    }
    std::vector<lockcore::resource_name> draw_resources() {
        std::vector<lockcore::resource_name> out;
        for (const auto& name : names_) {
            if (r_.chance(300)) out.push_back(name);
        }
        if (out.empty()) out.push_back(pick_name());
        return out;
    }
    std::string draw_mark() { return hex16(1 + r_.below(r_.chance(900) ? 4 : 40)); }

    std::shared_ptr<single_call> draw_call(command_kind kind, fencing_token& token) {
        lease_call call;
        call.resources = draw_resources();
        lockcore::lease_claims claims;
        claims.holder.principal = "p" + std::to_string(r_.below(2));
        if (r_.chance(400)) claims.holder.owner = "o" + std::to_string(r_.below(2));
        call.attempt_id = lockcore::nonce::from_bits(0, 1 + r_.below(1'000'000));
        call.hold = lockcore::hold_id::of_grant(call.attempt_id);
        const lockcore::resource_name first = call.resources.front();
        std::uint64_t number = both_.counter(first);
        if (r_.chance(400)) call.shared = 1 + r_.below(static_cast<std::uint32_t>(call.resources.size()));
        const std::string shared_lease = both_.shared_lease(first, r_.below(9));
        const std::string known = shared_lease.empty() || r_.chance(200) ? both_.lease(first) : shared_lease;
        if (const auto there = lockcore::lease_record::parse(known); there && r_.chance(850)) {
            call.attempt_id = there->attempt_id;
            number = value_of(there->token);
            call.hold = lockcore::hold_id::of_grant(call.attempt_id);
            if (r_.chance(900)) claims.holder = there->holder;
            if (r_.chance(900)) {
                call.resources = all_resources(*there);
                call.shared = there->shared.size();
                if (call.resources.empty()) call.resources.push_back(first);
            }
        }
        if (r_.chance(400)) call.hold = lockcore::hold_id::from_bits(1 + r_.below(4));
        if (kind == command_kind::look) {
            call.resources.resize(1, first);
            call.shared = std::min<std::size_t>(call.shared, 1);
        }
        if (kind == command_kind::confirm || r_.chance(80)) number += r_.below(3);
        if (r_.chance(50) && number > 1) --number;
        token = fencing_token{number};
        if (kind == command_kind::acquire) {
            if (call.shared == 0 && r_.chance(350)) call.previous = call.attempt_id;
            call.previous_hold = call.hold;
            if (call.previous || r_.chance(850))
                call.attempt_id = lockcore::nonce::from_bits(0, 1 + r_.below(1'000'000));
            call.hold = lockcore::hold_id::of_grant(call.attempt_id);
        }
        constexpr milliseconds ttls[] = {60s, 100s, 300s, 900s};
        // The script ends with an error, after the commands in front of this one had their effect.
        const bool is_error = kind != command_kind::top_up && r_.chance(kind == command_kind::acquire ? 60 : 10);
        call.ttl = is_error ? 0ms : r_.pick(ttls);  // TOP-UP makes 1 ms of 0
        claims.attempt_id = call.attempt_id;
        const auto exclusive = static_cast<std::ptrdiff_t>(call.resources.size() - call.shared);
        claims.resources.assign(call.resources.begin(), call.resources.begin() + exclusive);
        claims.shared.assign(call.resources.begin() + exclusive, call.resources.end());
        claims.hold = call.hold;
        const std::string key = r_.chance(300) ? hex16(1 + r_.below(12)) + hex16(r_.below(2)).substr(8) : "";
        const std::string initial_mark = kind != command_kind::top_up && r_.chance(300) ? draw_mark() : "";
        const std::string closed = r_.chance(80) ? std::string(call.hold.str()) + draw_mark() : "";
        const bool topped_up = kind == command_kind::top_up;
        call.tail = lockcore::lease_tail(
            claims, {call.ttl, topped_up ? r_.below(3) : 0, milliseconds(topped_up ? r_.below(100'000) : 0),
                     topped_up ? std::string_view() : key, initial_mark, closed});
        call.key = key;
        if (r_.chance(600)) call.wake_mark = draw_mark();
        if (r_.chance(300)) call.hint = fencing_token{both_.counter(first) + r_.below(5)};
        if (r_.chance(10)) call.hint = fencing_token{(epoch_ + 1) * epoch_size};  // the epoch is used up
        call.renewals_max = r_.below(6);
        call.hold_max = r_.chance(800) ? milliseconds(24h) : milliseconds(r_.below(2'000'000));
        using scope = lockcore::release_scope;
        constexpr scope scopes[] = {scope::hold, scope::hold, scope::whole_lease, scope::undone_hold};
        call.scope = r_.pick(scopes);
        call.close_mark = draw_mark();
        call.lift = r_.chance(500);
        if (r_.chance(600)) call.seen = both_.version(first);
        call.cursor = "0";
        constexpr std::string_view patterns[] = {"fg:lease:*", "fg:lease:d[0-9]*", "fg:lease:alone", "fg:lease:\\*"};
        call.pattern = r_.pick(patterns);
        return std::make_shared<single_call>(std::move(call));
    }
    /// Runs one to three commands of a kind in one call of the script.
    void run_batch(command_kind kind) {
        std::vector<lockcore::batch_item> items;
        do {
            fencing_token token{};
            auto call = draw_call(kind, token);
            items.push_back({std::move(call), token});
        } while (items.size() < 3 && r_.chance(250));
        const std::string run = r_.chance(980) ? both_.node_field("run") : "run-77";
        for (const std::string& answer : both_.run_batch(kind, items, run, r_.chance(500)))
            ++seen[std::to_string(static_cast<int>(kind)) + ' ' + answer.substr(0, answer.find(' '))];
    }

    random r_;
    two_servers& both_;
    const std::vector<lockcore::resource_name>& names_;
    std::uint64_t epoch_ = 1;
};

TEST(node_differential, simulated_server_answers_like_redis) {
    const fencegate::testing::redis_nodes redis(1);
    const auto names = make_names();
    std::map<std::string, int> seen;
    for (std::uint64_t seed = 1; seed <= 30; ++seed) {
        two_servers both(redis.config().nodes[0].port);
        random_commands commands(seed, both, names);
        for (int i = 0; i < 400; ++i) {
            commands.step();
            if (!HasFatalFailure()) both.compare_data();
            if (HasFatalFailure()) FAIL() << "seed " << seed << ", turn " << i;
        }
        for (const auto& [answer, count] : commands.seen)
            seen[answer] += count;
    }
    // By command_kind: what each script can answer.
    const std::map<command_kind, std::string> expected = {
        {command_kind::renew, "0 2 5 UNINIT NOSCRIPT"},
        {command_kind::hold, "0 2 5 UNINIT"},
        {command_kind::top_up, "0 1 2 4 E UNINIT"},
        {command_kind::close, "0 2 7 UNINIT"},
        {command_kind::release, "0 2 UNINIT"},
        {command_kind::undo, "0 2 UNINIT"},
        {command_kind::acquire, "0 1 4 6 7 E ERR UNINIT"},
        {command_kind::confirm, "0 2 3 E UNINIT"},
        {command_kind::inspect, "0 2 UNINIT"},
        {command_kind::look, "0 2 UNINIT"},
        {command_kind::list, "0 UNINIT"},
    };
    for (const auto& [kind, answers] : expected) {
        for (std::size_t at = 0; at < answers.size(); at = std::min(answers.find(' ', at), answers.size() - 1) + 1) {
            const std::string answer =
                std::to_string(static_cast<int>(kind)) + ' ' + answers.substr(at, answers.find(' ', at) - at);
            EXPECT_GT(seen[answer], 0) << "command " << answer << " was never answered";
        }
    }
}

}  // namespace
}  // namespace sim
