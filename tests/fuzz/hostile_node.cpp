// What hostile and broken nodes answer to a whole core: to its questions about the node,
// to the commands of leases, and in their messages of leases that ended.
// The core makes a fixed series of calls in a virtual time.
//
// The first byte of the input is a set of bits, one for each hostile node.
// Then each answer of such a node takes a line:
//   empty       what an honest node answers
//   ~           the connection breaks
//   .           no answer, and none to what follows on this connection: a connection answers in order
//   +text -text :number   one reply of Redis, or for several commands the same to each
//   *a|b|:1     a list; `\n` and `\r\n` in a text are written `^` and `%`
//   !text       a message of a lease that ended, before the answer in the next line
// Without a line left a node does not answer.
#include "fuzz.hpp"

#include <proto/core.hpp>
#include <proto/epochs.hpp>
#include <redis/node_requests.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <tests/support/no_secrets.hpp>

namespace fencegate::fuzz {
namespace {

using namespace lockcore;
using namespace std::chrono_literals;
using lockcore::redis::reply;

constexpr std::size_t nodes = 3;
constexpr epoch honest_epoch{7};

reply text_reply(std::string text) {
    return {reply::kind::text, std::move(text), 0, {}};
}
reply list_reply(std::vector<reply> elements) {
    return {reply::kind::array, {}, 0, std::move(elements)};
}

std::string unescape(std::string_view text) {
    std::string out;
    for (const char c : text)
        out += c == '%' ? "\r\n" : c == '^' ? "\n" : std::string(1, c);
    return out;
}

/// Reads a reply as the lines of the input have it.
reply read_reply(std::string_view text) {
    if (text.starts_with('-')) return {reply::kind::error, unescape(text.substr(1)), 0, {}};
    if (text.starts_with(':')) {
        reply out{reply::kind::number, {}, 0, {}};
        std::from_chars(text.data() + 1, text.data() + text.size(), out.number);
        return out;
    }
    if (!text.starts_with('*')) return text_reply(unescape(text.starts_with('+') ? text.substr(1) : text));
    reply out = list_reply({});
    for (text.remove_prefix(1); !text.empty();) {
        const std::string_view element = take_until(text, '|');
        out.elements.push_back(element.starts_with('*') ? list_reply({}) : read_reply(element));
    }
    return out;
}

/// What an honest node answers, which keeps no leases but one counter.
class honest_node {
  public:
    std::vector<reply> answer(const node_request::any& request, std::size_t commands, std::size_t node) {
        if (const auto* asked = std::get_if<node_request::identify>(&request)) return identify(*asked, node);
        if (std::holds_alternative<node_request::read_leases>(request))
            return {list_reply({text_reply("1"), text_reply("0")})};
        if (const auto* asked = std::get_if<node_request::mark>(&request))
            return {text_reply(run_id(node) + " " + asked->digits)};
        if (std::holds_alternative<node_request::announce>(request)) return {text_reply("ADMITTED")};
        return std::vector<reply>(commands, text_reply("OK"));
    }
    reply answer(const action::send_batch& batch) {
        reply out = list_reply({});
        for (const batch_item& item : batch.items)
            out.elements.push_back(text_reply(answer(batch.kind, item.target->call())));
        return out;
    }

  private:
    static std::string run_id(std::size_t node) { return "run" + std::to_string(node); }

    static std::vector<reply> identify(const node_request::identify&, std::size_t node) {
        const std::string id = run_id(node);
        const std::string base = std::to_string(value_of(honest_epoch) * tokens_per_epoch);
        const reply scripts = list_reply(std::vector<reply>(command_kinds, reply{reply::kind::number, {}, 1, {}}));
        reply record = list_reply({text_reply("0 0 0"), text_reply(id), text_reply(base), text_reply("claim"),
                                   text_reply("0 0 0"), text_reply("0"), text_reply("no"), text_reply("")});
        reply info = text_reply("redis_version:7.0.15\r\nredis_mode:standalone\r\nrun_id:" + id +
                                "\r\nrole:master\r\nmaxmemory_policy:noeviction\r\nevicted_keys:0\r\n");
        return {scripts,        scripts,        std::move(record), std::move(info),
                list_reply({}), list_reply({}), list_reply({}),    text_reply("")};
    }

