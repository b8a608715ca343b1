// The server over the loopback interface, with the test's handlers.
// No test sleeps: each step waits for the previous one.
#include <gateway/http/codec/json_io.hpp>
#include <gateway/http/transport/server.hpp>
#include <gateway/runtime/background.hpp>

#include <lockcore/types.hpp>

#include <gtest/gtest.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include <future>
#include <mutex>

namespace fencegate::http {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;

/// Signals from the handlers to the test, and back.
struct handler_signals {
    std::promise<void> waiting, cancelled, undone, hung_up;
};

awaitable_response echo(request r) {
    co_return json_response(r.body.empty() ? "{}" : r.body);
}

awaitable_response refuse(request) {
    co_return make_failure(errc::not_found, "No such thing.");
}

failure add_code(failure f) {
    f.facts["code"] = "X1";
    return f;
}

awaitable_response fail(request) {
    throw std::runtime_error("secret words");
    co_return response{};
}

/// Waits until it is cancelled, and answers 503.
awaitable_response wait_for_cancel(handler_signals* signals) {
    asio::steady_timer timer(co_await asio::this_coro::executor, 30s);
    signals->waiting.set_value();
    boost::system::error_code ec;
    co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ec));
    signals->cancelled.set_value();
    response out;
    out.status = 503;
    co_return out;
}

asio::awaitable<void> note_undone(handler_signals* signals) {
    signals->undone.set_value();
    co_return;
}

awaitable_response change_cancellation(request) {
    co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
    co_return json_response("{}");
}

/// Answers with a body that is valid for 20 ms. `stopped`: rendering takes until they are over, as in a process that
/// was stopped.
awaitable_response expire(handler_signals* signals, bool stopped) {
    response out = json_response({}, 201);
    expiring_text& body = out.expiring_body.emplace();
    body.valid_until = lockcore::boot_clock::now() + 20ms;
    body.render = [until = body.valid_until, stopped](std::chrono::milliseconds left,
                                                      std::chrono::milliseconds served) {
        while (stopped && lockcore::boot_clock::now() < until) {
        }
        EXPECT_GT(left, 0ms);
        EXPECT_GE(served, 0ms);
        return std::string("{}");
    };
    out.undo_undelivered = [signals] { return note_undone(signals); };
    co_return out;
}

/// Blocks until the caller has hung up and then answers at once, before the server can detect the hang-up.
awaitable_response answer_after_hang_up(handler_signals* signals) {
    signals->waiting.set_value();
    signals->hung_up.get_future().wait();
    response out = json_response("{}");
    out.undo_undelivered = [signals] { return note_undone(signals); };
    co_return out;
}

/// Answers with more than http.answers_max_bytes.
awaitable_response answer_too_much(request) {
    co_return json_response(std::string(2 << 20, 'x'));
}

class http_server : public testing::Test {
  protected:
    void start(unsigned threads = 1, unsigned connections_max = 100) {
        std::vector<route> routes;
        routes.push_back({method::post, "/echo", std::nullopt, echo, false});
        routes.push_back({method::get, "/fail", std::nullopt, fail, false});
        routes.push_back({method::get, "/refuse", std::nullopt, refuse, false});
        routes.push_back({method::get, "/refuse_with_code", std::nullopt, refuse, false});
        routes.back().complete_failure = add_code;
        routes.push_back({method::get, "/change", std::nullopt, change_cancellation, false});
        routes.push_back({method::get, "/large", std::nullopt, answer_too_much, false});
        routes.push_back(
            {method::get, "/wait", std::nullopt, [this](request) { return wait_for_cancel(&signals_); }, true});
        routes.push_back(
            {method::get, "/undo", std::nullopt, [this](request) { return answer_after_cancel(&signals_); }, true});
        routes.push_back(
            {method::get, "/valid", std::nullopt, [this](request) { return expire(&signals_, false); }, false});
        routes.push_back(
            {method::get, "/stopped", std::nullopt, [this](request) { return expire(&signals_, true); }, false});
        routes.push_back(
            {method::get, "/soon", std::nullopt, [this](request) { return answer_after_hang_up(&signals_); }, true});
        http_config cfg;
        cfg.port = 0;
        cfg.body_max_bytes = 1024;
        cfg.connections_per_address_max = connections_max;
        threads_ = std::make_unique<runtime::io_threads>(threads);
        server_ = std::make_unique<server>(cfg, auth_config{}, std::move(routes), threads_->contexts(), memory_,
                                           limiter_, observer_);
        ASSERT_TRUE(server_->listen());
        threads_->start();
        server_->start();
    }
    void TearDown() override {
        if (server_) server_->stop(std::chrono::steady_clock::now() + 100ms);
        if (threads_) threads_->stop();
        server_.reset();
    }

