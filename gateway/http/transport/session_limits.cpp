// The limits of addresses and principals at a connection.
#include <gateway/http/codec/problem.hpp>
#include <gateway/http/transport/session.hpp>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace fencegate::http {
namespace {

namespace asio = boost::asio;

/// How long the next request of a connection waits after its address was refused: a caller that repeats its request at
/// once, on many connections, costs little time, and one that obeys Retry-After does not notice.
constexpr std::chrono::milliseconds refused_address_delay{500};

}  // namespace

void session::refuse_request(dispatcher::plan& plan) {
    group_->limiter().count_refusal(limits::refusal::requests);
    plan.target = nullptr;
    plan.answer = problem_response(limits::no_place_failure(limits::use::requests), request_id_);
}

void session::add_rate_fields(response& answer) const {
    if (rate_.empty()) return;
    answer.headers.emplace_back("RateLimit-Policy", rate_.policy);
    answer.headers.emplace_back("RateLimit", rate_.state);
}

asio::awaitable<void> session::delay_next_request() {
    asio::steady_timer timer(stream_.socket().get_executor(), refused_address_delay);
    boost::system::error_code ignored;
    co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
}

}  // namespace fencegate::http
