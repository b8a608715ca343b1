#pragma once

#include <lockcore/config.hpp>
#include <lockcore/secrets.hpp>
#include <lockcore/types.hpp>
#include <proto/core_io.hpp>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lockcore {

/// Functions to be called at given times. Those of one time are called in the order in which they were set.
///
/// Threads: not safe.
class timer_list {
  public:
    /// Identifies a timer that is set; the default value identifies none.
    struct handle {
        monotonic_time at{};
        std::uint64_t number = 0;
        // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 takes the 0 of the generated comparison for a pointer
        friend auto operator<=>(const handle&, const handle&) = default;
    };

    handle set(monotonic_time at, std::function<void()> action) {
        const handle h{at, ++last_};
        timers_.emplace(h, std::move(action));
        return h;
    }
    /// Has no effect if the function was called already.
    void cancel(const handle& h) { timers_.erase(h); }
    /// Returns when the next function is due; empty if none is set.
    std::optional<monotonic_time> next() const {
        if (timers_.empty()) return std::nullopt;
        return timers_.begin()->first.at;
    }
    /// Calls the functions that are due. A function may set and cancel timers.
    void run_due(monotonic_time now) {
        while (!timers_.empty() && timers_.begin()->first.at <= now) {
            const auto due = timers_.extract(timers_.begin());
            due.mapped()();
        }
    }

  private:
    std::map<handle, std::function<void()>> timers_;
    std::uint64_t last_ = 0;
};

/// What the parts of a core share: the settings, the time of the step, and what the step does.
struct core_context {
    core_context(const config& s, const authenticator& m, random_source& r) : settings(s), mac(m), random(r) {}

    const config& settings;
    const authenticator& mac;
    random_source& random;

    /// Returns the interval of ticks. Timeouts of nodes are counted in ticks, so that time in which this process does
    /// not run (a busy machine, a paused virtual machine), and reads no answers, does not count. A timeout is late by
    /// less than two ticks.
    static milliseconds tick_length(const config& cfg) {
        return std::clamp(cfg.node_timeout / 8, milliseconds{2}, milliseconds{25});
    }

    step_time now{};
    /// The highest epoch that the register is known to have drawn, or that the tokens of a majority of the nodes have.
    /// No claim of a single node raises it.
    epoch known_epoch{};
    void learn_epoch(epoch e) { known_epoch = std::max(known_epoch, e); }
    std::vector<core_action> actions;  ///< Of this step, in order.
    timer_list timers;
    bool needs_flush = false;

    /// Calls the function at the next flush. Decisions are acted upon then, so that the answers of other nodes that
    /// arrived at the same time are known too.
    void call_at_flush(std::function<void()> f) {
        at_flush_.push_back(std::move(f));
        needs_flush = true;
    }
    /// Returns whether there were any.
    bool run_flush_calls() {
        const auto decided = std::exchange(at_flush_, {});
        for (const auto& f : decided)
            f();
        return !decided.empty();
    }
    /// Calls the function at the end of this step, so that no part of the core is changed while it takes an answer.
    void call_at_step_end(std::function<void()> f) { at_step_end_.push_back(std::move(f)); }
    void run_step_end_calls() {
        while (!at_step_end_.empty()) {
            const auto next = std::move(at_step_end_.front());
            at_step_end_.pop_front();
            next();
        }
    }

    template <class Action>
    void act(Action what) {
        actions.emplace_back(std::in_place_type<Action>, std::move(what));
    }
    template <class Result>
    void answer(call_id call, Result outcome) {
        act(action::answer{call, call_result(std::move(outcome))});
    }
    void record(event what) { act(action::record{std::move(what)}); }
    /// Returns an event of this time about a lease.
    event make_event(event_kind kind, const lease_claims& claims, const std::string& origin, std::string detail,
                     milliseconds ttl) const {
        event e;
        e.kind = kind;
        e.at = now.wall;
        e.resources = all_resources(claims);
        e.shared = claims.shared.size();
        e.token = claims.token;
        e.attempt_id = claims.attempt_id;
        e.actor = claims.holder;
        e.origin = origin;
        e.detail = std::move(detail);
        e.ttl = ttl;
        e.granted_at = claims.granted_at;
        return e;
    }
    /// Returns the time left of a validity, which may be negative.
    milliseconds remaining_until(validity_time end) const {
        return std::chrono::floor<milliseconds>(end - now.validity);
    }
    request_number next_request() { return request_number{++last_request_}; }

    using register_continuation = std::function<void(register_response)>;
    void ask_register(register_request::any asked, register_continuation then) {
        const request_number request = next_request();
        register_requests_.emplace(request, std::move(then));
        act(action::ask_register{request, std::move(asked)});
    }
    void register_answered(input::register_answered answer) {
        auto found = register_requests_.extract(answer.request);
        if (found) found.mapped()(std::move(answer.response));
    }

  private:
    std::vector<std::function<void()>> at_flush_;
    std::deque<std::function<void()>> at_step_end_;
    std::unordered_map<request_number, register_continuation> register_requests_;
    std::uint64_t last_request_ = 0;
};

/// The decision of an attempt, made once, and the continuation that acts on it. The attempt has this as a member, and
/// so owns its continuation; it is passed to it, and is kept until it has run.
template <class Attempt>
class decision {
  public:
    using continuation = std::function<void(Attempt&)>;

    explicit decision(core_context& ctx) : ctx_(ctx) {}
    bool is_made() const { return made_; }
    void make(std::shared_ptr<Attempt> attempt) {
        if (!std::exchange(made_, true) && then_) call(std::exchange(then_, nullptr), std::move(attempt));
    }
    /// `then`: is called once, at a flush after the decision.
    void then(std::shared_ptr<Attempt> attempt, continuation then) {
        if (made_) {
            call(std::move(then), std::move(attempt));
        } else {
            then_ = std::move(then);
        }
    }

  private:
    void call(continuation then, std::shared_ptr<Attempt> attempt) {
        ctx_.call_at_flush([then = std::move(then), attempt = std::move(attempt)] { then(*attempt); });
    }

    core_context& ctx_;
    bool made_ = false;
    continuation then_;
};

}  // namespace lockcore