    static awaitable_response answer_after_cancel(handler_signals* signals) {
        auto cancelled = co_await wait_for_cancel(signals);
        response out = std::move(*cancelled);
        out.undo_undelivered = [signals] { return note_undone(signals); };
        co_return out;
    }

    asio::ip::tcp::socket connect() {
        asio::ip::tcp::socket s(client_);
        s.connect({asio::ip::make_address("127.0.0.1"), server_->port()});
        return s;
    }
    static void send(asio::ip::tcp::socket& s, std::string_view text) { asio::write(s, asio::buffer(text)); }
    static std::string read_to_end(asio::ip::tcp::socket& s) {
        std::string out;
        boost::system::error_code ec;
        char piece[4096];
        while (!ec)
            out.append(piece, s.read_some(asio::buffer(piece), ec));
        return out;
    }
    /// Reads one answer whose body is `{}`.
    static std::string read_answer(asio::ip::tcp::socket& s) {
        std::string out;
        char piece[4096];
        while (out.find("\r\n\r\n{}") == std::string::npos)
            out.append(piece, s.read_some(asio::buffer(piece)));
        return out;
    }
    static std::size_t count(std::string_view text, std::string_view pattern) {
        std::size_t n = 0;
        for (auto at = text.find(pattern); at != std::string_view::npos; at = text.find(pattern, at + 1))
            ++n;
        return n;
    }
    static bool within_seconds(std::promise<void>& p) {
        return p.get_future().wait_for(5s) == std::future_status::ready;
    }

    /// Records observed requests as text.
    class recording_observer final : public request_observer {
      public:
        void on_served(const served_request& request) noexcept override {
            const std::lock_guard hold(mutex_);
            lines_.push_back(std::string(to_string(request.verb)) + " " + std::string(request.route_path) + " " +
                             std::to_string(request.status) + " " + std::string(request.problem));
        }
        std::vector<std::string> lines() const {
            const std::lock_guard hold(mutex_);
            return lines_;
        }

      private:
        mutable std::mutex mutex_;
        std::vector<std::string> lines_;
    };

    handler_signals signals_;
    memory_budgets memory_{1 << 20, 1 << 20};
    limits::limiter limiter_{{}, {1'000, 1'000, 100}, true};
    recording_observer observer_;
    asio::io_context client_;
    std::unique_ptr<runtime::io_threads> threads_;
    std::unique_ptr<server> server_;
};

constexpr std::string_view get_change = "GET /change HTTP/1.1\r\nHost: localhost\r\n\r\n";

