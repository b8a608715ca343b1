#pragma once

#include <proto/validity.hpp>

#include <lockcore/boot_clock.hpp>
#include <lockcore/lease.hpp>
#include <lockcore/result.hpp>
#include <lockcore/types.hpp>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/cancellation_type.hpp>
#include <boost/asio/this_coro.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace lockcore {

inline failure make_failure(errc code, std::string detail) {
    failure f;
    f.code = code;
    f.detail = std::move(detail);
    return f;
}

inline failure make_no_quorum(std::string detail, std::vector<node_answer> answers) {
    failure f = make_failure(errc::no_quorum, std::move(detail));
    f.answers = std::move(answers);
    return f;
}

inline monotonic_time now() {
    return std::chrono::steady_clock::now();
}

/// Returns the end of the validity of a lease with this ttl whose command was sent at `sent_at`. It is a time and not a
/// duration, for the process may be stopped between any two lines.
inline validity_time end_of_validity(milliseconds ttl, validity_time sent_at) {
    return sent_at + validity(ttl, std::chrono::nanoseconds{0});
}

inline milliseconds remaining_until(validity_time end) {
    return std::chrono::floor<milliseconds>(end - boot_clock::now());
}

/// Sets validity, valid_until and expires_at.
inline void set_validity(lease& granted, validity_time valid_until) {
    granted.valid_until = valid_until;
    granted.validity = std::max(remaining_until(valid_until), milliseconds{0});
    granted.expires_at = std::chrono::system_clock::now() + granted.validity;
}

/// Returns whether the calling coroutine was cancelled.
inline boost::asio::awaitable<bool> is_cancelled() {
    co_return (co_await boost::asio::this_coro::cancellation_state).cancelled() != boost::asio::cancellation_type::none;
}

}  // namespace lockcore
