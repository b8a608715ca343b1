#include <gateway/bench/clients.hpp>

#include <gateway/cli/answers.hpp>

#include <boost/asio/connect.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>

#include <algorithm>
#include <array>
#include <utility>

namespace fencegate::bench {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::use_awaitable;

/// Before a client connects again whose connection broke.
constexpr std::chrono::milliseconds reconnect_pause{50};

/// Returns whether work may get this answer although nothing is wrong.
bool is_expected(bench_work work, bench_step step, unsigned status) {
    const bool late = work == bench_work::late;
    switch (step) {
        case bench_step::acquire:
            return status == 201 || status == 423 || (late && status == 410);
        case bench_step::write:
            return status == 200 || (late && status == 412) || (work == bench_work::sale && status == 423);
        case bench_step::release:
            return status == 204 || (late && status == 410);
    }
    return false;
}

}  // namespace

/// A keep-alive connection, without a proxy between.
class bench_client::connection {
  public:
    connection(const asio::any_io_executor& executor, const cli::client& gateways, const cli::gateway_address& address,
               asio::ssl::context& tls)
        : gateways_(gateways), address_(address), tls_(tls), executor_(executor) {}

    /// Sends a request and reads its answer. Throws boost::system::system_error; the next call connects again.
    asio::awaitable<answer> call(cli::http_request asked, std::chrono::milliseconds time) {
        const bool opened = stream_ == nullptr;
        auto stream = opened ? std::make_unique<beast::ssl_stream<beast::tcp_stream>>(executor_, tls_)
                             : std::move(stream_);  // it stays empty where an error ends this call
        auto& tcp = stream->next_layer();
        tcp.expires_after(time);
        if (opened) co_await open(*stream);
        const http::request<http::string_body> request = make_request(std::move(asked));
        http::response_parser<http::string_body> parser;
        parser.body_limit(boost::none);
        if (address_.tls) {
            co_await http::async_write(*stream, request, use_awaitable);
            co_await http::async_read(*stream, buffer_, parser, use_awaitable);
        } else {
            co_await http::async_write(tcp, request, use_awaitable);
            co_await http::async_read(tcp, buffer_, parser, use_awaitable);
        }
        tcp.expires_never();
        answer out{parser.get().result_int(), cli::parse_object(parser.get().body())};
        if (parser.keep_alive()) stream_ = std::move(stream);
        co_return out;
    }

  private:
    asio::awaitable<void> open(beast::ssl_stream<beast::tcp_stream>& stream) {
        buffer_.clear();
        const auto colon = address_.authority.rfind(':');
        const bool has_port = colon != std::string::npos && address_.authority.find(']', colon) == std::string::npos;
        const std::string port = has_port ? address_.authority.substr(colon + 1) : address_.tls ? "443" : "80";
        asio::ip::tcp::resolver resolver(executor_);
        co_await stream.next_layer().async_connect(co_await resolver.async_resolve(address_.host, port, use_awaitable),
                                                   use_awaitable);
        stream.next_layer().socket().set_option(asio::ip::tcp::no_delay(true));
        if (!address_.tls) co_return;
        stream.set_verify_callback(asio::ssl::host_name_verification(address_.host));
        SSL_set_tlsext_host_name(stream.native_handle(), address_.host.c_str());
        co_await stream.async_handshake(asio::ssl::stream_base::client, use_awaitable);
    }

    http::request<http::string_body> make_request(cli::http_request asked) const {
        gateways_.add_caller(asked);
        http::request<http::string_body> out(http::string_to_verb(asked.method), address_.base + asked.target, 11);
        out.set(http::field::host, address_.authority);
        if (!asked.api_key.empty()) out.set(http::field::authorization, "Bearer " + asked.api_key);
        if (!asked.cell.empty()) out.set("Fencing-Cell", asked.cell);
        if (!asked.idempotency_key.empty()) out.set("Idempotency-Key", asked.idempotency_key);
        if (!asked.body.empty()) out.set(http::field::content_type, "application/json");
        out.body() = std::move(asked.body);
        out.prepare_payload();
        return out;
    }

