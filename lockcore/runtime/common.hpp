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

inline failure fail(errc code, std::string detail) {
    failure f;
    f.code = code;
    f.detail = std::move(detail);
    return f;
}

inline failure no_quorum(std::string detail, std::vector<node_answer> answers) {
    failure f = fail(errc::no_quorum, std::move(detail));
    f.answers = std::move(answers);
    return f;
}

inline monotonic_time now() {
    return std::chrono::steady_clock::now();
}

/// When a lease ends for its holder that nodes were asked for at `asked_at` and keep for `ttl`. A time, not a span: a
/// process may be stopped between any two lines, and what is left would then be counted from the wrong moment.
inline validity_time end_of_validity(milliseconds ttl, validity_time asked_at) {
    return asked_at + validity(ttl, std::chrono::nanoseconds{0});
}

inline milliseconds left_until(validity_time end) {
    return std::chrono::floor<milliseconds>(end - boot_clock::now());
}

/// validity, valid_until and expires_at, which say the same in three ways.
inline void set_validity(lease& granted, validity_time valid_until) {
    granted.valid_until = valid_until;
    granted.validity = std::max(left_until(valid_until), milliseconds{0});
    granted.expires_at = std::chrono::system_clock::now() + granted.validity;
}

/// Whether the coroutine that asks was cancelled.
inline boost::asio::awaitable<bool> caller_gone() {
    co_return (co_await boost::asio::this_coro::cancellation_state).cancelled() != boost::asio::cancellation_type::none;
}

}  // namespace lockcore
