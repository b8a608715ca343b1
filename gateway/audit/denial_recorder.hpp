#pragma once

#include <gateway/audit/event_sink.hpp>
#include <gateway/http/message.hpp>

#include <boost/asio/io_context.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>

namespace fencegate::audit {

/// Decides which denials become events of their own, so that a flood of them fills neither the history nor the buffer
/// of events: of each caller and problem the first stored_max within `window`. The others are counted.
///
/// Threads: one at a time.
/// Limits:  groups_max pairs of principal and problem, and as many of address and problem; further ones count together
///          as `others`, for each problem.
class denial_sampler {
  public:
    using time_point = std::chrono::system_clock::time_point;
    static constexpr std::chrono::seconds window{60};
    static constexpr std::uint64_t stored_max = 5;
    static constexpr std::size_t groups_max = 250;

    /// The denials that are counted together. Exactly one of `principal` and `address` is given.
    struct group {
        std::string principal;  ///< The authenticated caller.
        std::string address;    ///< The address of a caller that is not authenticated.
        std::string problem;    ///< The slug.
        unsigned status = 0;
        friend bool operator<(const group& a, const group& b) {
            return std::tie(a.principal, a.address, a.problem, a.status) <
                   std::tie(b.principal, b.address, b.problem, b.status);
        }
    };
    /// The denials of one window that have no event of their own.
    struct left_out {
        group denied;  ///< With neither principal nor address: of several callers.
        std::uint64_t count = 0;
        time_point from, to;  ///< Of the first and of the last.
    };

    /// Counts a denial. Out: whether it is to be stored as an event of its own.
    bool admit(const group& denied, time_point now);
    /// Counts a denial as left out, because the event for which it was admitted could not be stored.
    void leave_out(const group& denied, time_point now);
    /// Ends the windows that are over; with time_point::max() every window. Passes those with denials that were left
    /// out to `store`; where that returns false, the window stays.
    void end_windows(time_point now, const std::function<bool(const left_out&)>& store);

  private:
    struct counts {
        time_point begun;
        std::uint64_t stored = 0;
        left_out rest;
    };
    using windows = std::map<group, counts>;

    counts& counts_of(const group& denied, time_point now);

    windows principals_, addresses_, others_;
};

/// Adds request_denied to the history for requests that were answered 401, 403, 412 or 429, unless the history has the
/// refusal already: the first ones of each caller and problem in a minute (denial_sampler), then one event with the
/// number of those that were left out. Passes every request on to `next` first.
///
/// Threads:  on_served from any thread.
/// Lifetime: outlives the http::server; `next` and the sink outlive it, and the sink the run of `io`.
/// Limits:   as denial_sampler. Only a small part of the buffer of events is used (event_sink::add_low_priority);
///           denials that do not fit are counted as left out.
class denial_recorder final : public http::request_observer {
  public:
    denial_recorder(http::request_observer& next, event_sink& sink, boost::asio::io_context& io);
    ~denial_recorder() override;

    void on_served(const http::served_request& request) noexcept override;

    /// Begins to end the sampler's windows, on `io`.
    void start();
    /// Stores what was left out in windows that are not over yet. To be called when no request is served and no lease
    /// granted any more.
    void flush();

  private:
    struct impl;
    http::request_observer& next_;
    std::shared_ptr<impl> impl_;  ///< Shared with the coroutine.
};

}  // namespace fencegate::audit
