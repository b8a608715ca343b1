#pragma once

#include <proto/core.hpp>

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <tests/support/no_secrets.hpp>

namespace lockcore {

using namespace std::chrono_literals;

inline node_facts admitted_node(std::uint64_t base, std::uint64_t floor = 0) {
    node_facts f;
    f.run_id = f.admitted_run_id = "run";
    f.role = "master";
    f.maxmemory_policy = "noeviction";
    f.claim = "claim";
    f.kept_unsynced = true;
    f.admitted_epoch = epoch{base};
    f.floor_epoch = epoch{floor};
    return f;
}

/// A core with five nodes, whose answers the test gives.
class core_of_five_nodes : public testing::Test {
  protected:
    core_of_five_nodes() {
        for (int n = 0; n < 5; ++n)
            settings_.nodes.push_back({"n" + std::to_string(n), "127.0.0.1", 1, {}, {}, {}, {}});
        core_ = std::make_unique<core>(core::services{settings_, secrets_, secrets_});
        facts_.fill(admitted_node(7));
        reply_all(reply_status::ok);
        step(input::start{});
    }

    /// Performs a step and the actions that follow from it, until there are none.
    template <class Input>
    void step(Input what) {
        perform(core_->step(core_input(std::move(what)), clocks()));
        while (core_->needs_flush())
            perform(core_->step(core_input(input::flush{}), clocks()));
    }
    step_time clocks() const { return {now_, validity_time(now_.time_since_epoch()), {}}; }
    void perform(std::vector<core_action> actions) {
        for (core_action& a : actions)
            std::visit([this](auto& one) { act(one); }, a);
    }
    void act(action::open_connection& a) {
        connections_[value_of(a.node)] = a.connection;
        step(input::connected{a.node, a.connection});
    }
    void act(action::ask_node& a) {
        node_response::any response = node_response::text{"OK", ""};
        node_facts& facts = facts_[value_of(a.node)];
        if (std::holds_alternative<node_request::identify>(a.request)) {
            node_response::identified found;
            found.facts = facts;
            found.facts.run_id += std::to_string(value_of(a.node));
            if (!found.facts.admitted_run_id.empty()) found.facts.admitted_run_id = found.facts.run_id;
            found.has_record = true;
            response = std::move(found);
        } else if (const auto* readmitted = std::get_if<node_request::readmit>(&a.request)) {
            facts.admitted_run_id = readmitted->run_id;
            facts.admitted_epoch = readmitted->drawn;
        } else if (const auto* marked = std::get_if<node_request::mark>(&a.request)) {
            response = node_response::text{facts.run_id + std::to_string(value_of(a.node)) + ' ' + marked->digits, ""};
        } else if (std::holds_alternative<node_request::read_leases>(a.request)) {
            read_.push_back(value_of(a.node));
            const bool is_readable = !unreadable_[value_of(a.node)] && !facts.admitted_run_id.empty();
            response = node_response::lease_page{"1", "0", {}, is_readable ? "" : "UNINIT"};
        } else if (std::holds_alternative<node_request::announce>(a.request)) {
            response = node_response::text{announced_[value_of(a.node)], ""};
        }
        step(input::node_answered{a.node, a.connection, std::move(response)});
    }
    void act(action::send_batch& a) {
        if (a.kind == command_kind::undo) undone_.set(value_of(a.node));
        if (a.kind == command_kind::acquire) hint_ = std::max(hint_, a.items.front().target->call().hint);
        answer_batch(a);
    }
    virtual void answer_batch(const action::send_batch& a) {
        step(input::batch_answered{a.node, a.connection, a.batch, std::vector(a.items.size(), reply_to(a)), ""});
    }
    virtual node_reply reply_to(const action::send_batch& a) {
        node_reply reply;
        reply.status = reply_status::ok;
        if (a.kind != command_kind::acquire) return reply;
        reply = replies_[value_of(a.node)];
        if (reply.value == 0) reply.value = value_of(a.items.front().target->call().hint);
        return reply;
    }
    void act(action::ask_register& a) {
        register_response response = record_;
        if (const auto* draw = std::get_if<register_request::draw>(&a.asked)) {
            seen_.push_back(value_of(draw->request.highest_observed));
            response = drawn_epoch{epoch{seen_.back() + 1}, false};
        }
        step(input::register_answered{a.request, std::move(response)});
    }
    void act(action::answer& a) {
        answers_.insert_or_assign(a.call, a.result);
        if (auto* granted = std::get_if<result<lease>>(&a.result)) lease_ = std::move(*granted);
        if (auto* announced = std::get_if<result<floor_announcement>>(&a.result)) outcome_ = std::move(*announced);
    }
    template <class Other>
    void act(Other&) {}

    void reply_all(reply_status status, std::uint64_t value = 0) {
        for (std::size_t n = 0; n < 5; ++n)
            reply_with(n, status, value);
    }
    void reply_with(std::size_t n, reply_status status, std::uint64_t value = 0) {
        replies_[n].status = status;
        replies_[n].value = value;
    }
    static acquire_request make_request(milliseconds ttl = 1s) {
        acquire_request request;
        request.resources = {resource_name::parse("r").value()};
        request.holder.principal = "p";
        request.ttl = ttl;
        return request;
    }
    static acquire_request request_of_named_owner(milliseconds ttl = 1s) {
        acquire_request request = make_request(ttl);
        request.holder.owner = "me";
        return request;
    }
    bool acquire(acquire_request request = make_request()) {
        lease_.reset();
        step(input::acquire{call_id{++calls_}, std::move(request)});
        return lease_ && lease_->has_value();
    }
    void pass(milliseconds time) {
        now_ += time;
        step(input::timer{});
    }
    /// Lets each node be identified again.
    void review() {
        now_ += 6s;
        step(input::tick{});
        step(input::timer{});
    }
    node_status status(std::size_t n) { return core_->status(static_cast<node_index>(n)); }

    config settings_;
    no_secrets secrets_;
    std::unique_ptr<core> core_;
    monotonic_time now_{1h};
    std::array<connection_number, 5> connections_{};
    std::array<node_facts, 5> facts_;
    std::array<node_reply, 5> replies_;
    std::array<std::string, 5> announced_{"ADMITTED", "ADMITTED", "ADMITTED", "ADMITTED", "ADMITTED"};
    node_record record_;
    std::vector<std::uint64_t> seen_;  ///< What was passed to each draw.
    std::vector<std::size_t> read_;    ///< The nodes of which leases were read.
    node_set undone_, unreadable_;
    fencing_token hint_{};  ///< The highest that was sent.
    std::optional<result<lease>> lease_;
    std::optional<result<floor_announcement>> outcome_;
    std::unordered_map<call_id, call_result> answers_;
    std::uint64_t calls_ = 0;
};

}  // namespace lockcore