    const cli::client& gateways_;
    const cli::gateway_address& address_;
    asio::ssl::context& tls_;
    asio::any_io_executor executor_;
    std::unique_ptr<beast::ssl_stream<beast::tcp_stream>> stream_;  ///< Empty: not connected.
    beast::flat_buffer buffer_;
};

bench_client::bench_client(bench_run& run, asio::io_context& context, unsigned number)
    : run_(run),
      number_(number),
      random_(*run.options.seed * 1'000'003 + number),
      timer_(context),
      connection_(std::make_unique<connection>(context.get_executor(), run.gateways,
                                               run.gateways.addresses()[number % run.gateways.gateways()], run.tls)) {}

bench_client::~bench_client() = default;

asio::awaitable<void> bench_client::run() {
    while (!run_.stopping)
        co_await perform(choose_work());
    if (kept_) co_await release_kept();
    --run_.unfinished;
}

bench_work bench_client::choose_work() {
    unsigned total = 0;
    for (const auto& [work, share] : run_.options.mix)
        total += share;
    unsigned chosen = std::uniform_int_distribution<unsigned>(0, total - 1)(random_);
    for (const auto& [work, share] : run_.options.mix) {
        if (chosen < share) return work;
        chosen -= share;
    }
    return run_.options.mix.begin()->first;
}

asio::awaitable<void> bench_client::perform(bench_work work) {
    const std::string prefix = "bench/" + run_.options.name + "/";
    const unsigned article = std::uniform_int_distribution<unsigned>(0, run_.options.articles - 1)(random_);
    switch (work) {
        case bench_work::pair:
            return hold(work, prefix + "client-" + std::to_string(number_));
        case bench_work::hot:
            return hold(work, prefix + "hot");
        case bench_work::write:
            return write_under_kept_lease();
        case bench_work::sale:
            return sell_in_one_call(article);
        case bench_work::job:
        case bench_work::late:
            break;
    }
    return do_job(work, article);
}

asio::awaitable<void> bench_client::hold(bench_work work, std::string resource) {
    const auto began = bench_clock::now();
    const auto held = co_await acquire(work, std::move(resource));
    if (!held) co_return;
    const auto granted = bench_clock::now();
    if (co_await release(work, *held))
        run_.counts.add_operation(work, (work == bench_work::hot ? granted : bench_clock::now()) - began);
}

asio::awaitable<void> bench_client::write_under_kept_lease() {
    // Above those that other work sells.
    const unsigned article = run_.options.articles + number_;
    if (kept_ && bench_clock::now() > kept_->valid_until - run_.options.ttl / 2) co_await release_kept();
    if (!kept_) kept_ = co_await acquire(bench_work::write, resource_of(article));
    if (!kept_) co_return;
    const auto began = bench_clock::now();
    if (co_await sell(bench_work::write, article, R"("lease_id":")" + kept_->id + '"')) {
        run_.counts.add_operation(bench_work::write, bench_clock::now() - began);
    } else {
        co_await release_kept();
    }
}

asio::awaitable<void> bench_client::release_kept() {
    const lease held = *kept_;
    kept_.reset();
    co_await release(bench_work::write, held);
}

asio::awaitable<void> bench_client::do_job(bench_work work, unsigned article) {
    const auto began = bench_clock::now();
    const auto held = co_await acquire(work, resource_of(article));
    if (!held) co_return;
    constexpr unsigned late_share = 10;  // one of ten
    if (work == bench_work::late && random_() % late_share == 0) co_await sleep(run_.options.ttl * 3 / 2);
    const bool sold = co_await sell(work, article, R"("lease_id":")" + held->id + '"');
    const bool released = co_await release(work, *held);
    if (sold && released) run_.counts.add_operation(work, bench_clock::now() - began);
}

