#pragma once

#include <lockcore/authenticator.hpp>
#include <lockcore/config.hpp>
#include <lockcore/random_source.hpp>
#include <proto/core_io.hpp>
#include <proto/timer_list.hpp>

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lockcore {

/// What the parts of a core share: the settings, the time of the step, and what the step does.
struct core_context {
    core_context(const config& s, const authenticator& m, random_source& r) : settings(s), mac(m), random(r) {}

    const config& settings;
    const authenticator& mac;
    random_source& random;

    /// Returns the interval of ticks. Timeouts of nodes are counted in ticks, so that time in which this process does not
    /// run (a busy machine, a paused virtual machine), and reads no answers, does not count. A timeout is late by
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
    void record(event what) { act(action::record{std::move(what)}); }
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

/// A decision, made once, on which one function acts.
class one_time_event {
  public:
    explicit one_time_event(core_context& ctx) : ctx_(ctx) {}
    bool has_fired() const { return fired_; }
    /// `owner`: has this event as a member, and is kept until the function has run.
    void fire(std::shared_ptr<const void> owner) {
        if (!std::exchange(fired_, true) && then_) call(std::exchange(then_, nullptr), std::move(owner));
    }
    /// In: `f` must not own `owner`, which would keep itself alive.
    void then(std::function<void()> f, std::shared_ptr<const void> owner) {
        if (fired_) {
            call(std::move(f), std::move(owner));
        } else {
            then_ = std::move(f);
        }
    }

  private:
    void call(std::function<void()> f, std::shared_ptr<const void> owner) {
        ctx_.call_at_flush([f = std::move(f), owner = std::move(owner)] { f(); });
    }

    core_context& ctx_;
    bool fired_ = false;
    std::function<void()> then_;
};

}  // namespace lockcore