    std::string answer(command_kind kind, const lease_call& call) {
        switch (kind) {
            case command_kind::acquire:
                counter_ = std::max(counter_ + 1, value_of(call.hint));
                return "0 " + std::to_string(counter_);
            case command_kind::renew:
            case command_kind::hold:
                return "0 1 10 " + std::string(call.hold.str()) + "\n\n";
            case command_kind::top_up:
                return "0 1 1";
            case command_kind::inspect:
                return "0 9000 1 10000 " + std::string(call.hold.str()) + "\n\n";
            case command_kind::release:
            case command_kind::undo:
                return "0 0";
            case command_kind::look:
                return "2";
            case command_kind::list:
                return "0 0";
            case command_kind::confirm:
            case command_kind::close:
                break;
        }
        return "0";
    }

    std::uint64_t counter_ = value_of(honest_epoch) * tokens_per_epoch;
};

class world {
  public:
    explicit world(std::string_view input) : lines_(input) {
        if (!input.empty()) hostile_ = static_cast<unsigned char>(input.front()) % (1U << nodes);
        lines_.remove_prefix(std::min<std::size_t>(input.size(), 1));
        // Short times, so that few ticks pass.
        settings_.node_dead_after = 400ms;
        settings_.default_ttl = settings_.max_ttl = 1s;
        for (std::size_t n = 0; n < nodes; ++n)
            settings_.nodes.push_back({"n" + std::to_string(n), "127.0.0.1", 1, {}, {}, {}, {}});
        core_.emplace(core::services{settings_, secrets_, secrets_});
    }