TEST_F(http_server, pipelined_requests_then_answers_in_order) {
    start();
    auto s = connect();
    send(s,
         "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nfirst"
         "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 6\r\n\r\nsecond"
         "GET /none HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    const std::string all = read_to_end(s);
    EXPECT_EQ(count(all, "HTTP/1.1 200 OK"), 2U);
    EXPECT_LT(all.find("first"), all.find("second"));
    EXPECT_LT(all.find("second"), all.find("404 Not Found"));
    EXPECT_NE(all.find("Connection: close"), std::string::npos);
}

TEST_F(http_server, handler_throws_then_500_without_its_message) {
    start();
    auto s = connect();
    send(s, "GET /fail HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    const std::string all = read_to_end(s);
    EXPECT_EQ(count(all, "500 Internal Server Error"), 1U);
    EXPECT_EQ(count(all, "secret"), 0U);
}

TEST_F(http_server, handler_fails_then_problem_document_of_its_route) {
    start();
    auto s = connect();
    send(s,
         "GET /refuse HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: r1\r\n\r\n"
         "GET /refuse_with_code HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    const std::string all = read_to_end(s);
    EXPECT_EQ(count(all, "HTTP/1.1 404 Not Found"), 2U) << all;
    EXPECT_EQ(count(all, R"("detail":"No such thing.","request_id":"r1")"), 1U) << all;
    EXPECT_EQ(count(all, R"("code":"X1")"), 1U) << all;
}

TEST_F(http_server, body_too_large_then_413_and_closed) {
    start();
    auto s = connect();
    send(s, "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4096\r\n\r\n" + std::string(4096, 'x'));
    s.shutdown(asio::ip::tcp::socket::shutdown_send);
    const std::string all = read_to_end(s);
    EXPECT_EQ(count(all, "413 Content Too Large"), 1U);
    EXPECT_EQ(count(all, "/problems/too-large"), 1U);
}

TEST_F(http_server, head_then_length_without_body) {
    start();
    auto s = connect();
    send(s, "HEAD /change HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    const std::string all = read_to_end(s);
    EXPECT_EQ(count(all, "Content-Length: 2"), 1U);
    EXPECT_TRUE(all.ends_with("\r\n\r\n"));
}

TEST_F(http_server, caller_hangs_up_then_handler_cancelled) {
    start();
    auto s = connect();
    send(s, "GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n");
    ASSERT_TRUE(within_seconds(signals_.waiting));
    s.close();
    EXPECT_TRUE(within_seconds(signals_.cancelled));
}

TEST_F(http_server, hang_up_after_pipelined_request_then_handler_cancelled) {
    start();
    auto s = connect();
    send(s, std::string("GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n") + std::string(get_change));
    ASSERT_TRUE(within_seconds(signals_.waiting));
    s.close();
    EXPECT_TRUE(within_seconds(signals_.cancelled));
}

TEST_F(http_server, earlier_handler_disabled_cancellation_then_next_cancelled) {
    start();
    auto s = connect();
    send(s, get_change);
    read_answer(s);
    send(s, "GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n");
    ASSERT_TRUE(within_seconds(signals_.waiting));
    s.close();
    EXPECT_TRUE(within_seconds(signals_.cancelled));
}

TEST_F(http_server, answer_not_delivered_then_undone) {
    start();
    auto s = connect();
    send(s, "GET /undo HTTP/1.1\r\nHost: localhost\r\n\r\n");
    ASSERT_TRUE(within_seconds(signals_.waiting));
    s.close();
    EXPECT_TRUE(within_seconds(signals_.undone));
}

TEST_F(http_server, hang_up_before_quick_answer_then_undone) {
    start();
    auto s = connect();
    send(s, "GET /soon HTTP/1.1\r\nHost: localhost\r\n\r\n");
    ASSERT_TRUE(within_seconds(signals_.waiting));
    s.close();
    signals_.hung_up.set_value();
    EXPECT_TRUE(within_seconds(signals_.undone));
}

/// Whether a request arrives before the connection for which another one is closed: it is read then, and not parsed.
class http_server_order : public http_server, public testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(request_first, http_server_order, testing::Bool());

TEST_P(http_server_order, connection_with_a_request_is_not_closed_for_a_new_one) {
    start(1, 3);
    auto oldest = connect(), idle = connect(), blocking = connect();
    for (auto* s : {&oldest, &idle}) {
        send(*s, get_change);
        read_answer(*s);
    }
    send(blocking, "GET /soon HTTP/1.1\r\nHost: localhost\r\n\r\n");
    ASSERT_TRUE(within_seconds(signals_.waiting)) << "the thread reads nothing meanwhile";
    if (GetParam()) send(oldest, get_change);
    auto added = connect();
    send(added, get_change);
    if (!GetParam()) send(oldest, get_change);
    signals_.hung_up.set_value();
    EXPECT_EQ(count(read_answer(oldest), "200 OK"), 1U);
    EXPECT_EQ(count(read_answer(added), "200 OK"), 1U);
    EXPECT_EQ(count(read_answer(blocking), "200 OK"), 1U);
    EXPECT_EQ(read_to_end(idle), "");
}

TEST_F(http_server, unused_connection_is_answered_when_closed_for_a_new_one) {
    start(1, 1);
    auto unused = connect(), added = connect();
    const std::string refusal = read_to_end(unused);
    EXPECT_EQ(count(refusal, "429 Too Many Requests"), 1U) << refusal;
    EXPECT_EQ(count(refusal, "Connection: close"), 1U) << refusal;
    send(added, get_change);
    EXPECT_EQ(count(read_answer(added), "200 OK"), 1U);
    EXPECT_EQ(observer_.lines(), (std::vector<std::string>{"- - 429 too-many-requests", "GET /change 200 "}));
}

TEST_F(http_server, idle_connection_is_closed_before_one_that_was_just_opened) {
    start(1, 2);
    bool was_just_opened = false;
    while (!was_just_opened) {
        const auto begun = std::chrono::steady_clock::now();
        auto opened = connect(), idle = connect();
        send(idle, get_change);
        read_answer(idle);
        auto added = connect();
        send(added, get_change);
        read_answer(added);
        was_just_opened = std::chrono::steady_clock::now() - begun < 1s;
        if (!was_just_opened) continue;  // on a machine that is too busy
        EXPECT_EQ(read_to_end(idle), "");
        send(opened, get_change);
        EXPECT_EQ(count(read_answer(opened), "200 OK"), 1U);
    }
}

TEST_F(http_server, stop_then_idle_closed_and_waiting_cancelled_with_its_answer) {
    start(2);
    auto idle = connect();
    send(idle, get_change);
    read_answer(idle);
    auto waiting = connect();
    send(waiting, "GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n");
    ASSERT_TRUE(within_seconds(signals_.waiting));
    EXPECT_EQ(server_->connections(), 2U);
    EXPECT_FALSE(server_->stop(std::chrono::steady_clock::now() + 10ms));
    EXPECT_EQ(read_to_end(idle), "");
    EXPECT_EQ(count(read_to_end(waiting), "503 Service Unavailable"), 1U);
    EXPECT_EQ(server_->connections(), 0U);
    EXPECT_TRUE(server_->stop(std::chrono::steady_clock::now())) << "no connection is left";
    boost::system::error_code ec;
    const auto until = std::chrono::steady_clock::now() + 5s;
    do {  // each thread closes its listener by itself
        asio::ip::tcp::socket late(client_);
        late.connect({asio::ip::make_address("127.0.0.1"), server_->port()}, ec);
    } while (ec != asio::error::connection_refused && std::chrono::steady_clock::now() < until);
    EXPECT_EQ(ec, asio::error::connection_refused);
}

TEST_F(http_server, each_request_then_observed_by_route_and_answer) {
    start();
    auto s = connect();
    send(s, "GET /change HTTP/1.1\r\nHost: localhost\r\n\r\n");
    read_answer(s);
    send(s,
         "GET /fail HTTP/1.1\r\nHost: localhost\r\n\r\nGET /none/secret HTTP/1.1\r\nHost: localhost\r\nConnection: "
         "close\r\n\r\n");
    read_to_end(s);
    auto broken = connect();
    send(broken, "nonsense\r\n\r\n");
    read_to_end(broken);
    EXPECT_EQ(observer_.lines(), (std::vector<std::string>{"GET /change 200 ", "GET /fail 500 internal-error",
                                                           "GET - 404 not-found", "- - 400 invalid-request"}));
}

TEST_F(http_server, answer_expired_before_it_is_sent_then_410_and_undone) {
    start();
    auto s = connect();
    send(s, "GET /valid HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_TRUE(read_answer(s).starts_with("HTTP/1.1 201 "));
    send(s, "GET /stopped HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    const std::string answer = read_to_end(s);
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 410 ")) << answer;
    EXPECT_NE(answer.find("/problems/lease-lost"), std::string::npos);
    EXPECT_TRUE(within_seconds(signals_.undone));
    server_->stop(std::chrono::steady_clock::now() + 1s);
    EXPECT_EQ(observer_.lines(), (std::vector<std::string>{"GET /valid 201 ", "GET /stopped 410 lease-lost"}));
}

TEST_F(http_server, answer_replaced_then_rate_limit_fields_stay) {
    limits_config limits;
    limits.address.requests.per_second = 100;
    limiter_.set_limits(limits, true);
    start();
    for (const std::string path : {"/change", "/large", "/stopped"}) {
        auto s = connect();
        send(s, "GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        const std::string answer = read_to_end(s);
        EXPECT_EQ(count(answer, "\r\nRateLimit-Policy: "), 1U) << answer;
        EXPECT_EQ(count(answer, "\r\nRateLimit: "), 1U) << answer;
    }
    EXPECT_EQ(observer_.lines(), (std::vector<std::string>{"GET /change 200 ", "GET /large 503 overloaded",
                                                           "GET /stopped 410 lease-lost"}));
}

TEST_F(http_server, port_taken_then_listen_fails_also_with_shared_ports) {
    start(2);
    http_config cfg;
    cfg.port = server_->port();
    runtime::io_threads others(2);
    server second(cfg, {}, {}, others.contexts(), memory_, limiter_, observer_);
    const auto listening = second.listen();
    ASSERT_FALSE(listening);
    EXPECT_NE(listening.error().detail.find(std::to_string(cfg.port)), std::string::npos);
}

}  // namespace
}  // namespace fencegate::http
