#include <gateway/audit/denial_recorder.hpp>

#include <gateway/config/authority.hpp>
#include <gateway/http/routing/dispatcher.hpp>
#include <gateway/runtime/background.hpp>
#include <gateway/runtime/log.hpp>
#include <gateway/runtime/rfc3339.hpp>

#include <spdlog/spdlog.h>
#include <boost/asio/awaitable.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <mutex>
#include <string>

namespace fencegate::audit {

denial_sampler::counts& denial_sampler::counts_of(const group& denied, time_point now) {
    auto* groups = denied.principal.empty() ? &addresses_ : &principals_;
    group key = denied;
    if (groups->size() >= groups_max && !groups->contains(denied)) {
        groups = &others_;
        key.principal.clear();
        key.address.clear();
    }
    const auto [found, added] = groups->try_emplace(key);
    if (added) {
        found->second.begun = now;
        found->second.rest.denied = key;
    }
    return found->second;
}

bool denial_sampler::admit(const group& denied, time_point now) {
    counts& current = counts_of(denied, now);
    if (current.stored == stored_max) {
        leave_out(denied, now);
        return false;
    }
    ++current.stored;
    return true;
}

void denial_sampler::leave_out(const group& denied, time_point now) {
    left_out& rest = counts_of(denied, now).rest;
    if (rest.count++ == 0) rest.from = now;
    rest.to = now;
}

void denial_sampler::end_windows(time_point now, const std::function<bool(const left_out&)>& store) {
    for (windows* groups : {&principals_, &addresses_, &others_}) {
        std::erase_if(*groups, [&](const auto& entry) {
            const counts& current = entry.second;
            // A clock that was set back ends the window too.
            const bool is_over = now < current.begun || now >= current.begun + window;
            return is_over && (current.rest.count == 0 || store(current.rest));
        });
    }
}

namespace {

namespace asio = boost::asio;
using std::chrono::system_clock;

constexpr unsigned status_unauthorized = 401;
constexpr std::array<unsigned, 4> denial_statuses{status_unauthorized, 403, 412, 429};
constexpr std::chrono::seconds denial_sweep_interval{1};
constexpr std::size_t reason_bytes_max = 1'000;

bool is_recorded(const http::served_request& request) {
    return !request.in_history && !request.problem.empty() &&
           std::ranges::find(denial_statuses, request.status) != denial_statuses.end();
}

/// Returns the beginning of a text, without a character of which only a part fits.
std::string_view beginning_of(std::string_view text) {
    if (text.size() <= reason_bytes_max) return text;
    std::size_t size = reason_bytes_max;
    while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xC0U) == 0x80U)
        --size;
    return text.substr(0, size);
}

history_item make_item(const http::served_request& request, const denial_sampler::group& denied,
                       const std::string& address, const std::string& gateway, system_clock::time_point now) {
    history_item item;
    item.event = "request_denied";
    item.at = now;
    item.resource = request.resource;
    item.initiator.principal = denied.principal;
    item.initiator.trace_id = request.trace_id;
    item.initiator.origin = http::describe_origin(request.request_id, address, gateway, request.credential);
    item.detail = boost::json::serialize(boost::json::object{{"status", request.status},
                                                             {"problem", request.problem},
                                                             {"reason", beginning_of(request.reason)},
                                                             {"method", http::to_string(request.verb)},
                                                             {"route", request.route_path}});
    return item;
}

history_item make_item(const denial_sampler::left_out& rest, system_clock::time_point now) {
    history_item item;
    item.event = "request_denied";
    item.at = now;
    item.initiator.principal = rest.denied.principal;
    boost::json::object detail{{"status", rest.denied.status},
                               {"problem", rest.denied.problem},
                               {"left_out", rest.count},
                               {"from", runtime::to_rfc3339(rest.from)},
                               {"to", runtime::to_rfc3339(rest.to)}};
    if (!rest.denied.address.empty()) detail["address"] = rest.denied.address;
    if (rest.denied.address.empty() && rest.denied.principal.empty()) detail["others"] = true;
    item.detail = boost::json::serialize(detail);
    return item;
}

}  // namespace

/// Logs a refused credential, of which the sampler has admitted only the first ones of an address in a minute.
void log_refused_credential(const http::served_request& request, const std::string& address) {
    if (request.status != status_unauthorized) return;
    runtime::log(spdlog::level::warn, "authentication refused",
                 {{"client", address},
                  {"method", http::to_string(request.verb)},
                  {"route", request.route_path},
                  {"reason", request.reason},
                  {"request_id", request.request_id},
                  {"trace_id", request.trace_id}});
}

void log_left_out_credentials(const denial_sampler::left_out& rest) {
    if (rest.denied.status != status_unauthorized) return;
    runtime::log(spdlog::level::warn, "authentication refused more often",
                 {{"client", rest.denied.address}, {"left_out", rest.count}});
}

/// Shared with the coroutine, which may end after the recorder.
struct denial_recorder::impl final : runtime::periodic {
    impl(event_sink& s, asio::io_context& i) : sink(s), io(i) {}

    void record(const http::served_request& request) {
        const auto now = system_clock::now();
        const std::string address = canonical_address(request.address.to_string());
        denial_sampler::group denied;
        denied.principal = request.principal;
        if (denied.principal.empty()) denied.address = address;
        denied.problem = request.problem;
        denied.status = request.status;
        const std::lock_guard hold(mutex);
        if (!sampler.admit(denied, now)) return;
        log_refused_credential(request, address);
        if (!sink.add_low_priority(make_item(request, denied, address, sink.gateway(), now)))
            sampler.leave_out(denied, now);
    }

    /// Ends the windows that are over.
    asio::awaitable<duration> run_once() override {
        const auto now = system_clock::now();
        const std::lock_guard hold(mutex);
        sampler.end_windows(now, [&](const denial_sampler::left_out& rest) {
            if (!sink.add_low_priority(make_item(rest, now))) return false;
            log_left_out_credentials(rest);
            return true;
        });
        co_return denial_sweep_interval;
    }

    void end_all_windows() {
        const auto now = system_clock::now();
        const std::lock_guard hold(mutex);
        sampler.end_windows(denial_sampler::time_point::max(), [&](const denial_sampler::left_out& rest) {
            sink.add(make_item(rest, now));
            log_left_out_credentials(rest);
            return true;
        });
    }

    event_sink& sink;
    asio::io_context& io;
    std::mutex mutex;
    denial_sampler sampler;  ///< Guarded by the mutex.
};

denial_recorder::denial_recorder(http::request_observer& next, event_sink& sink, asio::io_context& io)
    : next_(next), impl_(std::make_shared<impl>(sink, io)) {}

denial_recorder::~denial_recorder() {
    impl_->stop();
}

void denial_recorder::on_served(const http::served_request& request) noexcept {
    next_.on_served(request);
    if (!is_recorded(request)) return;
    try {
        impl_->record(request);
    } catch (const std::exception& e) {
        spdlog::error("a denied request could not be recorded: {}", e.what());
    }
}

void denial_recorder::start() {
    impl_->start(impl_->io.get_executor(), denial_sweep_interval);
}

void denial_recorder::flush() {
    impl_->end_all_windows();
}

}  // namespace fencegate::audit