    void run() {
        step(input::start{});
        acquire("a", 1s, 0ms, "");
        acquire("a", 1s, 300ms, "key");
        pass(150ms);
        call(input::find_lease{{}, resource("a"), std::nullopt});
        call(input::list{{}, node_index{0}, "0", "fg:lease:*"});
        call(input::announce_floor{{}, {epoch{1'100}, "change"}});
        pass(150ms);
        for (const lease& held : std::vector(granted_)) {
            call(input::renew{{}, held.claims, 700ms, ""});
            call(input::inspect{{}, held.claims});
            call(input::close_to_new_holds{{}, held.claims});
            call(input::keep{{}, kept_lease(held), ""});
            call(input::watch{{}, held.claims, milliseconds{500}});
        }
        pass(400ms);
        acquire("b", 200ms, 100ms, "");
        call(input::cancel_request{{}, make_request("a", 1s, 300ms, "key")});
        for (const lease& held : std::vector(granted_))
            call(input::release{{}, held.claims, ""});
        pass(900ms);  // longer than any wait, ttl and quarantine
        require(unanswered_.empty(), "each call is answered, whatever nodes answer");
        step(input::stop{});
    }

  private:
    static resource_name resource(const char* name) { return resource_name::parse(name).value(); }

    static acquire_request make_request(const char* name, milliseconds ttl, milliseconds wait, const char* key) {
        acquire_request request;
        request.resources = {resource(name)};
        request.holder = {"orders", "worker"};
        request.ttl = ttl;
        request.wait = wait;
        request.idempotency_key = key;
        return request;
    }

    void acquire(const char* name, milliseconds ttl, milliseconds wait, const char* key) {
        call(input::acquire{{}, make_request(name, ttl, wait, key)});
    }

    template <class Input>
    void call(Input what) {
        what.call = call_id{++calls_};
        unanswered_.insert(what.call);
        step(std::move(what));
    }

    /// Performs a step and all that follows at once.
    template <class Input>
    void step(Input what) {
        inputs_.emplace_back(std::move(what));
        while (!inputs_.empty() || core_->needs_flush()) {
            if (inputs_.empty()) inputs_.emplace_back(input::flush{});
            core_input next = std::move(inputs_.front());
            inputs_.pop_front();
            const step_time now{monotonic_time{now_}, validity_time{now_}, wall_time{now_}};
            for (core_action& a : core_->step(std::move(next), now))
                std::visit([this](auto& one) { this->act(one); }, a);
        }
    }

    /// Lets time pass: ticks, and timers when they are due.
    void pass(milliseconds length) {
        const auto end = now_ + length;
        auto next_tick = now_ + tick_;
        while (now_ < end) {
            const auto timer = core_->next_timer();
            const auto due = timer ? std::max(timer->time_since_epoch(), now_) : std::chrono::nanoseconds::max();
            now_ = std::min({due, next_tick, std::chrono::nanoseconds(end)});
            if (now_ == due) step(input::timer{});
            if (now_ != next_tick) continue;
            step(input::tick{});
            next_tick += tick_;
        }
    }

    bool is_hostile(node_index node) const { return (hostile_ >> value_of(node) & 1U) != 0; }

    /// Takes the next line of the input for a hostile node. Out: empty if it does not answer.
    std::optional<std::string_view> take_answer(node_index node, connection_number connection) {
        while (lines_.starts_with('!')) {
            const reply message = list_reply(
                {text_reply("message"), text_reply("fg:wake:x"), text_reply(unescape(take_line(lines_).substr(1)))});
            if (const auto end = redis::parse_lease_end(message))
                inputs_.emplace_back(input::lease_ended{node, end->ended, std::string(end->resource), end->revoked});
        }
        if (lines_.empty() || silent_[value_of(node)]) return std::nullopt;
        const std::string_view line = take_line(lines_);
        if (line == ".") {
            silent_[value_of(node)] = true;
            return std::nullopt;
        }
        if (line != "~") return line;
        inputs_.emplace_back(input::disconnected{node, connection, "broken"});
        return std::nullopt;
    }

    void act(action::open_connection& a) {
        silent_[value_of(a.node)] = false;
        inputs_.emplace_back(input::connected{a.node, a.connection});
    }

    void act(action::ask_node& a) {
        const std::size_t commands = redis::format_request(a.request).size();
        honest_node& node = honest_[value_of(a.node)];
        std::vector<reply> replies;
        if (is_hostile(a.node)) {
            // One line for each command, so that some of them may be honest.
            const std::vector<reply> honest = node.answer(a.request, commands, value_of(a.node));
            for (std::size_t i = 0; i < commands; ++i) {
                const auto line = take_answer(a.node, a.connection);
                if (!line) return;
                replies.push_back(line->empty() ? honest[i] : read_reply(*line));
            }
        } else {
            replies = node.answer(a.request, commands, value_of(a.node));
        }
        inputs_.emplace_back(input::node_answered{a.node, a.connection, redis::parse_response(a.request, replies)});
    }

    void act(action::send_batch& a) {
        reply answer = honest_[value_of(a.node)].answer(a);
        if (is_hostile(a.node)) {
            const auto line = take_answer(a.node, a.connection);
            if (!line) return;
            if (!line->empty()) answer = read_reply(*line);
        }
        auto parsed = redis::parse_batch(a.kind, answer);
        inputs_.emplace_back(
            input::batch_answered{a.node, a.connection, a.batch, std::move(parsed.replies), std::move(parsed.error)});
    }

    void act(action::ask_register& a) {
        register_response response = node_record{};
        if (const auto* draw = std::get_if<register_request::draw>(&a.asked)) {
            highest_drawn_ = std::max(highest_drawn_, value_of(draw->request.highest_observed)) + 1;
            response = drawn_epoch{epoch{highest_drawn_}, false};
        } else if (std::holds_alternative<register_request::note_unsynced>(a.asked)) {
            response = std::monostate{};
        }
        inputs_.emplace_back(input::register_answered{a.request, std::move(response)});
    }

    void act(action::answer& a) {
        require(unanswered_.erase(a.call) == 1, "a call is answered once");
        if (auto* outcome = std::get_if<result<lease>>(&a.result); outcome != nullptr && *outcome) check(**outcome);
    }

    template <class Other>
    void act(Other&) {}

    void check(const lease& held) {
        require(held.validity <= held.ttl && held.validity >= 0ms, "a lease is valid for its ttl at most");
        require(held.nodes_granted <= nodes && held.hold_count >= 1 && held.hold_count <= 64 * nodes,
                "a lease has bounded numbers");
        const std::uint64_t token = value_of(held.claims.token);
        require(token > 0 && token <= fencing_token_max, "a token is below 2^53");
        const bool one_is_hostile = (hostile_ & (hostile_ - 1)) == 0;
        require(!one_is_hostile || value_of(epoch_of(held.claims.token)) <= value_of(honest_epoch) + 4 * epoch_lead_max,
                "one node does not use up the epochs");
        granted_.push_back(held);
        if (granted_.size() > 4) granted_.erase(granted_.begin());
    }

    std::string_view lines_;
    unsigned hostile_ = 0;
    config settings_;
    no_secrets secrets_;
    std::optional<core> core_;
    std::array<honest_node, nodes> honest_;
    std::array<bool, nodes> silent_{};
    std::deque<core_input> inputs_;
    std::chrono::nanoseconds now_{1h};
    const std::chrono::nanoseconds tick_ = core::tick_length(settings_);
    std::set<call_id> unanswered_;
    std::vector<lease> granted_;
    std::uint64_t calls_ = 0, highest_drawn_ = value_of(honest_epoch);
};

}  // namespace

void run_input(std::string_view input) {
    world(input).run();
}

}  // namespace fencegate::fuzz
