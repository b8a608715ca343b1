#pragma once

#include <gateway/audit/event_sink.hpp>
#include <gateway/http/message.hpp>

#include <boost/asio/io_context.hpp>

#include <memory>

namespace fencegate::audit {

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
