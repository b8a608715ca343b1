#pragma once

#include <lockcore/result.hpp>
#include <lockcore/types.hpp>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/cancellation_type.hpp>
#include <boost/asio/this_coro.hpp>

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

/// Whether the coroutine that asks was cancelled.
inline boost::asio::awaitable<bool> caller_gone() {
    co_return (co_await boost::asio::this_coro::cancellation_state).cancelled() != boost::asio::cancellation_type::none;
}

}  // namespace lockcore