asio::awaitable<void> bench_client::sell_in_one_call(unsigned article) {
    const auto began = bench_clock::now();
    if (co_await sell(bench_work::sale, article, R"("lease":{)" + make_lease_members(resource_of(article)) + "}"))
        run_.counts.add_operation(bench_work::sale, bench_clock::now() - began);
}

asio::awaitable<std::optional<bench_client::lease>> bench_client::acquire(bench_work work, std::string resource) {
    const auto sent = bench_clock::now();
    const answer got = co_await call("POST", "/v1/leases", "{" + make_lease_members(resource) + "}");
    run_.counts.add_answer(bench_step::acquire, got.status, is_expected(work, bench_step::acquire, got.status));
    if (got.status != 201) co_return std::nullopt;
    constexpr std::chrono::milliseconds none{0};
    lease held;
    held.id = cli::get_text(got.body, "lease_id");
    held.resource = std::move(resource);
    held.valid_until = sent + cli::get_duration(got.body, "served_ms").value_or(none) +
                       cli::get_duration(got.body, "validity_ms").value_or(none);
    run_.counts.add_grant(held.resource, cli::get_integer(got.body, "fencing_token").value_or(0), held.valid_until);
    co_return held;
}

asio::awaitable<bool> bench_client::release(bench_work work, lease held) {
    run_.counts.end_grant(held.resource);
    const answer got = co_await call("DELETE", "/v1/leases/" + held.id, "");
    run_.counts.add_answer(bench_step::release, got.status, is_expected(work, bench_step::release, got.status));
    co_return got.status == 204 || (work == bench_work::late && got.status == 410);
}

asio::awaitable<bool> bench_client::sell(bench_work work, unsigned article, std::string authority) {
    const answer got = co_await call("POST", "/v1/writes",
                                     "{" + authority + R"(,"operations":[{"update":"fencegate_bench_)" +
                                         run_.options.name + R"(","where":{"id":)" + std::to_string(article) +
                                         R"(,"stock":{"gte":1}},"add":{"stock":-1},"expect_rows":1}]})");
    run_.counts.add_answer(bench_step::write, got.status, is_expected(work, bench_step::write, got.status));
    auto& sales = run_.counts.article(article);
    const auto* const unknown = got.body.if_contains("outcome_unknown");
    if (got.status == 200) {
        ++sales.sold;
    } else if (got.status == 0 || (unknown != nullptr && unknown->is_bool() && unknown->get_bool())) {
        ++sales.unknown;
    }
    co_return got.status == 200;
}

asio::awaitable<bench_client::answer> bench_client::call(std::string method, std::string target, std::string body) {
    cli::http_request request;
    request.method = std::move(method);
    request.target = std::move(target);
    request.body = std::move(body);
    if (run_.options.keyed && !request.body.empty())
        request.idempotency_key = run_.options.name + "-" + std::to_string(number_) + "-" + std::to_string(calls_++);
    try {
        co_return co_await connection_->call(std::move(request), run_.gateways.timeout() + run_.options.wait);
    } catch (const boost::system::system_error&) {
    }
    co_await sleep(reconnect_pause);
    co_return answer{};
}

asio::awaitable<void> bench_client::sleep(bench_clock::duration time) {
    boost::system::error_code ignored;
    timer_.expires_after(time);
    co_await timer_.async_wait(asio::redirect_error(use_awaitable, ignored));
}

std::string bench_client::make_lease_members(const std::string& resource) const {
    return R"("resource":")" + resource + R"(","ttl_ms":)" + std::to_string(run_.options.ttl.count()) +
           R"(,"wait_ms":)" + std::to_string(run_.options.wait.count());
}

std::string bench_client::resource_of(unsigned article) const {
    return "bench/" + run_.options.name + "/" + std::to_string(article);
}

}  // namespace fencegate::bench
