#pragma once

#include <proto/lease_rounds.hpp>

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

namespace lockcore {

/// The calls of one core that renew a lease for its holder (keep) or watch it, until each is answered.
///
/// Threads: not safe.
/// Limits:  ended_max leases that ended are remembered.
class kept_leases {
  public:
    static constexpr std::size_t ended_max = 256;

    kept_leases(core_context& ctx, lease_rounds& rounds) : ctx_(ctx), rounds_(rounds) {}

    void keep(input::keep what);
    void watch(input::watch what);
    /// The caller of this call no longer waits. Has no effect on another call.
    void cancel(call_id call);
    /// Wakes the calls of a lease that ended. `released`: its holder is known to have released it.
    void lease_ended(const nonce& ended, bool released);
    /// Wakes the calls of one hold, whose lease has other holds.
    void hold_released(const lease_claims& released);

  private:
    struct keep_call {
        call_id call{};
        kept_lease kept;
        std::string origin;
        bool cancelled = false, woken = false;
        bool sleeping = false;  ///< If not, a round is in progress.
        bool watches = false;   ///< It renews nothing.
        bool released = false;  ///< The holder is known to have released the lease.
        monotonic_time watched_until{};
        std::optional<result<lease>> seen;  ///< Of watch: what the latest round found.
        monotonic_time until{};
        timer_list::handle timer;
    };

    keep_call& add(call_id call, kept_lease kept);
    void sleep(keep_call& k, milliseconds delay);
    void sleep_until(keep_call& k, monotonic_time time);
    void resume(keep_call& k);
    void resume_keep(keep_call& k);
    void resume_watch(keep_call& k);
    /// Inspects the lease of a watch.
    void look(keep_call& k);
    template <class Outcome>
    void finish(keep_call& k, result<Outcome> outcome);
    void finish(keep_call& k, keep_step::outcome outcome, std::string reason);
    void wake(keep_call& k, bool released);

    core_context& ctx_;
    lease_rounds& rounds_;
    std::unordered_map<call_id, std::unique_ptr<keep_call>> calls_;
    std::multimap<std::string, keep_call*> by_lease_;  ///< By nonce.
    /// Leases that ended, the newest last, for a caller that is between two calls of keep().
    std::deque<nonce> ended_;
};

}  // namespace lockcore
